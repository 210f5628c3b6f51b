/* Descents and draws from trees in host memory. */
#include "descents.h"

#include "kernels.h"
#include "parallel.h"
#include "rules.h"
#include "vectors.h"

/* ---- descents ---------------------------------------------------------------------------------------------------- */

/* With branches: the next node is fetched before it is known to be the right one. */
SUMTREE_INLINE int64_t descend_alone(const sumtree_t *tree, sumtree_side side, double target) {
    const double *sum = tree->sum;
    const int64_t padded = tree->padded;
    int64_t node = 1;
    double rest = target;
    while (node < padded) {
        node *= 2;
        const double left_sum = sum[node];
        if (goes_right(left_sum, rest, side)) {
            rest -= left_sum;
            ++node;
        }
    }
    return settle(tree, node, target, side);
}

enum { TOGETHER = 256 };

/* All of up to TOGETHER descents take one level, then the next: while one waits for its node, the others go on. */
SUMTREE_INLINE void descend_together(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                                     int64_t *indices) {
    const double *sum = tree->sum;
    double rest[TOGETHER];
    for (int64_t k = 0; k < count; ++k) {
        rest[k] = targets[k];
        indices[k] = 1;
    }
    for (int64_t width = 1; width < tree->padded; width <<= 1) {
        for (int64_t k = 0; k < count; ++k) {
            const double left_sum = sum[2 * indices[k]];
            const bool right = goes_right(left_sum, rest[k], side);
            rest[k] -= masked(left_sum, right);
            indices[k] = 2 * indices[k] + right;
            if (2 * width < tree->padded) __builtin_prefetch(sum + 2 * indices[k]);
        }
    }
    for (int64_t k = 0; k < count; ++k) indices[k] = settle(tree, indices[k], targets[k], side);
}

SUMTREE_INLINE void descend_plainly(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                                    int64_t *indices) {
    enum { FEW = 6 };
    if (count < FEW) {
        for (int64_t k = 0; k < count; ++k) indices[k] = descend_alone(tree, side, targets[k]);
        return;
    }
    for (int64_t k = 0; k < count; k += TOGETHER) {
        const int64_t length = count - k < TOGETHER ? count - k : TOGETHER;
        descend_together(tree, side, length, targets + k, indices + k);
    }
}

static void descend_baseline(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                             int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        descend_plainly(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        descend_plainly(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
    }
}

/* By the vector units in use. Calls, not a pointer: OpenACC's regions have no others. */
SUMTREE_INLINE void descend(vector_level level, const sumtree_t *tree, sumtree_side side, int64_t count,
                            const double *targets, int64_t *indices) {
#if VECTORS_X86
    enum { LEAST = 3 }; /* for fewer descents a vector does not pay */
    if (level == VECTOR_AVX2 && count >= LEAST) {
        descend_avx2(tree, side, count, targets, indices);
        return;
    }
    if (level == VECTOR_AVX512 && count >= LEAST) {
        descend_avx512(tree, side, count, targets, indices);
        return;
    }
#endif
    (void)level;
    descend_baseline(tree, side, count, targets, indices);
}

static void descend_all(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                        int64_t *indices) {
    const vector_level level = vectors_in_use();
    const int width = parallel_width(count);
    if (width == 1) {
        descend(level, tree, side, count, targets, indices);
        return;
    }
    PARALLEL_MEMBERS(width)
    for (int64_t member = 0; member < width; ++member) {
        const int64_t start = count * member / width, stop = count * (member + 1) / width;
        descend(level, tree, side, stop - start, targets + start, indices + start);
    }
}

sumtree_status kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                           int64_t *indices, int64_t *position) {
    const double total = tree->sum[1];
    if (total == 0.0) return SUMTREE_EMPTY;
    const int64_t bad = first_bad_target(total, count, targets);
    if (bad >= 0) {
        *position = bad;
        return SUMTREE_TARGET;
    }
    descend_all(tree, count, targets, side, indices);
    return SUMTREE_OK;
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* Turns doubles u_0, u_1, .. into targets, in place. */
static void aim(double *targets, int64_t count, double total, bool stratified) {
    const double below = just_below(total);
    for (int64_t k = 0; k < count; ++k) targets[k] = aimed(targets[k], k, count, total, below, stratified);
}

static void weigh(const sumtree_t *tree, int64_t count, double beta, const int64_t *indices, double *masses,
                  double *weights) {
    const double *leaf = leaves(tree);
    const double smallest = node_value(tree, SUMTREE_PLANE_MIN, 1);
    const int width = parallel_width(count);
    PARALLEL_LOOP(width)
    for (int64_t k = 0; k < count; ++k) {
        masses[k] = leaf[indices[k]];
        weights[k] = weight_of(smallest, masses[k], beta);
    }
}

sumtree_status kernel_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta, bool stratified,
                             int64_t *indices, double *masses, double *weights) {
    double *targets = weights; /* weights are written last */
    if (tree->sum[1] == 0.0) return SUMTREE_EMPTY;
    philox_uniforms(rng, count, targets);
    aim(targets, count, tree->sum[1], stratified);
    descend_all(tree, count, targets, SUMTREE_SIDE_RIGHT, indices);
    weigh(tree, count, beta, indices, masses, weights);
    return SUMTREE_OK;
}
