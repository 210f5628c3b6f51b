/* Philox4x64-10 as NumPy runs it (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): one block, and
 * any one of the doubles to come, for the host and for devices. */
#ifndef SUMTREE_PHILOX_H
#define SUMTREE_PHILOX_H

#include "parallel.h"
#include "tree.h"

#define PHILOX_ROUNDS 10
#define PHILOX_WORDS 4
#define PHILOX_MULTIPLIER_0 0xD2E7470EE14C6C93u
#define PHILOX_MULTIPLIER_1 0xCA5A826395121157u
#define PHILOX_WEYL_0 0x9E3779B97F4A7C15u
#define PHILOX_WEYL_1 0xBB67AE8584CAA73Bu

__extension__ typedef unsigned __int128 uint128;

PARALLEL_ROUTINE SUMTREE_INLINE void philox_block(const uint64_t counter[4], const uint64_t key[2], uint64_t words[4]) {
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint64_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; ++round) {
        const uint128 p0 = (uint128)PHILOX_MULTIPLIER_0 * c0;
        const uint128 p1 = (uint128)PHILOX_MULTIPLIER_1 * c2;
        c0 = (uint64_t)(p1 >> 64) ^ c1 ^ k0;
        c2 = (uint64_t)(p0 >> 64) ^ c3 ^ k1;
        c1 = (uint64_t)p1;
        c3 = (uint64_t)p0;
        k0 += PHILOX_WEYL_0;
        k1 += PHILOX_WEYL_1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* Adds a number to a counter of 256 bits. Without a loop, so that devices keep the counter in registers. */
PARALLEL_ROUTINE SUMTREE_INLINE void philox_advance(uint64_t counter[4], uint64_t blocks) {
    counter[0] += blocks;
    const uint64_t carry_1 = counter[0] < blocks;
    counter[1] += carry_1;
    const uint64_t carry_2 = counter[1] < carry_1;
    counter[2] += carry_2;
    counter[3] += counter[2] < carry_2;
}

PARALLEL_ROUTINE SUMTREE_INLINE double philox_as_double(uint64_t word) { return (double)(word >> 11) * 0x1p-53; }

/* NumPy advances the counter before it makes a block, so the words in use are those of the block at `counter`. Moves
 * *rng behind its next `count` doubles. */
PARALLEL_ROUTINE SUMTREE_INLINE void philox_skip(sumtree_philox *rng, int64_t count) {
    const uint64_t used = (uint64_t)count + (uint64_t)rng->buffer_pos;
    if (count == 0) return;
    philox_advance(rng->counter, (used - 1) / PHILOX_WORDS);
    rng->buffer_pos = (int32_t)((used - 1) % PHILOX_WORDS) + 1;
}

/* The double that follows the next k of *rng. */
PARALLEL_ROUTINE SUMTREE_INLINE double philox_double_at(const sumtree_philox *rng, int64_t k) {
    const uint64_t at = (uint64_t)k + (uint64_t)rng->buffer_pos;
    uint64_t counter[4] = {rng->counter[0], rng->counter[1], rng->counter[2], rng->counter[3]}, words[4];
    philox_advance(counter, at / PHILOX_WORDS);
    philox_block(counter, rng->key, words);
    const uint64_t low = at & 1 ? words[1] : words[0], high = at & 1 ? words[3] : words[2];
    return philox_as_double(at & 2 ? high : low);
}

#endif
