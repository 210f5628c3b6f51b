/* Checks of batches in host memory: one branch-free pass, and a second only on failure. */
#include <math.h>

#include "rules.h"

/* A number whose top bit tells that `number`, or `most`, is no number of 0 .. most <= INT64_MAX. Compilers make vectors of
 * this, but not of comparisons. */
SUMTREE_INLINE uint64_t beyond(uint64_t number, uint64_t most) { return number | (most - number); }

SUMTREE_INLINE bool has_top_bit(uint64_t number) { return number >> 63 != 0; }

/* Of doubles from 0.0 on, the greater has the greater bits; those of NaN are greater than any, and a negative double has
 * the top bit. Adding 0.0 makes -0.0 a 0.0. */
SUMTREE_INLINE uint64_t order_of(double number) {
    uint64_t bits;
    number += 0.0;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

int64_t first_bad_index(int64_t capacity, int64_t count, const int64_t *indices) {
    const uint64_t most = (uint64_t)capacity - 1;
    uint64_t bad = 0;
    for (int64_t k = 0; k < count; ++k) bad |= beyond((uint64_t)indices[k], most);
    if (!has_top_bit(bad)) return -1;
    int64_t k = 0;
    while ((uint64_t)indices[k] <= most) ++k;
    return k;
}

int64_t first_bad_mass(int64_t count, const double *masses) {
    const uint64_t most = order_of(SUMTREE_MAX_MASS);
    uint64_t bad = 0;
    for (int64_t k = 0; k < count; ++k) bad |= beyond(order_of(masses[k]), most);
    if (!has_top_bit(bad)) return -1;
    int64_t k = 0;
    while (order_of(masses[k]) <= most) ++k;
    return k;
}

int64_t first_nan(int64_t count, const double *values) {
    for (int64_t k = 0; k < count; ++k) {
        if (isnan(values[k])) return k;
    }
    return -1;
}

int64_t first_bad_target(double total, int64_t count, const double *targets) {
    const uint64_t most = order_of(total);
    uint64_t bad = 0;
    for (int64_t k = 0; k < count; ++k) bad |= beyond(order_of(targets[k]), most);
    if (!has_top_bit(bad)) return -1;
    int64_t k = 0;
    while (order_of(targets[k]) <= most) ++k;
    return k;
}
