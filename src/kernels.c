/* The kernels: everything that walks over leaves or nodes, and everything that is done by a team.
 *
 * No kernel checks. A node is written only from its two children (recompute), so the order in which the nodes of one
 * level are written does not matter, and a node is written by one member of a team alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#include "tree.h"

/* ---- the backend that these kernels make -------------------------------------------------------------------------- */

#if defined(__clang__)
#define COMPILER "Clang " __clang_version__
#elif defined(__NVCOMPILER)
#define COMPILER "NVIDIA HPC " __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

SUMTREE_EXPORT const char *sumtree_backend(void) { return BACKEND_NAME; }

SUMTREE_EXPORT const char *sumtree_build(void) { return COMPILER BACKEND_RUNTIME; }

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
    for (int64_t i = first; i <= last; ++i) recompute(tree, kind, of_leaves, i);
}

/* Recomputes the ancestors, `depth` levels above the leaves, of the leaves at indices. Equal nodes are recomputed more
 * than once, which changes nothing. */
SUMTREE_INLINE void touch(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int depth, int64_t count,
                          const int64_t *indices) {
    for (int64_t k = 0; k < count; ++k) recompute(tree, kind, of_leaves, (tree->padded + indices[k]) >> depth);
}

/* A sweep reads memory in order, a touched node is a random access: from this many nodes a touched leaf on, touch. */
static const int64_t SWEEP_NODES_PER_LEAF = 2;

/* How many nodes of a sweep take as long as one leaf of an update with its ancestors. */
static const int64_t SWEPT_LIKE_ONE_LEAF = 8;

/* Recomputes the ancestors of the leaves at indices, which all lie below the nodes first_root .. last_root of the level
 * `height` above the leaves, up to that level. */
SUMTREE_INLINE void ascend(const sumtree_t *tree, sumtree_kind kind, int height, int64_t first_root, int64_t last_root,
                           int64_t count, const int64_t *indices) {
    for (int depth = 1; depth <= height; ++depth) {
        const int64_t first = first_root << (height - depth), end = (last_root + 1) << (height - depth);
        if ((end - first) / SWEEP_NODES_PER_LEAF <= count) {
            sweep(tree, kind, depth == 1, first, end - 1);
        } else {
            touch(tree, kind, depth == 1, depth, count, indices);
        }
    }
}

/* Recomputes a level and all levels above it; `width` is its first node. */
SUMTREE_INLINE void sweep_top(const sumtree_t *tree, sumtree_kind kind, int64_t width) {
    for (; width > 0; width >>= 1) sweep(tree, kind, 2 * width == tree->padded, width, 2 * width - 1);
}

/* Recomputes the ancestors of one leaf of a sum or priority tree. Each is made from the child that was just made, kept
 * in registers, and that child's sibling: adding does not mind which comes first, nor do min and max where no -0.0
 * meets 0.0. */
SUMTREE_INLINE void climb(const sumtree_t *tree, sumtree_kind kind, int64_t index) {
    double *sum = tree->sum, *min = tree->min, *max = tree->max;
    int64_t node = tree->padded + index;
    if (node == 1) return;
    const double mass = sum[node], beside = sum[node ^ 1];
    double total = mass + beside, most = larger(mass, beside);
    double least = smaller(positive_or_inf(mass), positive_or_inf(beside));
    for (;;) {
        node >>= 1;
        sum[node] = total;
        if (kind == SUMTREE_KIND_PRIORITY) {
            min[node] = least;
            max[node] = most;
        }
        if (node == 1) return;
        total += sum[node ^ 1];
        if (kind == SUMTREE_KIND_PRIORITY) {
            least = smaller(least, min[node ^ 1]);
            most = larger(most, max[node ^ 1]);
        }
    }
}

