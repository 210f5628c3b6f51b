/* The kernels: everything that walks over leaves or nodes, and every parallel directive of the product.
 *
 * No kernel checks or allocates. A node is written only from its two children (recompute), so the order in which the
 * nodes of one level are written does not matter: that is what makes each level a parallel loop. */
#include <math.h>
#include <stddef.h>

#include "parallel.h"
#include "tree.h"

/* ---- recompute --------------------------------------------------------------------------------------------------- */

/* The rules of sumtree.h for node i. of_leaves: its children are leaves, which a priority tree's min and max planes
 * read from the sum plane. The kind is a constant wherever this is inlined. */
SUMTREE_INLINE void recompute(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int64_t i) {
    double *sum = tree->sum, *min = tree->min, *max = tree->max;
    if (kind != SUMTREE_KIND_MIN) sum[i] = sum[2 * i] + sum[2 * i + 1];
    if (kind == SUMTREE_KIND_MIN) min[i] = smaller(min[2 * i], min[2 * i + 1]);
    if (kind == SUMTREE_KIND_PRIORITY && of_leaves) {
        min[i] = smaller(positive_or_inf(sum[2 * i]), positive_or_inf(sum[2 * i + 1]));
        max[i] = larger(sum[2 * i], sum[2 * i + 1]);
    }
    if (kind == SUMTREE_KIND_PRIORITY && !of_leaves) {
        min[i] = smaller(min[2 * i], min[2 * i + 1]);
        max[i] = larger(max[2 * i], max[2 * i + 1]);
    }
}

/* Recomputes nodes first .. last, all of one level. */
SUMTREE_INLINE void sweep(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int64_t first, int64_t last) {
    PARALLEL_LOOP
    for (int64_t i = first; i <= last; ++i) recompute(tree, kind, of_leaves, i);
}

/* Recomputes the ancestors, `depth` levels above the leaves, of the leaves at indices. Equal nodes are recomputed more
 * than once, which changes nothing. */
SUMTREE_INLINE void touch(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int depth, int64_t count,
                          const int64_t *indices) {
    PARALLEL_LOOP
    for (int64_t k = 0; k < count; ++k) recompute(tree, kind, of_leaves, (tree->padded + indices[k]) >> depth);
}

/* A sweep reads memory in order, a touched node is a random access: from this many nodes a touched leaf on, touch. */
static const int64_t SWEEP_NODES_PER_LEAF = 2;

SUMTREE_INLINE void ascend_touched(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices) {
    int64_t width = tree->padded >> 1;
    for (int depth = 1; width > 0; ++depth, width >>= 1) {
        if (width / SWEEP_NODES_PER_LEAF <= count) {
            sweep(tree, kind, depth == 1, width, 2 * width - 1);
        } else {
            touch(tree, kind, depth == 1, depth, count, indices);
        }
    }
}

SUMTREE_INLINE void ascend_range(const sumtree_t *tree, sumtree_kind kind, int64_t start, int64_t count) {
    int64_t first = (tree->padded + start) >> 1;
    int64_t last = (tree->padded + start + count - 1) >> 1;
    for (bool of_leaves = true; first > 0; of_leaves = false, first >>= 1, last >>= 1) {
        sweep(tree, kind, of_leaves, first, last);
    }
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

SUMTREE_INLINE double *leaves(const sumtree_t *tree) {
    return (tree->kind == SUMTREE_KIND_MIN ? tree->min : tree->sum) + tree->padded;
}

/* What a leaf stores: adding 0.0 makes -0.0 a mass of 0.0; a min tree keeps every double. */
SUMTREE_INLINE double stored(sumtree_kind kind, double mass) { return kind == SUMTREE_KIND_MIN ? mass : mass + 0.0; }

void kernel_clear(sumtree_t *tree) {
    if (tree->min == NULL) return;
    const int64_t nodes = tree->kind == SUMTREE_KIND_MIN ? 2 * tree->padded : tree->padded;
    PARALLEL_LOOP
    for (int64_t i = 0; i < nodes; ++i) tree->min[i] = __builtin_inf();
}

/* Written in the order of the batch, so the last of equal indices wins. */
void kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step) {
    double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) leaf[indices[k]] = stored(tree->kind, masses[k * mass_step]);
    switch (tree->kind) {
    case SUMTREE_KIND_SUM:
        ascend_touched(tree, SUMTREE_KIND_SUM, count, indices);
        break;
    case SUMTREE_KIND_MIN:
        ascend_touched(tree, SUMTREE_KIND_MIN, count, indices);
        break;
    case SUMTREE_KIND_PRIORITY:
        ascend_touched(tree, SUMTREE_KIND_PRIORITY, count, indices);
        break;
    }
}

void kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses, int64_t mass_step) {
    double *leaf = leaves(tree) + start;
    PARALLEL_LOOP
    for (int64_t k = 0; k < count; ++k) leaf[k] = stored(tree->kind, masses[k * mass_step]);
    switch (tree->kind) {
    case SUMTREE_KIND_SUM:
        ascend_range(tree, SUMTREE_KIND_SUM, start, count);
        break;
    case SUMTREE_KIND_MIN:
        ascend_range(tree, SUMTREE_KIND_MIN, start, count);
        break;
    case SUMTREE_KIND_PRIORITY:
        ascend_range(tree, SUMTREE_KIND_PRIORITY, start, count);
        break;
    }
}

