/* Updates of trees in host memory.
 *
 * Leaves are written, then their ancestors are recomputed: by climbing from each leaf up to the level where climbs would
 * meet most nodes anyway, and from there by sweeping whole levels. Every node is a function of its children alone, so
 * all ways give the same bits, and a node that is made more than once is last made when both its children are final. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "parallel.h"
#include "rules.h"

static int height_of(const sumtree_t *tree) { return __builtin_ctzll((uint64_t)tree->padded); }

static int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

/* ---- sweeps ------------------------------------------------------------------------------------------------------ */

/* Recomputes nodes first .. end-1 of a level: none is a child of another. */
SUMTREE_INLINE void sweep(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int64_t first, int64_t end) {
    VECTOR_LOOP
    for (int64_t i = first; i < end; ++i) recompute(tree, kind, of_leaves, i);
}

/* Recomputes what lies at or below the nodes first .. end-1 of the level `high` above the leaves, from the level `low`
 * on. */
SUMTREE_INLINE void sweep_levels(const sumtree_t *tree, sumtree_kind kind, int low, int high, int64_t first,
                                 int64_t end) {
    for (int level = low; level <= high; ++level) {
        sweep(tree, kind, level == 1, first << (high - level), end << (high - level));
    }
}

/* The same, one subtree after another, of so many levels that each level finds the one below it in a near cache. */
SUMTREE_INLINE void sweep_below(const sumtree_t *tree, sumtree_kind kind, int low, int high, int64_t first,
                                int64_t end) {
    enum { LEVELS = 10 };
    const int middle = high - low < LEVELS ? high : low + LEVELS - 1;
    for (int64_t root = first << (high - middle); root < end << (high - middle); ++root) {
        sweep_levels(tree, kind, low, middle, root, root + 1);
    }
    sweep_levels(tree, kind, middle + 1, high, first, end);
}

/* Recomputes the level `low` and all above it. */
SUMTREE_NOINLINE void sweep_top(const sumtree_t *tree, int low) {
    switch (tree->kind) {
    case SUMTREE_KIND_SUM:
        sweep_below(tree, SUMTREE_KIND_SUM, low, height_of(tree), 1, 2);
        break;
    case SUMTREE_KIND_MIN:
        sweep_below(tree, SUMTREE_KIND_MIN, low, height_of(tree), 1, 2);
        break;
    case SUMTREE_KIND_PRIORITY:
        sweep_below(tree, SUMTREE_KIND_PRIORITY, low, height_of(tree), 1, 2);
        break;
    }
}

/* ---- climbs ------------------------------------------------------------------------------------------------------ */

/* Leaves that climb side by side: of each, the node that was made last, and what it holds. */
enum { MOST_LANES = 8 };
typedef struct climbers {
    int64_t node[MOST_LANES];
    double total[MOST_LANES], least[MOST_LANES], most[MOST_LANES];
} climbers;

/* So many that what they hold fits into registers. */
SUMTREE_INLINE int lanes_of(sumtree_kind kind) { return kind == SUMTREE_KIND_PRIORITY ? 4 : MOST_LANES; }

/* Makes the parents. A child that was just made is in a register, and only its sibling is read: adding does not mind
 * which comes first, nor do min and max where no -0.0 meets 0.0; of a min tree both children are read. All lanes make a
 * level before any makes the next, so where two lanes meet, both make the same node of both its children. */
SUMTREE_INLINE void rise(const sumtree_t *tree, sumtree_kind kind, bool from_leaves, int lanes, climbers *lane) {
    double *sum = tree->sum, *min = tree->min, *max = tree->max;
    UNROLLED_LOOP
    for (int j = 0; j < lanes; ++j) {
        const int64_t beside = lane->node[j] ^ 1, i = lane->node[j] >> 1;
        lane->node[j] = i;
        if (kind == SUMTREE_KIND_MIN) {
            min[i] = smaller(min[2 * i], min[2 * i + 1]);
            continue;
        }
        sum[i] = lane->total[j] += sum[beside];
        if (kind == SUMTREE_KIND_SUM) continue;
        min[i] = lane->least[j] = smaller(lane->least[j], from_leaves ? positive_or_inf(sum[beside]) : min[beside]);
        max[i] = lane->most[j] = larger(lane->most[j], from_leaves ? sum[beside] : max[beside]);
    }
}

