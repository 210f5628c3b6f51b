/* Checks of batches in host memory: one branch-free pass, and a second only on failure. */
#include <math.h>

#include "rules.h"

int64_t first_bad_index(int64_t capacity, int64_t count, const int64_t *indices) {
    bool bad = false;
    for (int64_t k = 0; k < count; ++k) bad |= (uint64_t)indices[k] >= (uint64_t)capacity;
    if (!bad) return -1;
    int64_t k = 0;
    while ((uint64_t)indices[k] < (uint64_t)capacity) ++k;
    return k;
}

int64_t first_bad_mass(int64_t count, const double *masses) {
    bool bad = false;
    for (int64_t k = 0; k < count; ++k) bad |= !is_mass(masses[k]);
    if (!bad) return -1;
    int64_t k = 0;
    while (is_mass(masses[k])) ++k;
    return k;
}

int64_t first_nan(int64_t count, const double *values) {
    for (int64_t k = 0; k < count; ++k) {
        if (isnan(values[k])) return k;
    }
    return -1;
}

int64_t first_bad_target(double total, int64_t count, const double *targets) {
    for (int64_t k = 0; k < count; ++k) {
        if (!(targets[k] >= 0.0 && targets[k] <= total)) return k;
    }
    return -1;
}
