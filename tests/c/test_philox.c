/* The random numbers: NumPy's words, and a state that moves as NumPy's does. */
#include <math.h>

#include "test.h"

enum { WORDS = 8, MOST = 64 };

typedef struct stream {
    sumtree_philox start;
    uint64_t words[WORDS]; /* numpy.random.Philox with that state, .random_raw(8) */
} stream;

#define ONES UINT64_MAX

/* The first three begin with the known answers of Random123; the others were drawn by NumPy 2.4. The last two carry the
 * counter over one word, and over all four. */
static const stream STREAMS[] = {
    {{{0, 0}, {0, 0, 0, 0}, 0},
     {0x16554d9eca36314cu, 0xdb20fe9d672d0fdcu, 0xd7e772cee186176bu, 0x7e68b68aec7ba23bu, 0x02f4ba6408e4d89bu,
      0x3dd62b0b9ca8c5b2u, 0x1c8667a55d902e79u, 0x907d7a052fd5b4dcu}},
    {{{ONES, ONES}, {ONES, ONES, ONES, ONES}, 0},
     {0x87b092c3013fe90bu, 0x438c3c67be8d0224u, 0x9cc7d7c69cd777b6u, 0xa09caebf594f0ba0u, 0x44b7493d1acfc229u,
      0x6636af8e997921ddu, 0x3f73e132b5b3780eu, 0x605644dde03b01b1u}},
    {{{0x452821e638d01377u, 0xbe5466cf34e90c6cu},
      {0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u, 0x082efa98ec4e6c89u},
      0},
     {0xa528f45403e61d95u, 0x38c72dbd566e9788u, 0xa5a1610e72fd18b5u, 0x57bd43b5e52b7fe6u, 0x4c8e672094922aa3u,
      0x527061cd2884102au, 0xf4c265b2d783d553u, 0x0556e76cb0298c8du}},
    /* Philox(SeedSequence(12345)): nothing of the block at counter 0 is ever used. */
    {{{0xb5ae6482a03d837cu, 0xbbe2996ffa1f7a2fu}, {0, 0, 0, 0}, 4},
     {0x6bb68ec5e0887940u, 0xa73636699d498901u, 0x6ee3cefb44bbb152u, 0x89f6e0013d62f3dbu, 0xb43096c46a56b28eu,
      0x34708a31087f4ee4u, 0x00b46242fbc7bcd3u, 0x4c7bc7073cd68728u}},
    {{{5, 7}, {ONES, 0, 0, 0}, 0},
     {0x7f0ac1050c94c388u, 0x8d8f21d44bcec30eu, 0xc76219a1e178d806u, 0x3b33d610ebc606e7u, 0x76771c010eeeec75u,
      0xc145e760aa0497a9u, 0xf61a6f6786725b69u, 0x8d3cb6cf6cf83a5cu}},
    {{{5, 7}, {ONES, ONES, ONES, ONES}, 0},
     {0xd06b6799b557c257u, 0xafdb4ec089fe5d26u, 0x9652b2c90b3974f5u, 0xad72626d9c61688du, 0x137cf5badfbef58fu,
      0x43a29fe78591cb3au, 0x5512e4c60416b361u, 0x4f4a9a280d85942bu}},
};
enum { STREAM_COUNT = sizeof STREAMS / sizeof STREAMS[0] };

static bool same_state(const sumtree_philox *a, const sumtree_philox *b) {
    return memcmp(a->key, b->key, sizeof a->key) == 0 && memcmp(a->counter, b->counter, sizeof a->counter) == 0 &&
           a->buffer_pos == b->buffer_pos;
}

static void test_golden_words(void) {
    for (int s = 0; s < STREAM_COUNT; ++s) {
        sumtree_philox rng = STREAMS[s].start;
        double uniforms[WORDS];
        CHECK_STATUS(OK, sumtree_uniforms(&rng, WORDS, uniforms));
        for (int k = 0; k < WORDS; ++k) {
            CHECK_DOUBLE(ldexp((double)(STREAMS[s].words[k] >> 11), -53), uniforms[k]);
        }
    }
}

static void test_state_after_draws(void) {
    sumtree_philox rng = STREAMS[3].start;
    double uniforms[WORDS];
    CHECK_STATUS(OK, sumtree_uniforms(&rng, 4, uniforms));
    CHECK_INT(1, rng.counter[0]);
    CHECK_INT(4, rng.buffer_pos);
    CHECK_STATUS(OK, sumtree_uniforms(&rng, 1, uniforms));
    CHECK_INT(2, rng.counter[0]);
    CHECK_INT(1, rng.buffer_pos);

    sumtree_philox last = STREAMS[5].start;
    CHECK_STATUS(OK, sumtree_uniforms(&last, 5, uniforms));
    for (int word = 0; word < 4; ++word) CHECK_INT(0, last.counter[word]);
}

/* Any cut of a stream into calls gives the same numbers and ends in the same state. */
static void test_cuts(void) {
    double whole[MOST];
    sumtree_philox end = STREAMS[3].start;
    CHECK_STATUS(OK, sumtree_uniforms(&end, MOST, whole));
    for (int64_t cut = 0; cut <= MOST; ++cut) {
        double parts[MOST];
        sumtree_philox rng = STREAMS[3].start;
        CHECK_STATUS(OK, sumtree_uniforms(&rng, cut, parts));
        CHECK_STATUS(OK, sumtree_uniforms(&rng, MOST - cut, parts + cut));
        CHECK(memcmp(whole, parts, sizeof whole) == 0);
        CHECK(same_state(&rng, &end));
    }
}

static void test_every_position(void) {
    double whole[WORDS];
    sumtree_philox rng = STREAMS[2].start;
    CHECK_STATUS(OK, sumtree_uniforms(&rng, WORDS, whole));
    for (int32_t position = 0; position <= 4; ++position) {
        double rest[WORDS];
        rng = STREAMS[2].start;
        rng.buffer_pos = position;
        CHECK_STATUS(OK, sumtree_uniforms(&rng, WORDS - position, rest));
        for (int k = 0; k < WORDS - position; ++k) CHECK_DOUBLE(whole[position + k], rest[k]);
    }
}

static void test_arguments(void) {
    sumtree_philox rng = STREAMS[3].start;
    double uniform = -1.0;
    CHECK_STATUS(OK, sumtree_uniforms(&rng, 0, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_uniforms(NULL, 1, &uniform));
    CHECK_STATUS(ARGUMENT, sumtree_uniforms(&rng, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_uniforms(&rng, -1, &uniform));
    CHECK(same_state(&rng, &STREAMS[3].start));
    static const int32_t bad[] = {-1, 5, INT32_MIN, INT32_MAX};
    for (int k = 0; k < 4; ++k) {
        rng.buffer_pos = bad[k];
        CHECK_STATUS(ARGUMENT, sumtree_uniforms(&rng, 1, &uniform));
    }
    CHECK_DOUBLE(-1.0, uniform);
}

int main(void) {
    RUN(test_golden_words);
    RUN(test_state_after_draws);
    RUN(test_cuts);
    RUN(test_every_position);
    RUN(test_arguments);
    return report();
}