/* Recomputes the ancestors of `lanes` leaves up to the level `height` > 0. */
SUMTREE_INLINE void climb(const sumtree_t *tree, sumtree_kind kind, int lanes, int height, const int64_t *indices) {
    const double *leaf = leaves(tree);
    climbers lane;
    UNROLLED_LOOP
    for (int j = 0; j < lanes; ++j) {
        lane.node[j] = tree->padded + indices[j];
        lane.total[j] = lane.most[j] = leaf[indices[j]];
        lane.least[j] = positive_or_inf(lane.total[j]);
    }
    rise(tree, kind, true, lanes, &lane);
    for (int level = 2; level <= height; ++level) rise(tree, kind, false, lanes, &lane);
}

/* The same for one leaf, any height, and in fewer instructions, so that the processor begins the next climb while this
 * one waits for memory. */
SUMTREE_INLINE void climb_alone(const sumtree_t *tree, sumtree_kind kind, int height, int64_t index) {
    double *sum = tree->sum, *min = tree->min, *max = tree->max;
    int64_t node = tree->padded + index;
    const int64_t top = node >> height;
    if (kind == SUMTREE_KIND_MIN) {
        while (node != top) {
            node >>= 1;
            min[node] = smaller(min[2 * node], min[2 * node + 1]);
        }
        return;
    }
    if (node == top) return;
    const double mass = sum[node], beside = sum[node ^ 1];
    double total = mass + beside, most = larger(mass, beside);
    double least = smaller(positive_or_inf(mass), positive_or_inf(beside));
    for (;;) {
        node >>= 1;
        sum[node] = total;
        if (kind == SUMTREE_KIND_PRIORITY) min[node] = least;
        if (kind == SUMTREE_KIND_PRIORITY) max[node] = most;
        if (node == top) return;
        total += sum[node ^ 1];
        if (kind == SUMTREE_KIND_PRIORITY) least = smaller(least, min[node ^ 1]);
        if (kind == SUMTREE_KIND_PRIORITY) most = larger(most, max[node ^ 1]);
    }
}

/* Any count, any height. */
SUMTREE_INLINE void climb_all(const sumtree_t *tree, sumtree_kind kind, int height, int64_t count,
                              const int64_t *indices) {
    const int64_t *end = height > 0 ? indices + count : indices;
    const int lanes = lanes_of(kind);
    for (; end - indices >= lanes; indices += lanes) climb(tree, kind, lanes, height, indices);
    if (lanes > 4 && end - indices >= 4) {
        climb(tree, kind, 4, height, indices);
        indices += 4;
    }
    for (; indices < end; ++indices) climb_alone(tree, kind, height, *indices);
}

/* ---- leaves with their ancestors ----------------------------------------------------------------------------------- */

/* How many levels, from the leaves up, are too large to be in the nearest cache. */
static int far_levels(const sumtree_t *tree) {
    enum { NEAR_LEVELS = 12 };
    const int height = height_of(tree);
    return height > NEAR_LEVELS ? height - NEAR_LEVELS : 0;
}

/* Has the lines fetched that climbs from these leaves will read and write, in so many levels. */
SUMTREE_INLINE void fetch(const sumtree_t *tree, sumtree_kind kind, int levels, int64_t count, const int64_t *indices) {
    for (int64_t k = 0; k < count; ++k) {
        int64_t node = tree->padded + indices[k];
        __builtin_prefetch(leaves(tree) + indices[k], 1);
        for (int level = 1; level < levels; ++level) {
            node >>= 1;
            if (kind != SUMTREE_KIND_MIN) __builtin_prefetch(tree->sum + node, 1);
            if (kind != SUMTREE_KIND_SUM) __builtin_prefetch(tree->min + node, 1);
            if (kind == SUMTREE_KIND_PRIORITY) __builtin_prefetch(tree->max + node, 1);
        }
    }
}

/* In the order of the batch, so the last of equal indices wins. */
SUMTREE_INLINE void write_leaves(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices,
                                 const double *masses, int64_t mass_step) {
    double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) leaf[indices[k]] = stored(kind, masses[k * mass_step]);
}

