/* What anyone would write first: per element, a climb to the root and a descent from it. And the loop that times it and
 * libsumtree alike, both called through the same pointers. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "sumtree.h"

struct sumtree {
    int64_t padded;
    sumtree_kind kind;
    double *sum, *min, *max;
};

static double *nodes_of(int64_t padded, double value) {
    double *nodes = malloc((size_t)(2 * padded) * sizeof *nodes);
    for (int64_t i = 0; i < 2 * padded; ++i) nodes[i] = value;
    return nodes;
}

/* `capacity` is a power of two. */
sumtree_t *plain_create(int64_t capacity, int kind) {
    sumtree_t *tree = calloc(1, sizeof *tree);
    tree->padded = capacity;
    tree->kind = (sumtree_kind)kind;
    tree->sum = nodes_of(capacity, 0.0);
    if (kind == SUMTREE_KIND_PRIORITY) {
        tree->min = nodes_of(capacity, INFINITY);
        tree->max = nodes_of(capacity, 0.0);
    }
    return tree;
}

void plain_free(sumtree_t *tree) {
    free(tree->sum);
    free(tree->min);
    free(tree->max);
    free(tree);
}

sumtree_status plain_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                            int64_t mass_step, int64_t *position) {
    (void)position;
    double *sum = tree->sum, *min = tree->min, *max = tree->max;
    for (int64_t k = 0; k < count; ++k) {
        int64_t i = tree->padded + indices[k];
        const double mass = masses[k * mass_step];
        sum[i] = mass;
        if (tree->kind == SUMTREE_KIND_PRIORITY) {
            min[i] = mass > 0.0 ? mass : INFINITY;
            max[i] = mass;
            for (i >>= 1; i > 0; i >>= 1) {
                sum[i] = sum[2 * i] + sum[2 * i + 1];
                min[i] = min[2 * i + 1] < min[2 * i] ? min[2 * i + 1] : min[2 * i];
                max[i] = max[2 * i + 1] > max[2 * i] ? max[2 * i + 1] : max[2 * i];
            }
        } else {
            for (i >>= 1; i > 0; i >>= 1) sum[i] = sum[2 * i] + sum[2 * i + 1];
        }
    }
    return SUMTREE_OK;
}

sumtree_status plain_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                          int64_t *indices, int64_t *position) {
    (void)side, (void)position;
    const double *sum = tree->sum;
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

/* ---- timing: seconds that `batches` calls of `count` elements take, each batch another part of the arrays --------- */

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double time_update(__typeof__(&plain_update) update, sumtree_t *tree, int64_t batches, int64_t count,
                   const int64_t *indices, const double *masses) {
    const double began = now();
    for (int64_t b = 0; b < batches; ++b) (void)update(tree, count, indices + b * count, masses + b * count, 1, NULL);
    return now() - began;
}

double time_find(__typeof__(&plain_find) find, const sumtree_t *tree, int64_t batches, int64_t count,
                 const double *targets, int64_t *indices) {
    const double began = now();
    for (int64_t b = 0; b < batches; ++b) {
        (void)find(tree, count, targets + b * count, SUMTREE_SIDE_RIGHT, indices + b * count, NULL);
    }
    return now() - began;
}
