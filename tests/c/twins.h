/* Trees of the gpu backend beside plain arrays of their leaves; arrays in the memory of its device. */
#ifndef SUMTREE_TEST_TWINS_H
#define SUMTREE_TEST_TWINS_H

#include <math.h>
#include <stdlib.h>

#include "inputs.h"
#include "planes.h"
#include "test.h"

static inline void *take(size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) exit(2);
    return memory;
}

/* An array in device 0. */
static inline void *up(const void *array, size_t bytes) {
    void *there = NULL;
    CHECK_STATUS(OK, sumtree_device_allocate(0, bytes, &there));
    if (there == NULL) exit(2);
    if (bytes > 0) copy_up(0, there, array, bytes);
    return there;
}

static inline void give_back(void *there) { sumtree_device_release(0, there); }

/* A tree, and all its leaves in a plain array. */
typedef struct twin {
    sumtree_t *tree;
    int64_t capacity, padded;
    sumtree_kind kind;
    double *leaf, *node, *seen;
} twin;

static inline double unset(sumtree_kind kind) { return kind == SUMTREE_KIND_MIN ? INFINITY : 0.0; }

static inline twin make_twin(int64_t capacity, sumtree_kind kind) {
    twin made = {NULL, capacity, 1, kind, NULL, NULL, NULL};
    CHECK_STATUS(OK, sumtree_create(capacity, kind, &made.tree));
    if (made.tree == NULL) exit(2);
    made.padded = sumtree_padded_capacity(made.tree);
    made.leaf = take((size_t)made.padded * sizeof(double));
    made.node = take(2 * (size_t)made.padded * sizeof(double));
    made.seen = take(2 * (size_t)made.padded * sizeof(double));
    for (int64_t j = 0; j < made.padded; ++j) made.leaf[j] = unset(kind);
    return made;
}

static inline void free_twin(const twin *t) {
    sumtree_free(t->tree);
    free(t->leaf);
    free(t->node);
    free(t->seen);
}

static inline void check_plane(const twin *t, sumtree_plane plane) {
    const bool positive = t->kind == SUMTREE_KIND_PRIORITY && plane == SUMTREE_PLANE_MIN;
    t->node[0] = 0.0;
    for (int64_t j = 0; j < t->padded; ++j) {
        t->node[t->padded + j] = positive && t->leaf[j] == 0.0 ? INFINITY : t->leaf[j];
    }
    for (int64_t i = t->padded - 1; i > 0; --i) t->node[i] = combine(plane, t->node[2 * i], t->node[2 * i + 1]);
    double root = NAN;
    CHECK_STATUS(OK, sumtree_root(t->tree, plane, &root));
    CHECK_DOUBLE(t->node[1], root);
    CHECK_STATUS(OK, sumtree_nodes(t->tree, plane, t->seen));
    CHECK(memcmp(t->node, t->seen, 2 * (size_t)t->padded * sizeof(double)) == 0);
}

static inline void check_nodes(const twin *t) {
    if (t->kind != SUMTREE_KIND_MIN) check_plane(t, SUMTREE_PLANE_SUM);
    if (t->kind != SUMTREE_KIND_SUM) check_plane(t, SUMTREE_PLANE_MIN);
    if (t->kind == SUMTREE_KIND_PRIORITY) check_plane(t, SUMTREE_PLANE_MAX);
    CHECK_STATUS(OK, sumtree_validate(t->tree, NULL, NULL));
}

static inline void set_leaf(const twin *t, int64_t index, double value) {
    t->leaf[index] = t->kind == SUMTREE_KIND_MIN ? value : value + 0.0;
}

#endif
