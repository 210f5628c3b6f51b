/* Philox4x64-10 as NumPy runs it (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
#include "tree.h"

#define PHILOX_ROUNDS 10
#define PHILOX_WORDS 4

static const uint64_t PHILOX_MULTIPLIER[2] = {0xD2E7470EE14C6C93u, 0xCA5A826395121157u};
static const uint64_t PHILOX_WEYL[2] = {0x9E3779B97F4A7C15u, 0xBB67AE8584CAA73Bu};

__extension__ typedef unsigned __int128 uint128;

static void philox_block(const uint64_t counter[4], const uint64_t key[2], uint64_t words[4]) {
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint64_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; ++round) {
        const uint128 p0 = (uint128)PHILOX_MULTIPLIER[0] * c0;
        const uint128 p1 = (uint128)PHILOX_MULTIPLIER[1] * c2;
        c0 = (uint64_t)(p1 >> 64) ^ c1 ^ k0;
        c2 = (uint64_t)(p0 >> 64) ^ c3 ^ k1;
        c1 = (uint64_t)p1;
        c3 = (uint64_t)p0;
        k0 += PHILOX_WEYL[0];
        k1 += PHILOX_WEYL[1];
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

static void advance(uint64_t counter[4]) {
    for (int word = 0; word < 4; ++word) {
        if (++counter[word] != 0) return;
    }
}

/* NumPy advances the counter before it makes a block, so the words in use are those of the block at `counter`. */
void philox_uniforms(sumtree_philox *rng, int64_t count, double *uniforms) {
    uint64_t words[PHILOX_WORDS];
    if (rng->buffer_pos < PHILOX_WORDS) philox_block(rng->counter, rng->key, words);
    for (int64_t k = 0; k < count; ++k) {
        if (rng->buffer_pos >= PHILOX_WORDS) {
            advance(rng->counter);
            philox_block(rng->counter, rng->key, words);
            rng->buffer_pos = 0;
        }
        uniforms[k] = (double)(words[rng->buffer_pos++] >> 11) * 0x1p-53;
    }
}
