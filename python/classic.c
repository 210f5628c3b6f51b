/* The benchmark's own library: what anyone would write first, and the loops that time it and libsumtree alike.
 *
 * Two classic updates, per element (a climb to the root for each leaf) and full rebuild (every node of the tree, after
 * the leaves), and the plain descent. They have the prototypes of sumtree.h, are built by the same compiler with the
 * same flags as the cpu backend, and check a batch whole before they write, as it does. Nodes have the bits of
 * sumtree.h's rules. A priority tree is three trees here, each with leaves of its own. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sumtree.h"

#define CLASSIC_EXPORT __attribute__((visibility("default")))

#if defined(__clang__)
#define COMPILER "Clang " __clang_version__
#elif defined(__NVCOMPILER)
#define COMPILER "NVIDIA HPC " __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

struct sumtree {
    int64_t capacity;
    int64_t padded;
    double *plane[3]; /* by sumtree_plane: 2P doubles, owned; NULL where the tree has no such plane */
};

static const double unset[3] = {0.0, INFINITY, 0.0};

/* ---- life cycle -------------------------------------------------------------------------------------------------- */

CLASSIC_EXPORT void classic_free(sumtree_t *tree) {
    if (tree == NULL) return;
    for (int p = 0; p < 3; ++p) free(tree->plane[p]);
    free(tree);
}

static bool take_plane(sumtree_t *tree, int p) {
    double *node = malloc((size_t)(2 * tree->padded) * sizeof *node);
    tree->plane[p] = node;
    if (node == NULL) return false;
    for (int64_t i = 0; i < 2 * tree->padded; ++i) node[i] = unset[p];
    node[0] = 0.0;
    return true;
}

CLASSIC_EXPORT sumtree_status classic_create(int64_t capacity, sumtree_kind kind, sumtree_t **tree) {
    if (capacity < 1 || capacity > SUMTREE_MAX_CAPACITY) return SUMTREE_CAPACITY;
    sumtree_t *made = calloc(1, sizeof *made);
    if (made == NULL) return SUMTREE_MEMORY;
    made->capacity = capacity;
    made->padded = 1;
    while (made->padded < capacity) made->padded <<= 1;
    bool taken = kind == SUMTREE_KIND_MIN || take_plane(made, SUMTREE_PLANE_SUM);
    if (kind != SUMTREE_KIND_SUM) taken = taken && take_plane(made, SUMTREE_PLANE_MIN);
    if (kind == SUMTREE_KIND_PRIORITY) taken = taken && take_plane(made, SUMTREE_PLANE_MAX);
    if (!taken) {
        classic_free(made);
        return SUMTREE_MEMORY;
    }
    *tree = made;
    return SUMTREE_OK;
}

CLASSIC_EXPORT sumtree_status classic_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    if (tree->plane[plane] == NULL) return SUMTREE_KIND;
    memcpy(nodes, tree->plane[plane], (size_t)(2 * tree->padded) * sizeof *nodes);
    return SUMTREE_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool is_mass(double mass) { return mass >= 0.0 && mass <= SUMTREE_MAX_MASS; }

static sumtree_status check(const sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                            int64_t mass_step) {
    bool bad_index = false, bad_mass = false;
    for (int64_t k = 0; k < count; ++k) bad_index |= (uint64_t)indices[k] >= (uint64_t)tree->capacity;
    if (bad_index) return SUMTREE_INDEX;
    for (int64_t k = 0; k < count; ++k) bad_mass |= !is_mass(masses[k * mass_step]);
    return bad_mass ? SUMTREE_MASS : SUMTREE_OK;
}

/* ---- updates ---------------------------------------------------------------------------------------------------- */

static inline double leaf_of(int p, double mass) {
    return p == SUMTREE_PLANE_MIN && mass == 0.0 ? INFINITY : mass + 0.0;
}

static inline __attribute__((always_inline)) void recompute(double *node, int p, int64_t i) {
    const double left = node[2 * i], right = node[2 * i + 1];
    if (p == SUMTREE_PLANE_SUM) node[i] = left + right;
    if (p == SUMTREE_PLANE_MIN) node[i] = right < left ? right : left;
    if (p == SUMTREE_PLANE_MAX) node[i] = right > left ? right : left;
}

static inline __attribute__((always_inline)) void climb_each(const sumtree_t *tree, int p, int64_t count,
                                                             const int64_t *indices, const double *masses,
                                                             int64_t mass_step) {
    double *node = tree->plane[p];
    if (node == NULL) return;
    for (int64_t k = 0; k < count; ++k) {
        int64_t i = tree->padded + indices[k];
        node[i] = leaf_of(p, masses[k * mass_step]);
        for (i >>= 1; i > 0; i >>= 1) recompute(node, p, i);
    }
}