/* Updates leaves and their ancestors up to the level `height`: while some climb, the lines of the next are fetched. */
SUMTREE_INLINE void update_by_climbing(const sumtree_t *tree, sumtree_kind kind, int height, int64_t count,
                                       const int64_t *indices, const double *masses, int64_t mass_step) {
    enum { TOGETHER = 16 };
    const int levels = far_levels(tree) < height ? far_levels(tree) : height;
    int64_t now = at_most(count, TOGETHER);
    fetch(tree, kind, levels, now, indices);
    while (count > 0) {
        const int64_t next = at_most(count - now, TOGETHER);
        fetch(tree, kind, levels, next, indices + now);
        write_leaves(tree, kind, now, indices, masses, mass_step);
        climb_all(tree, kind, height, now, indices);
        indices += now;
        masses += now * mass_step;
        count -= now;
        now = next;
    }
}

/* How many nodes of a sweep, which reads memory in order, take as long as one node of a climb. */
static int64_t swept_like_one(const sumtree_t *tree, int level) {
    enum { NEAR = 2, FAR = 6, L2_LEVELS = 3 };
    return level + L2_LEVELS < far_levels(tree) ? FAR : NEAR;
}

/* Updates leaves that all lie at or below the nodes first .. end-1 of the level `height`, and their ancestors up to
 * there. */
SUMTREE_INLINE void update_kind_below(const sumtree_t *tree, sumtree_kind kind, int height, int64_t first, int64_t end,
                                      int64_t count, const int64_t *indices, const double *masses, int64_t mass_step) {
    int climbed = height;
    while (climbed > 0 && (end - first) << (height - climbed) <= swept_like_one(tree, climbed) * count) --climbed;
    if (climbed > 0) {
        update_by_climbing(tree, kind, climbed, count, indices, masses, mass_step);
    } else {
        write_leaves(tree, kind, count, indices, masses, mass_step);
    }
    sweep_below(tree, kind, climbed + 1, height, first, end);
}

SUMTREE_NOINLINE void update_below(const sumtree_t *tree, int height, int64_t first, int64_t end, int64_t count,
                                   const int64_t *indices, const double *masses, int64_t mass_step) {
    switch (tree->kind) {
    case SUMTREE_KIND_SUM:
        update_kind_below(tree, SUMTREE_KIND_SUM, height, first, end, count, indices, masses, mass_step);
        break;
    case SUMTREE_KIND_MIN:
        update_kind_below(tree, SUMTREE_KIND_MIN, height, first, end, count, indices, masses, mass_step);
        break;
    case SUMTREE_KIND_PRIORITY:
        update_kind_below(tree, SUMTREE_KIND_PRIORITY, height, first, end, count, indices, masses, mass_step);
        break;
    }
}

/* ---- teams ------------------------------------------------------------------------------------------------------- */

/* The leaves are divided into subtrees of equal height, of which each member of a team takes some, next to each other and
 * with about as many elements of the batch as the others', so that no two members write one node. */
enum { SUBTREES_PER_MEMBER = 32, MOST_SUBTREES = 2048 };

typedef struct division {
    int height;                        /* of the subtrees */
    int64_t subtrees;                  /* their number, a power of two */
    int64_t before[MOST_SUBTREES + 1]; /* [s]: how many elements of the batch belong to subtrees before s */
} division;

static void divide(const sumtree_t *tree, int width, int64_t count, const int64_t *indices, division *parts) {
    const int64_t wanted = at_most((int64_t)SUBTREES_PER_MEMBER * width, MOST_SUBTREES);
    parts->height = height_of(tree);
    while (parts->height > 0 && tree->padded >> parts->height < wanted) --parts->height;
    parts->subtrees = tree->padded >> parts->height;
    memset(parts->before, 0, sizeof parts->before);
    for (int64_t k = 0; k < count; ++k) ++parts->before[(indices[k] >> parts->height) + 1];
    for (int64_t s = 0; s < parts->subtrees; ++s) parts->before[s + 1] += parts->before[s];
}

/* The first subtree of a member's; of member `width`, the end. */
static int64_t first_subtree(const division *parts, int64_t count, int64_t member, int64_t width) {
    const int64_t share = count / width * member;
    int64_t subtree = 0;
    while (subtree < parts->subtrees && (member == width || parts->before[subtree] < share)) ++subtree;
    return subtree;
}

/* One member's part. Its elements are gathered, in the order of the batch, into `own` arrays that hold one more. */
static void update_part(const sumtree_t *tree, const division *parts, int64_t first, int64_t end, int64_t count,
                        const int64_t *indices, const double *masses, int64_t mass_step, int64_t *own_indices,
                        double *own_masses) {
    const uint64_t first_leaf = (uint64_t)first << parts->height, own_leaves = (uint64_t)(end - first) << parts->height;
    int64_t own = 0;
    for (int64_t k = 0; k < count; ++k) {
        own_indices[own] = indices[k];
        own_masses[own] = masses[k * mass_step];
        own += (uint64_t)indices[k] - first_leaf < own_leaves;
    }
    update_below(tree, parts->height, parts->subtrees + first, parts->subtrees + end, own, own_indices, own_masses, 1);
}