/* ---- checks: the first bad position of a batch, or -1. One branch-free pass; the place is looked for only on failure. */

int64_t kernel_first_bad_index(int64_t capacity, int64_t count, const int64_t *indices) {
    bool bad = false;
    for (int64_t k = 0; k < count; ++k) bad |= (uint64_t)indices[k] >= (uint64_t)capacity;
    if (!bad) return -1;
    int64_t k = 0;
    while ((uint64_t)indices[k] < (uint64_t)capacity) ++k;
    return k;
}

int64_t kernel_first_bad_mass(int64_t count, const double *masses) {
    bool bad = false;
    for (int64_t k = 0; k < count; ++k) bad |= !is_mass(masses[k]);
    if (!bad) return -1;
    int64_t k = 0;
    while (is_mass(masses[k])) ++k;
    return k;
}

int64_t kernel_first_nan(int64_t count, const double *values) {
    for (int64_t k = 0; k < count; ++k) {
        if (isnan(values[k])) return k;
    }
    return -1;
}

int64_t kernel_first_bad_target(double total, int64_t count, const double *targets) {
    for (int64_t k = 0; k < count; ++k) {
        if (!(targets[k] >= 0.0 && targets[k] <= total)) return k;
    }
    return -1;
}

/* ---- descents ---------------------------------------------------------------------------------------------------- */

/* The contract's rule, which looks at both children. */
static int64_t descend_by_the_rule(const sumtree_t *tree, double target, sumtree_side side) {
    const double *sum = tree->sum;
    int64_t node = 1;
    while (node < tree->padded) {
        const double l = sum[2 * node], r = sum[2 * node + 1];
        const bool inside = side == SUMTREE_SIDE_RIGHT ? l > target : (l >= target && l > 0.0);
        const bool left = inside || r == 0.0;
        target -= left ? 0.0 : l;
        node = 2 * node + (left ? 0 : 1);
    }
    return node - tree->padded;
}

/* `lanes` descents side by side, looking at left sums alone. As long as it enters no empty child it takes the rule's
 * steps; once in an empty child it can only end in a leaf of mass 0. So a leaf of positive mass is the rule's, and for
 * the others the rule itself is followed. */
SUMTREE_INLINE void descend(const sumtree_t *tree, sumtree_side side, int lanes, const double *targets,
                            int64_t *indices) {
    enum { MAX_LANES = 16 };
    const double *sum = tree->sum;
    int64_t node[MAX_LANES];
    double rest[MAX_LANES];
    for (int lane = 0; lane < lanes; ++lane) {
        node[lane] = 1;
        rest[lane] = targets[lane];
    }
    for (int64_t width = 1; width < tree->padded; width <<= 1) {
        for (int lane = 0; lane < lanes; ++lane) {
            const double l = sum[2 * node[lane]];
            const bool right = side == SUMTREE_SIDE_RIGHT ? l <= rest[lane] : l < rest[lane];
            rest[lane] -= right ? l : 0.0;
            node[lane] = 2 * node[lane] + right;
        }
    }
    for (int lane = 0; lane < lanes; ++lane) {
        const bool empty = sum[node[lane]] == 0.0;
        indices[lane] = empty ? descend_by_the_rule(tree, targets[lane], side) : node[lane] - tree->padded;
    }
}

SUMTREE_INLINE void find(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                         int64_t *indices) {
    enum { LANES = 16 };
    const int64_t whole = count - count % LANES;
    PARALLEL_LOOP
    for (int64_t k = 0; k < whole; k += LANES) descend(tree, side, LANES, targets + k, indices + k);
    for (int64_t k = whole; k < count; ++k) descend(tree, side, 1, targets + k, indices + k);
}

void kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        find(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        find(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
    }
}

/* ---- reductions over the nodes first .. last of the leaf level ----------------------------------------------------
 *
 * `head` and `tail` are the values of the ancestors of first and last in the tree whose leaves outside the range are
 * unset. Unset leaves add nothing, exactly, so only siblings that lie inside the range are combined, left before right. */

double kernel_range_sum(const double *sum, int64_t first, int64_t last) {
    double head = sum[first], tail = sum[last];
    if (first == last) return head;
    for (; first >> 1 != last >> 1; first >>= 1, last >>= 1) {
        if ((first & 1) == 0) head = head + sum[first + 1];
        if ((last & 1) == 1) tail = sum[last - 1] + tail;
    }
    return head + tail;
}

double kernel_range_min(const double *min, int64_t first, int64_t last) {
    double head = min[first], tail = min[last];
    if (first == last) return head;
    for (; first >> 1 != last >> 1; first >>= 1, last >>= 1) {
        if ((first & 1) == 0) head = smaller(head, min[first + 1]);
        if ((last & 1) == 1) tail = smaller(min[last - 1], tail);
    }
    return smaller(head, tail);
}
