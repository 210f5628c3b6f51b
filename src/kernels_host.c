/* The kernels of trees in host memory: cpu, and multicore, where a team of threads does the longer batches.
 *
 * A node is written only from its two children (recompute), so the order in which the nodes of one level are written
 * does not matter, and a node is written by one member of a team alone. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "parallel.h"
#include "rules.h"

/* ---- planes ------------------------------------------------------------------------------------------------------ */

static void clear(double *plane, int64_t nodes) {
    for (int64_t i = 0; i < nodes; ++i) plane[i] = __builtin_inf();
}

sumtree_status kernel_take(sumtree_t *tree) {
    const int64_t padded = tree->padded;
    const bool summed = tree->kind != SUMTREE_KIND_MIN, all = tree->kind == SUMTREE_KIND_PRIORITY;
    const int64_t min_nodes = all ? padded : 2 * padded;
    if (summed) tree->sum = memory_take_zeroed(2 * padded);
    if (!summed || all) tree->min = memory_take_zeroed(min_nodes);
    if (all) tree->max = memory_take_zeroed(padded);
    if ((summed && tree->sum == NULL) || ((!summed || all) && tree->min == NULL) || (all && tree->max == NULL)) {
        kernel_release(tree);
        return SUMTREE_MEMORY;
    }
    if (tree->min != NULL) clear(tree->min, min_nodes);
    return SUMTREE_OK;
}

void kernel_release(sumtree_t *tree) {
    free(tree->sum);
    free(tree->min);
    free(tree->max);
}

uint64_t kernel_memory_available(int32_t device) {
    (void)device;
    return memory_to_spare();
}

/* ---- recompute --------------------------------------------------------------------------------------------------- */

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
 * is written before it is known to be one: for that, member m is given noted + m. */
SUMTREE_INLINE void update_part(const sumtree_t *tree, sumtree_kind kind, int height, int64_t first_root,
                                int64_t last_root, int64_t count, const int64_t *indices, const double *masses,
                                int64_t mass_step, int64_t *noted) {
    double *leaf = leaves(tree);
    const int64_t first = (first_root << height) - tree->padded;
    const int64_t end = ((last_root + 1) << height) - tree->padded;
    int64_t before = 0, own = 0;
    for (int64_t k = 0; k < count; ++k) before += indices[k] < first;
    noted += before;
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
    PARALLEL_MEMBERS(width)
    for (int64_t member = 0; member < width; ++member) {
        const int64_t first_root = roots + roots * member / width;
        const int64_t last_root = roots + roots * (member + 1) / width - 1;
        update_part(tree, kind, height, first_root, last_root, count, indices, masses, mass_step, noted + member);
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

sumtree_status kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                             int64_t mass_step) {
    if (count <= FEW_LEAVES && tree->kind == SUMTREE_KIND_SUM) {
        update_few(tree, SUMTREE_KIND_SUM, count, indices, masses, mass_step);
    } else if (count == 1 && tree->kind == SUMTREE_KIND_PRIORITY) {
        update_few(tree, SUMTREE_KIND_PRIORITY, count, indices, masses, mass_step);
    } else {
        update_levels(tree, count, indices, masses, mass_step);
    }
    return SUMTREE_OK;
}

sumtree_status kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                   int64_t mass_step) {
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
    return SUMTREE_OK;
}

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
    PARALLEL_MEMBERS(width)
    for (int64_t member = 0; member < width; ++member) {
        find_part(tree, side, count * member / width, count * (member + 1) / width, targets, indices);
    }
}

static void find_any(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        find(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        find(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
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
    find_any(tree, count, targets, side, indices);
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
    find_any(tree, count, targets, SUMTREE_SIDE_RIGHT, indices);
    weigh(tree, count, beta, indices, masses, weights);
    return SUMTREE_OK;
}

/* ---- reductions --------------------------------------------------------------------------------------------------- */

sumtree_status kernel_range_sum(const sumtree_t *tree, int64_t first, int64_t last, double *sum) {
    *sum = range_sum(tree, first, last);
    return SUMTREE_OK;
}

sumtree_status kernel_range_min(const sumtree_t *tree, int64_t first, int64_t last, double *min) {
    *min = range_min(tree, first, last);
    return SUMTREE_OK;
}

sumtree_status kernel_root(const sumtree_t *tree, sumtree_plane plane, double *value) {
    *value = node_value(tree, plane, 1);
    return SUMTREE_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

sumtree_status kernel_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses) {
    const double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) masses[k] = leaf[indices[k]];
    return SUMTREE_OK;
}

sumtree_status kernel_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses) {
    memcpy(masses, leaves(tree) + start, (size_t)count * sizeof(double));
    return SUMTREE_OK;
}

sumtree_status kernel_unsound_leaf(const sumtree_t *tree, int64_t *node) {
    for (*node = tree->padded; *node < 2 * tree->padded; ++*node) {
        if (!leaf_is_sound(tree, *node)) return SUMTREE_CORRUPT;
    }
    return SUMTREE_OK;
}

sumtree_status kernel_unsound_node(const sumtree_t *tree, sumtree_plane plane, int64_t *node) {
    for (*node = tree->padded - 1; *node > 0; --*node) {
        if (!node_is_sound(tree, plane, *node)) return SUMTREE_CORRUPT;
    }
    return SUMTREE_OK;
}

sumtree_status kernel_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    nodes[0] = 0.0;
    for (int64_t i = 1; i < 2 * tree->padded; ++i) nodes[i] = node_value(tree, plane, i);
    return SUMTREE_OK;
}

/* ---- devices: none ------------------------------------------------------------------------------------------------ */

int32_t kernel_device_count(void) { return 0; }
const char *kernel_device_problem(void) { return "the " BACKEND_NAME " backend keeps its trees in host memory"; }
const char *kernel_device_name(int32_t device) { return device < 0 ? "host" : ""; }

sumtree_status kernel_device_allocate(int32_t device, uint64_t bytes, void **memory) {
    (void)device, (void)bytes, (void)memory;
    return SUMTREE_DEVICE;
}

void kernel_device_release(int32_t device, void *memory) { (void)device, (void)memory; }

sumtree_status kernel_device_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                    int64_t mass_step, int64_t *position) {
    (void)tree, (void)count, (void)indices, (void)masses, (void)mass_step, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                 int64_t *position) {
    (void)tree, (void)count, (void)indices, (void)masses, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                  int64_t *indices, int64_t *position) {
    (void)tree, (void)count, (void)targets, (void)side, (void)indices, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                    bool stratified, int64_t *indices, double *masses, double *weights) {
    (void)tree, (void)rng, (void)count, (void)beta, (void)stratified, (void)indices, (void)masses, (void)weights;
    return SUMTREE_DEVICE;
}