SUMTREE_INLINE void ascend_range(const sumtree_t *tree, sumtree_kind kind, int64_t start, int64_t count) {
    int64_t first = (tree->padded + start) >> 1;
    int64_t last = (tree->padded + start + count - 1) >> 1;
    for (bool of_leaves = true; first > 0; of_leaves = false, first >>= 1, last >>= 1) {
        const int width = parallel_width((last - first) / SWEPT_LIKE_ONE_LEAF);
        if (width == 1) {
            sweep(tree, kind, of_leaves, first, last);
            continue;
        }
        PARALLEL_LOOP(width)
        for (int64_t i = first; i <= last; ++i) recompute(tree, kind, of_leaves, i);
    }
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

/* What a leaf stores: adding 0.0 makes -0.0 a mass of 0.0; a min tree keeps every double. */
SUMTREE_INLINE double stored(sumtree_kind kind, double mass) { return kind == SUMTREE_KIND_MIN ? mass : mass + 0.0; }

void kernel_clear(sumtree_t *tree) {
    if (tree->min == NULL) return;
    const int64_t nodes = tree->kind == SUMTREE_KIND_MIN ? 2 * tree->padded : tree->padded;
    for (int64_t i = 0; i < nodes; ++i) tree->min[i] = __builtin_inf();
}

/* Written in the order of the batch, so the last of equal indices wins. */
SUMTREE_INLINE void write_leaves(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices,
                                 const double *masses, int64_t mass_step) {
    double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) leaf[indices[k]] = stored(kind, masses[k * mass_step]);
}

SUMTREE_INLINE void update_few(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices,
                               const double *masses, int64_t mass_step) {
    write_leaves(tree, kind, count, indices, masses, mass_step);
    for (int64_t k = 0; k < count; ++k) climb(tree, kind, indices[k]);
}

SUMTREE_INLINE int height_of(int64_t padded) {
    int height = 0;
    while (((int64_t)1 << height) < padded) ++height;
    return height;
}

/* One member's part of an update by a team: the leaves below the nodes first_root .. last_root, which are its alone, so
 * that no two members write one node. It notes where in the batch they are, then writes them in that order. `noted` is
 * shared: each member's places follow those of the members before it, with one more to spare for the last note, which
 * is written before it is known to be one. */
SUMTREE_INLINE void update_part(const sumtree_t *tree, sumtree_kind kind, int height, int64_t first_root,
                                int64_t last_root, int64_t count, const int64_t *indices, const double *masses,
                                int64_t mass_step, int64_t *noted) {
    double *leaf = leaves(tree);
    const int64_t first = (first_root << height) - tree->padded;
    const int64_t end = ((last_root + 1) << height) - tree->padded;
    int64_t before = 0, own = 0;
    for (int64_t k = 0; k < count; ++k) before += indices[k] < first;
    noted += before + parallel_member();
    for (int64_t k = 0; k < count; ++k) {
        noted[own] = k;
        own += (indices[k] >= first) & (indices[k] < end);
    }
    for (int64_t j = 0; j < own; ++j) {
        const int64_t k = noted[j];
        leaf[indices[k]] = stored(kind, masses[k * mass_step]);
        noted[j] = indices[k];
    }
    ascend(tree, kind, height, first_root, last_root, own, noted);
}

/* Subtrees for each member: enough for even parts. */
enum { SUBTREES = 8 };

SUMTREE_INLINE void update_by_team(const sumtree_t *tree, sumtree_kind kind, int width, int64_t count,
                                   const int64_t *indices, const double *masses, int64_t mass_step, int64_t *noted) {
    int height = height_of(tree->padded);
    while (height > 0 && tree->padded >> height < (int64_t)SUBTREES * width) --height;
    const int64_t roots = tree->padded >> height;
    PARALLEL_TEAM(width) {
        const int64_t member = parallel_member(), members = parallel_members();
        const int64_t first_root = roots + roots * member / members;
        const int64_t last_root = roots + roots * (member + 1) / members - 1;
        update_part(tree, kind, height, first_root, last_root, count, indices, masses, mass_step, noted);
    }
    sweep_top(tree, kind, roots >> 1);
}

SUMTREE_INLINE void update_many(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices,
                                const double *masses, int64_t mass_step) {
    const int width = parallel_width(count);
    int64_t *noted = width > 1 ? malloc((size_t)(count + width) * sizeof *noted) : NULL;
    if (noted != NULL) {
        update_by_team(tree, kind, width, count, indices, masses, mass_step, noted);
        free(noted);
        return;
    }
    write_leaves(tree, kind, count, indices, masses, mass_step);
    ascend(tree, kind, height_of(tree->padded), 1, 1, count, indices);
}

