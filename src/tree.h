/* The inside of a tree: what the sources of one backend share, and no caller sees. */
#ifndef SUMTREE_TREE_H
#define SUMTREE_TREE_H

#include <stdbool.h>

#include "sumtree.h"

#define SUMTREE_EXPORT __attribute__((visibility("default")))
#define SUMTREE_INLINE static inline __attribute__((always_inline))
#define SUMTREE_NOINLINE static __attribute__((noinline))

enum { HOST = -1 };

/*
 * Planes are owned, and lie in the memory of `device`, which may be HOST: only kernels read or write them.
 * Node i of a plane is plane[i]; plane[0] is unused.
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
    int32_t device;
    double *sum;
    double *min;
    double *max;
    struct tree_state *state; /* what the gpu backend keeps besides; NULL in host memory */
};

/* checks.c: the first bad position of a batch in host memory, or -1. */
int64_t first_bad_index(int64_t capacity, int64_t count, const int64_t *indices);
int64_t first_bad_mass(int64_t count, const double *masses);
int64_t first_nan(int64_t count, const double *values);
int64_t first_bad_target(double total, int64_t count, const double *targets);

/* philox.c */
void philox_uniforms(sumtree_philox *rng, int64_t count, double *uniforms);

/* memory.c: `root` is where /proc and /sys are mounted, "" outside of tests. UINT64_MAX when nothing limits. */
uint64_t memory_available(const char *root);
uint64_t memory_to_spare(void);
double *memory_take_zeroed(int64_t doubles);

#endif