/* Room for the elements of all members, with one to spare for each. */
static size_t team_bytes(int64_t count, int width) {
    return (size_t)(count + width) * (sizeof(int64_t) + sizeof(double));
}

static void update_by_team(const sumtree_t *tree, int width, int64_t count, const int64_t *indices,
                           const double *masses, int64_t mass_step, void *room) {
    int64_t *all_indices = room;
    double *all_masses = (double *)(all_indices + count + width);
    division parts;
    divide(tree, width, count, indices, &parts);
    PARALLEL_MEMBERS(width)
    for (int64_t member = 0; member < width; ++member) {
        const int64_t first = first_subtree(&parts, count, member, width),
                      end = first_subtree(&parts, count, member + 1, width);
        const int64_t place = parts.before[first] + member;
        update_part(tree, &parts, first, end, count, indices, masses, mass_step, all_indices + place,
                    all_masses + place);
    }
    sweep_top(tree, parts.height + 1);
}

/* ---- the kernels ---------------------------------------------------------------------------------------------------*/

static void update_many(const sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                        int64_t mass_step) {
    const int width = parallel_width(count);
    void *room = width > 1 ? malloc(team_bytes(count, width)) : NULL;
    if (room != NULL) {
        update_by_team(tree, width, count, indices, masses, mass_step, room);
        free(room);
    } else {
        update_below(tree, height_of(tree), 1, 2, count, indices, masses, mass_step);
    }
}

/* As many as climb side by side, without the bookkeeping of more. */
SUMTREE_NOINLINE void update_few(const sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                 int64_t mass_step) {
    fetch(tree, SUMTREE_KIND_SUM, far_levels(tree), count, indices);
    write_leaves(tree, SUMTREE_KIND_SUM, count, indices, masses, mass_step);
    climb_all(tree, SUMTREE_KIND_SUM, height_of(tree), count, indices);
}

SUMTREE_INLINE void update_alone(const sumtree_t *tree, sumtree_kind kind, int64_t count, const int64_t *indices,
                                 const double *masses, int64_t mass_step) {
    for (int64_t k = 0; k < count; ++k) {
        write_leaves(tree, kind, 1, indices + k, masses + k * mass_step, mass_step);
        climb_alone(tree, kind, height_of(tree), indices[k]);
    }
}

/* Up to so many leaves, one climb after another costs least. */
enum { SUMS_ALONE = 3, PRIORITIES_ALONE = 1 };

sumtree_status kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                             int64_t mass_step) {
    if (tree->kind == SUMTREE_KIND_SUM && count <= SUMS_ALONE) {
        update_alone(tree, SUMTREE_KIND_SUM, count, indices, masses, mass_step);
    } else if (tree->kind == SUMTREE_KIND_PRIORITY && count <= PRIORITIES_ALONE) {
        update_alone(tree, SUMTREE_KIND_PRIORITY, count, indices, masses, mass_step);
    } else if (tree->kind == SUMTREE_KIND_SUM && count <= MOST_LANES) {
        update_few(tree, count, indices, masses, mass_step);
    } else {
        update_many(tree, count, indices, masses, mass_step);
    }
    return SUMTREE_OK;
}

SUMTREE_INLINE void ascend_range(const sumtree_t *tree, sumtree_kind kind, int64_t start, int64_t count) {
    enum { NODES_LIKE_ONE_LEAF = 8 };
    int64_t first = (tree->padded + start) >> 1;
    int64_t last = (tree->padded + start + count - 1) >> 1;
    for (bool of_leaves = true; first > 0; of_leaves = false, first >>= 1, last >>= 1) {
        const int64_t nodes = last + 1 - first;
        const int width = parallel_width(nodes / NODES_LIKE_ONE_LEAF);
        if (width == 1) {
            sweep(tree, kind, of_leaves, first, last + 1);
            continue;
        }
        PARALLEL_MEMBERS(width)
        for (int64_t member = 0; member < width; ++member) {
            sweep(tree, kind, of_leaves, first + nodes * member / width, first + nodes * (member + 1) / width);
        }
    }
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