static inline __attribute__((always_inline)) void
rebuild(const sumtree_t *tree, int p, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step) {
    double *node = tree->plane[p];
    if (node == NULL) return;
    for (int64_t k = 0; k < count; ++k) node[tree->padded + indices[k]] = leaf_of(p, masses[k * mass_step]);
    for (int64_t i = tree->padded - 1; i > 0; --i) recompute(node, p, i);
}

CLASSIC_EXPORT sumtree_status classic_update_each(sumtree_t *tree, int64_t count, const int64_t *indices,
                                                  const double *masses, int64_t mass_step, int64_t *position) {
    (void)position;
    const sumtree_status status = check(tree, count, indices, masses, mass_step);
    if (status != SUMTREE_OK) return status;
    climb_each(tree, SUMTREE_PLANE_SUM, count, indices, masses, mass_step);
    climb_each(tree, SUMTREE_PLANE_MIN, count, indices, masses, mass_step);
    climb_each(tree, SUMTREE_PLANE_MAX, count, indices, masses, mass_step);
    return SUMTREE_OK;
}

CLASSIC_EXPORT sumtree_status classic_update_rebuild(sumtree_t *tree, int64_t count, const int64_t *indices,
                                                     const double *masses, int64_t mass_step, int64_t *position) {
    (void)position;
    const sumtree_status status = check(tree, count, indices, masses, mass_step);
    if (status != SUMTREE_OK) return status;
    rebuild(tree, SUMTREE_PLANE_SUM, count, indices, masses, mass_step);
    rebuild(tree, SUMTREE_PLANE_MIN, count, indices, masses, mass_step);
    rebuild(tree, SUMTREE_PLANE_MAX, count, indices, masses, mass_step);
    return SUMTREE_OK;
}

/* ---- descents --------------------------------------------------------------------------------------------------- */

/* Side right alone. It may end in a leaf of mass 0 where rounding leads there: the benchmark's trees have none. */
CLASSIC_EXPORT sumtree_status classic_find(const sumtree_t *tree, int64_t count, const double *targets,
                                           sumtree_side side, int64_t *indices, int64_t *position) {
    (void)position;
    if (side != SUMTREE_SIDE_RIGHT) return SUMTREE_ARGUMENT;
    const double *sum = tree->plane[SUMTREE_PLANE_SUM];
    bool bad = false;
    for (int64_t k = 0; k < count; ++k) bad |= !(targets[k] >= 0.0 && targets[k] <= sum[1]);
    if (bad) return SUMTREE_TARGET;
    for (int64_t k = 0; k < count; ++k) {
        double rest = targets[k];
        int64_t i = 1;
        while (i < tree->padded) {
            i *= 2;
            if (sum[i] <= rest) rest -= sum[i++];
        }
        indices[k] = i - tree->padded;
    }
    return SUMTREE_OK;
}

/* ---- timing: the seconds that `batches` calls of `count` elements take, each batch another part of the arrays; a
 * negative status where a call fails ------------------------------------------------------------------------------- */

typedef sumtree_status update_function(sumtree_t *, int64_t, const int64_t *, const double *, int64_t, int64_t *);
typedef sumtree_status find_function(const sumtree_t *, int64_t, const double *, sumtree_side, int64_t *, int64_t *);

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

CLASSIC_EXPORT double classic_time_update(update_function *update, sumtree_t *tree, int64_t batches, int64_t count,
                                          const int64_t *indices, const double *masses) {
    const double began = now();
    for (int64_t b = 0; b < batches; ++b) {
        const sumtree_status status = update(tree, count, indices + b * count, masses + b * count, 1, NULL);
        if (status != SUMTREE_OK) return -(double)status;
    }
    return now() - began;
}

CLASSIC_EXPORT double classic_time_find(find_function *find, const sumtree_t *tree, int64_t batches, int64_t count,
                                        const double *targets, int64_t *indices) {
    const double began = now();
    for (int64_t b = 0; b < batches; ++b) {
        const sumtree_status status =
            find(tree, count, targets + b * count, SUMTREE_SIDE_RIGHT, indices + b * count, NULL);
        if (status != SUMTREE_OK) return -(double)status;
    }
    return now() - began;
}

/* The compiler and flags that built this library, in the words of sumtree_build. Static storage. */
CLASSIC_EXPORT const char *classic_build(void) { return COMPILER ", flags: " SUMTREE_FLAGS; }
