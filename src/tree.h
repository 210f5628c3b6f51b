/* The inside of a tree: what the sources of one backend share, and no caller sees. */
#ifndef SUMTREE_TREE_H
#define SUMTREE_TREE_H

#include <stdbool.h>

#include "sumtree.h"

#define SUMTREE_EXPORT __attribute__((visibility("default")))
#define SUMTREE_INLINE static inline __attribute__((always_inline))
#define SUMTREE_NOINLINE static __attribute__((noinline))

/*
 * Planes are owned. Node i of a plane is plane[i]; plane[0] is unused.
 *
 *   kind      sum            min            max
 *   SUM       2P doubles     NULL           NULL
 *   MIN       NULL           2P doubles     NULL
 *   PRIORITY  2P doubles     P doubles      P doubles      min and max read their leaves from the sum plane
 */
struct sumtree {
    int64_t capacity;
    int64_t padded; /* P */
    sumtree_kind kind;
    double *sum;
    double *min;
    double *max;
};

SUMTREE_INLINE double *leaves(const sumtree_t *tree) {
    return (tree->kind == SUMTREE_KIND_MIN ? tree->min : tree->sum) + tree->padded;
}

/* A leaf as the min plane of a priority tree sees it: only positive masses count. */
SUMTREE_INLINE double positive_or_inf(double mass) { return mass > 0.0 ? mass : __builtin_inf(); }

SUMTREE_INLINE double smaller(double left, double right) { return right < left ? right : left; }
SUMTREE_INLINE double larger(double left, double right) { return right > left ? right : left; }

SUMTREE_INLINE bool is_mass(double mass) { return mass >= 0.0 && mass <= SUMTREE_MAX_MASS; }

/* kernels.c: unchecked. Arguments were checked by sumtree.c. */
void kernel_clear(sumtree_t *tree);
int64_t kernel_first_bad_index(int64_t capacity, int64_t count, const int64_t *indices);
int64_t kernel_first_bad_mass(int64_t count, const double *masses);
int64_t kernel_first_nan(int64_t count, const double *values);
int64_t kernel_first_bad_target(double total, int64_t count, const double *targets);
void kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step);
void kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses, int64_t mass_step);
void kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices);
void kernel_weigh(const sumtree_t *tree, int64_t count, double smallest, double beta, const int64_t *indices,
                  double *masses, double *weights);
double kernel_range_sum(const double *sum, int64_t first, int64_t last);
double kernel_range_min(const double *min, int64_t first, int64_t last);

/* philox.c */
void philox_uniforms(sumtree_philox *rng, int64_t count, double *uniforms);

/* memory.c: `root` is where /proc and /sys are mounted, "" outside of tests. UINT64_MAX when nothing limits. */
uint64_t memory_available(const char *root);
double *memory_take_zeroed(int64_t doubles);

#endif
