/* Inputs of the C tests: random words, and masses of every size. */
#ifndef SUMTREE_TEST_INPUTS_H
#define SUMTREE_TEST_INPUTS_H

#include <float.h>
#include <stdint.h>

#include "sumtree.h"

enum { KINDS = 3 };

static uint64_t words;

static inline void seed(uint64_t value) { words = value; }

/* Knuth's MMIX generator; its high bits are good enough for inputs. */
static inline uint64_t next_word(void) {
    words = words * 6364136223846793005u + 1442695040888963407u;
    return words >> 11;
}

static inline int64_t below(int64_t bound) { return (int64_t)(next_word() % (uint64_t)bound); }

/* Ordinary ones, and eight in `many` zeros, subnormals and huge ones. */
static inline double any_mass(int64_t many) {
    static const double extremes[] = {0.0, -0.0, 0x1p-1074, 0x1.8p-1040, DBL_MIN, 1.0, 0x1p900, 0x1p960};
    const int64_t choice = below(many);
    return choice < 8 ? extremes[choice] : (double)next_word() * 0x1p-53 + 0x1p-60;
}

/* What a node of a plane is made of. */
static inline double combine(sumtree_plane plane, double left, double right) {
    if (plane == SUMTREE_PLANE_SUM) return left + right;
    if (plane == SUMTREE_PLANE_MIN) return right < left ? right : left;
    return right > left ? right : left;
}

#endif
