/* Trees, and the contract spelled out anew in the plainest way. */
#ifndef SUMTREE_TEST_TREES_H
#define SUMTREE_TEST_TREES_H

#include <math.h>
#include <stdlib.h>

#include "inputs.h"
#include "planes.h"
#include "test.h"
#include "tree.h"

enum { PLANES = 3, MOST = 4096 };
enum { DEEP = 100000, LONGEST = 20000 }; /* a tree and batches too large for the caches */
static const double MAX_MASS = 0x1p960;
static const double TINY = 0x1p-1074;

static inline int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

static inline sumtree_t *make(int64_t capacity, sumtree_kind kind) {
    sumtree_t *tree = NULL;
    CHECK_STATUS(OK, sumtree_create(capacity, kind, &tree));
    if (tree == NULL) exit(2);
    return tree;
}

static inline sumtree_t *make_with(sumtree_kind kind, int64_t count, const double *masses) {
    sumtree_t *tree = make(count, kind);
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, count, masses, 1, NULL));
    return tree;
}

static inline double unset(sumtree_plane plane) { return plane == SUMTREE_PLANE_MIN ? INFINITY : 0.0; }

static inline bool has(sumtree_kind kind, sumtree_plane plane) {
    if (kind == SUMTREE_KIND_PRIORITY) return true;
    return plane == (kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM);
}

/* What a plane makes of the number that a leaf was given. */
static inline double seen(sumtree_kind kind, sumtree_plane plane, double given) {
    if (kind == SUMTREE_KIND_MIN) return given;
    return plane == SUMTREE_PLANE_MIN && given == 0.0 ? INFINITY : given + 0.0;
}

/* All nodes of a plane over padded leaves, from the numbers that the leaves were given. */
static inline void naive_nodes(sumtree_kind kind, sumtree_plane plane, int64_t padded, const double *given,
                               double *nodes) {
    nodes[0] = 0.0;
    for (int64_t j = 0; j < padded; ++j) nodes[padded + j] = seen(kind, plane, given[j]);
    for (int64_t i = padded - 1; i > 0; --i) nodes[i] = combine(plane, nodes[2 * i], nodes[2 * i + 1]);
}

static inline void check_nodes(const sumtree_t *tree, const double *given) {
    static double expected[2 * MOST], actual[2 * MOST];
    const int64_t padded = sumtree_padded_capacity(tree);
    for (int p = 0; p < PLANES; ++p) {
        const sumtree_plane plane = (sumtree_plane)p;
        if (!has(sumtree_get_kind(tree), plane)) continue;
        naive_nodes(sumtree_get_kind(tree), plane, padded, given, expected);
        CHECK_STATUS(OK, sumtree_nodes(tree, plane, actual));
        CHECK(memcmp(expected, actual, (size_t)(2 * padded) * sizeof(double)) == 0);
        double root = NAN;
        CHECK_STATUS(OK, sumtree_root(tree, plane, &root));
        CHECK_DOUBLE(expected[1], root);
    }
    CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
}

/* What a call that fails must leave alone. */
static double before[PLANES][2 * MOST];

static inline void remember(const sumtree_t *tree) {
    for (int p = 0; p < PLANES; ++p) (void)sumtree_nodes(tree, (sumtree_plane)p, before[p]);
}

static inline void check_unchanged(const sumtree_t *tree) {
    static double now[2 * MOST];
    const size_t bytes = (size_t)(2 * sumtree_padded_capacity(tree)) * sizeof(double);
    for (int p = 0; p < PLANES; ++p) {
        if (sumtree_nodes(tree, (sumtree_plane)p, now) == SUMTREE_OK) CHECK(memcmp(now, before[p], bytes) == 0);
    }
}

#endif