/* Apart from kernel_update, so that a short batch does not pay for the registers of a long one. */
SUMTREE_NOINLINE void update_levels(const sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                    int64_t mass_step) {
    switch (tree->kind) {
    case SUMTREE_KIND_SUM:
        update_many(tree, SUMTREE_KIND_SUM, count, indices, masses, mass_step);
        break;
    case SUMTREE_KIND_MIN:
        update_many(tree, SUMTREE_KIND_MIN, count, indices, masses, mass_step);
        break;
    case SUMTREE_KIND_PRIORITY:
        update_many(tree, SUMTREE_KIND_PRIORITY, count, indices, masses, mass_step);
        break;
    }
}

/* Up to this many leaves, climbs cost less than the bookkeeping of levels. */
static const int64_t FEW_LEAVES = 3;

void kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step) {
    if (count <= FEW_LEAVES && tree->kind == SUMTREE_KIND_SUM) {
        update_few(tree, SUMTREE_KIND_SUM, count, indices, masses, mass_step);
    } else if (count == 1 && tree->kind == SUMTREE_KIND_PRIORITY) {
        update_few(tree, SUMTREE_KIND_PRIORITY, count, indices, masses, mass_step);
    } else {
        update_levels(tree, count, indices, masses, mass_step);
    }
}

void kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses, int64_t mass_step) {
    double *leaf = leaves(tree) + start;
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

/* ---- checks: the first bad position of a batch, or -1; one branch-free pass, and a second only on failure ---------- */

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

/* The ways below look at left sums alone. As long as a descent enters no empty child it takes the rule's steps; once in
 * an empty child it can only end in a leaf of mass 0. So a leaf of positive mass is the rule's, and for the others the
 * rule itself is followed. */
SUMTREE_INLINE int64_t settle(const sumtree_t *tree, int64_t node, double target, sumtree_side side) {
    return tree->sum[node] == 0.0 ? descend_by_the_rule(tree, target, side) : node - tree->padded;
}

SUMTREE_INLINE bool goes_right(double left_sum, double rest, sumtree_side side) {
    return side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest;
}

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

/* x where keep, else 0.0. Masked by hand: compilers make a conditional subtraction a branch, which random descents
 * mispredict every other time. */
SUMTREE_INLINE double masked(double x, bool keep) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= -(uint64_t)keep;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

enum { TOGETHER = 256, ALONE = 6 };

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

SUMTREE_INLINE void find_part(const sumtree_t *tree, sumtree_side side, int64_t start, int64_t stop,
                              const double *targets, int64_t *indices) {
    for (int64_t k = start; k < stop; k += TOGETHER) {
        const int64_t length = stop - k < TOGETHER ? stop - k : TOGETHER;
        descend_together(tree, side, length, targets + k, indices + k);
    }
}

SUMTREE_INLINE void find(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                         int64_t *indices) {
    if (count < ALONE) {
        for (int64_t k = 0; k < count; ++k) indices[k] = descend_alone(tree, side, targets[k]);
        return;
    }
    const int width = parallel_width(count);
    if (width == 1) {
        find_part(tree, side, 0, count, targets, indices);
        return;
    }
    PARALLEL_TEAM(width) {
        const int64_t member = parallel_member(), members = parallel_members();
        find_part(tree, side, count * member / members, count * (member + 1) / members, targets, indices);
    }
}

void kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        find(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        find(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
    }
}

/* ---- weights ------------------------------------------------------------------------------------------------------ */

void kernel_weigh(const sumtree_t *tree, int64_t count, double smallest, double beta, const int64_t *indices,
                  double *masses, double *weights) {
    const double *leaf = leaves(tree);
    const int width = parallel_width(count);
    PARALLEL_LOOP(width)
    for (int64_t k = 0; k < count; ++k) {
        masses[k] = leaf[indices[k]];
        weights[k] = pow(smallest / masses[k], beta);
    }
}

/* ---- reductions over the nodes first .. last of the leaf level ----------------------------------------------------
 *
 * `head` and `tail` are the values of the ancestors of first and last in the tree whose leaves outside the range are
 * unset. Unset leaves add nothing, exactly, so only siblings that lie inside the range are combined, left first. */

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
