/* The kernels of trees in device memory, and every OpenACC directive of the product.
 *
 * No two gangs of a kernel write one node, and none reads what another writes, but through atomics. Within a gang a node
 * may be recomputed by several lanes, each from the same children, which no lane writes in the same loop.
 *
 * Values that are declared inside a gang's loop are the gang's own, shared by its lanes. */
#include <openacc.h>

#include "device.h"
#include "philox.h"
#include "rules.h"

#if BACKEND_DECLARES_BLOCK
static device_block declared;
#pragma acc declare create(declared)
#define BLOCK_OF(there) (&declared)
device_block *launch_block(void) { return acc_deviceptr(&declared); }
#else
#define BLOCK_OF(there) (there)
device_block *launch_block(void) { return NULL; }
#endif

enum { LANES = 256, FEW_LANES = 64, MANY_LANES = 512, GANGS_MOST = 1 << 20 };

static int gangs_for(int64_t work, int64_t each) {
    const int64_t gangs = (work + each - 1) / each;
    return gangs < 1 ? 1 : (int)(gangs < GANGS_MOST ? gangs : GANGS_MOST);
}

/* ---- first and last places: OpenACC C has no atomic minimum, but an exchange ends in one whatever the order ------ */

PARALLEL_ROUTINE SUMTREE_INLINE void keep_last(int32_t *cell, int32_t place) {
    for (;;) {
        int32_t held;
        PARALLEL_PRAGMA(acc atomic capture) {
            held = *cell;
            *cell = place;
        }
        if (held <= place) return;
        place = held;
    }
}

PARALLEL_ROUTINE SUMTREE_INLINE void keep_first(int64_t *cell, int64_t place) {
    for (;;) {
        int64_t held;
        PARALLEL_PRAGMA(acc atomic capture) {
            held = *cell;
            *cell = place;
        }
        if (held >= place) return;
        place = held;
    }
}

/* ---- elements ----------------------------------------------------------------------------------------------------- */

PARALLEL_ROUTINE SUMTREE_INLINE bool is_leaf_of(const sumtree_t *tree, int64_t index) {
    return (uint64_t)index < (uint64_t)tree->capacity;
}

PARALLEL_ROUTINE SUMTREE_INLINE bool may_store(const sumtree_t *tree, double value) {
    return tree->kind == SUMTREE_KIND_MIN ? !isnan(value) : is_mass(value);
}

PARALLEL_ROUTINE SUMTREE_INLINE void report_roots(const device_call *call) {
    for (int plane = 0; plane < PLANE_COUNT; ++plane) {
        const bool own = plane == SUMTREE_PLANE_SUM
                             ? call->tree.sum != NULL
                             : (plane == SUMTREE_PLANE_MIN ? call->tree.min : call->tree.max) != NULL;
        if (own) call->reply->roots[plane] = node_value(&call->tree, (sumtree_plane)plane, 1);
    }
}

/* ---- three levels at once ----------------------------------------------------------------------------------------- */

typedef struct eight {
    double a, b, c, d, e, f, g, h;
} eight;

PARALLEL_ROUTINE SUMTREE_INLINE eight eight_at(const double *nodes) {
    const eight v = {nodes[0], nodes[1], nodes[2], nodes[3], nodes[4], nodes[5], nodes[6], nodes[7]};
    return v;
}

/* Leaves as the min plane of a priority tree sees them. */
PARALLEL_ROUTINE SUMTREE_INLINE eight positives(eight v) {
    const eight p = {positive_or_inf(v.a), positive_or_inf(v.b), positive_or_inf(v.c), positive_or_inf(v.d),
                     positive_or_inf(v.e), positive_or_inf(v.f), positive_or_inf(v.g), positive_or_inf(v.h)};
    return p;
}

/* Node p and the six nodes between it and its eight descendants three levels down, whose values are v. */
PARALLEL_ROUTINE SUMTREE_INLINE void raise_plane(double *nodes, sumtree_plane plane, int64_t p, eight v) {
    const double a = combined(plane, v.a, v.b), b = combined(plane, v.c, v.d);
    const double c = combined(plane, v.e, v.f), d = combined(plane, v.g, v.h);
    const double left = combined(plane, a, b), right = combined(plane, c, d);
    nodes[4 * p] = a;
    nodes[4 * p + 1] = b;
    nodes[4 * p + 2] = c;
    nodes[4 * p + 3] = d;
    nodes[2 * p] = left;
    nodes[2 * p + 1] = right;
    nodes[p] = combined(plane, left, right);
}

/* What recompute does to node p, after it did so to the six nodes below it; of_leaves: its eight descendants three levels
 * down are leaves. */
PARALLEL_ROUTINE SUMTREE_INLINE void raise(const sumtree_t *tree, bool of_leaves, int64_t p) {
    const sumtree_kind kind = tree->kind;
    if (kind == SUMTREE_KIND_MIN) {
        raise_plane(tree->min, SUMTREE_PLANE_MIN, p, eight_at(tree->min + 8 * p));
        return;
    }
    const eight sums = eight_at(tree->sum + 8 * p);
    if (kind == SUMTREE_KIND_PRIORITY) {
        const eight mins = of_leaves ? positives(sums) : eight_at(tree->min + 8 * p);
        const eight maxs = of_leaves ? sums : eight_at(tree->max + 8 * p);
        raise_plane(tree->min, SUMTREE_PLANE_MIN, p, mins);
        raise_plane(tree->max, SUMTREE_PLANE_MAX, p, maxs);
    }
    raise_plane(tree->sum, SUMTREE_PLANE_SUM, p, sums);
}

/* ---- opening and making ------------------------------------------------------------------------------------------- */

/* Proves that kernels run on the device: `declared` is written there, and nowhere else. */
void launch_probe(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, 32) {
        device_call *const call = &BLOCK_OF(there)->call;
        call->on_device = acc_on_device(acc_device_not_host) ? 1 : 0;
    }
}

/* masses[0 .. count-1] = +inf. */
void launch_fill(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1024, LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t i = 0; i < call->count; ++i) call->masses[i] = __builtin_inf();
    }
}

/* ---- short updates: each owner keeps the elements of its own subtree ---------------------------------------------- */

PARALLEL_ROUTINE SUMTREE_INLINE uint64_t outcome_of(const device_call *call, int64_t bad_index, int64_t bad_value) {
    const uint64_t ticket = call->ticket << 32;
    if (bad_index != NOWHERE) return ticket | (uint64_t)SUMTREE_INDEX << 16 | (uint64_t)bad_index;
    if (bad_value == NOWHERE) return ticket;
    const uint64_t status = call->tree.kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS;
    return ticket | status << 16 | (uint64_t)bad_value;
}

/* Every owner checks the whole batch, so each knows by itself whether it is to be done. */
void launch_owners(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(OWNERS, LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t count = call->count, step = call->step, padded = tree->padded;
        const int64_t *const indices = call->indices;
        const double *const values = call->values;
        int32_t *const tags = call->tags;
        double *const leaf = leaves(tree);
        const int32_t climb = call->height - OWNER_DEPTH;
        const int32_t singles = climb % 3, steps = singles + climb / 3;
        PARALLEL_PRAGMA(acc loop gang)
        for (int32_t owner = 0; owner < OWNERS; ++owner) {
            int32_t *const places = call->places + (int64_t)owner * SHORT;
            int64_t *const owned = call->owned + (int64_t)owner * SHORT;
            double *const given = call->given + (int64_t)owner * SHORT;
            int32_t own;
            int64_t bad_index, bad_value;
            own = 0;
            bad_index = NOWHERE;
            bad_value = NOWHERE;
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t k = 0; k < count; ++k) {
                const int64_t index = indices[k];
                const double value = values[k * step];
                if (!is_leaf_of(tree, index)) {
                    keep_first(&bad_index, k);
                } else if (!may_store(tree, value)) {
                    keep_first(&bad_value, k);
                } else if (index >> climb == owner) {
                    int32_t place;
                    keep_last(tags + index, (int32_t)k);
                    PARALLEL_PRAGMA(acc atomic capture) {
                        place = own;
                        own = own + 1;
                    }
                    places[place] = (int32_t)k;
                    owned[place] = index;
                    given[place] = stored(tree->kind, value);
                }
            }
            int32_t before;
            PARALLEL_PRAGMA(acc atomic capture) {
                before = call->arrived;
                call->arrived = call->arrived + 1;
            }
            if (before == OWNERS - 1) call->reply->outcome = outcome_of(call, bad_index, bad_value);
            const bool good = bad_index == NOWHERE && bad_value == NOWHERE;
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t j = 0; j < own; ++j) {
                if (good && tags[owned[j]] == places[j]) leaf[owned[j]] = given[j];
            }
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t j = 0; j < own; ++j) tags[owned[j]] = -1;
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t s = 0; s < steps; ++s) {
                const int32_t below = s < singles ? s : singles + 3 * (s - singles);
                PARALLEL_PRAGMA(acc loop vector)
                for (int32_t j = 0; j < own; ++j) {
                    const int64_t node = padded + owned[j];
                    if (s < singles) {
                        recompute(tree, tree->kind, below == 0, node >> (below + 1));
                    } else {
                        raise(tree, below == 0, node >> (below + 3));
                    }
                }
            }
        }
    }
}

/* The levels above the owners' subtrees, and the roots. */
void launch_crown(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, 32) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int32_t due = call->crown_due;
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t depth = due ? 3 : -1; depth >= 0; depth -= 3) {
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t i = 0; i < 1 << depth; ++i) raise(tree, false, (1 << depth) + i);
        }
        report_roots(call);
    }
}

/* ---- long updates: tags, then passes over all leaves -------------------------------------------------------------- */

/* Checks a batch and, unless tags is NULL, tags the leaves that it names. */
void launch_tags(device_block *there, int64_t count) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(count, 128), 128) {
        device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t k = 0; k < call->count; ++k) {
            const int64_t index = call->indices[k];
            if (!is_leaf_of(tree, index)) {
                keep_first(&call->bad_index, call->offset + k);
                call->reply->faulty = 1;
            } else {
                if (!may_store(tree, call->values[k * call->step])) {
                    keep_first(&call->bad_value, call->offset + k);
                    call->reply->faulty = 1;
                }
                if (call->tags != NULL) keep_last(call->tags + index, (int32_t)k);
            }
        }
    }
}

PARALLEL_ROUTINE SUMTREE_INLINE bool is_good(const device_call *call) {
    return call->bad_index == NOWHERE && call->bad_value == NOWHERE;
}

/* Leaf `index` of a long update: what its tag says, or its place in a range. */
PARALLEL_ROUTINE SUMTREE_INLINE void write_leaf(const device_call *call, bool good, int64_t index) {
    double *const leaf = leaves(&call->tree);
    int64_t place;
    if (call->indices == NULL) {
        place = index - call->start;
    } else {
        place = call->tags[index];
        if (place >= 0) call->tags[index] = -1;
    }
    if (good && place >= 0 && place < call->count) {
        leaf[index] = stored(call->tree.kind, call->values[place * call->step]);
    }
}

/* A whole tree of less than CROWNED leaves. */
void launch_small(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, MANY_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t padded = tree->padded;
        const int32_t height = call->height;
        const bool good = is_good(call);
        PARALLEL_PRAGMA(acc loop vector)
        for (int64_t index = 0; index < padded; ++index) write_leaf(call, good, index);
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t level = 1; level <= height; ++level) {
            const int64_t width = padded >> level;
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < width; ++i) recompute(tree, tree->kind, level == 1, width + i);
        }
        report_roots(call);
    }
}

/* Blocks of PASS leaves, and the PASS_LEVELS levels above them. */
void launch_leaf_pass(device_block *there, int64_t blocks) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(blocks, 1), FEW_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t padded = tree->padded, first = call->first_block, end = first + call->blocks;
        const bool good = is_good(call);
        PARALLEL_PRAGMA(acc loop gang)
        for (int64_t block = first; block < end; ++block) {
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < PASS; ++i) write_leaf(call, good, block * PASS + i);
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t level = 3; level <= PASS_LEVELS; level += 3) {
                const int64_t width = PASS >> level;
                PARALLEL_PRAGMA(acc loop vector)
                for (int64_t i = 0; i < width; ++i) raise(tree, level == 3, (padded >> level) + block * width + i);
            }
        }
    }
}

/* The same from nodes: blocks of PASS nodes of the level width .. 2 width - 1. */
void launch_node_pass(device_block *there, int64_t blocks) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(blocks, 1), FEW_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t first = call->first_block, end = first + call->blocks;
        PARALLEL_PRAGMA(acc loop gang)
        for (int64_t block = first; block < end; ++block) {
            PARALLEL_PRAGMA(acc loop seq)
            for (int32_t level = 3; level <= PASS_LEVELS; level += 3) {
                const int64_t width = PASS >> level;
                PARALLEL_PRAGMA(acc loop vector)
                for (int64_t i = 0; i < width; ++i) {
                    raise(tree, false, (call->width >> level) + block * width + i);
                }
            }
        }
    }
}

/* All levels above width .. 2 width - 1, and the roots. */
void launch_rest(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, MANY_LANES) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t top = call->width;
        const int32_t threes = call->levels / 3, steps = threes + call->levels % 3;
        PARALLEL_PRAGMA(acc loop seq)
        for (int32_t s = 0; s < steps; ++s) {
            const int64_t width = s < threes ? top >> (3 * s + 3) : top >> (2 * threes + s + 1);
            PARALLEL_PRAGMA(acc loop vector)
            for (int64_t i = 0; i < width; ++i) {
                if (s < threes) {
                    raise(tree, false, width + i);
                } else {
                    recompute(tree, tree->kind, false, width + i);
                }
            }
        }
        report_roots(call);
    }
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* The next three steps of a descent, all of whose nodes are looked at ahead; the same subtractions as step by step. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t three_steps(const double *sum, int64_t node, double *rest, sumtree_side side) {
    const double a = sum[2 * node], b0 = sum[4 * node], b1 = sum[4 * node + 2];
    const double c0 = sum[8 * node], c1 = sum[8 * node + 2], c2 = sum[8 * node + 4], c3 = sum[8 * node + 6];
    const double at_left = *rest, at_right = at_left - a;
    const bool right = goes_right(a, at_left, side);
    const double b = right ? b1 : b0, at_b = right ? at_right : at_left;
    const bool right_b = goes_right(b, at_b, side);
    const double below_left = right_b ? c1 : c0, below_right = right_b ? c3 : c2;
    const double c = right ? below_right : below_left, at_c = right_b ? at_b - b : at_b;
    const bool right_c = goes_right(c, at_c, side);
    *rest = right_c ? at_c - c : at_c;
    return 8 * node + 4 * right + 2 * right_b + right_c;
}

/* A node's sum, where the nodes above CROWN are read from the gang's own copy. */
enum { CROWN = 2 * OWNERS };

PARALLEL_ROUTINE SUMTREE_INLINE double sum_of(const sumtree_t *tree, const double *crown, int64_t node) {
    return node < CROWN && crown != NULL ? crown[node] : tree->sum[node];
}

PARALLEL_ROUTINE SUMTREE_INLINE int64_t draw_by_the_rule(const sumtree_t *tree, const double *crown, double target,
                                                         sumtree_side side) {
    int64_t node = 1;
    while (node < tree->padded) {
        const double l = sum_of(tree, crown, 2 * node), r = sum_of(tree, crown, 2 * node + 1);
        const bool left = rule_goes_left(l, r, target, side);
        target -= left ? 0.0 : l;
        node = 2 * node + (left ? 0 : 1);
    }
    return node - tree->padded;
}

/* The leaf that the descent for a target ends in; crown is NULL in a tree that has none. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t draw(const sumtree_t *tree, const double *crown, double target,
                                             sumtree_side side) {
    const double *const sum = tree->sum;
    const int64_t padded = tree->padded;
    double rest = target;
    int64_t node = 1;
    if (crown != NULL) node = three_steps(crown, three_steps(crown, 1, &rest, side), &rest, side);
    while (8 * node <= padded) node = three_steps(sum, node, &rest, side);
    while (node < padded) {
        const double left_sum = sum[2 * node];
        const bool right = goes_right(left_sum, rest, side);
        rest -= right ? left_sum : 0.0;
        node = 2 * node + right;
    }
    return sum[node] == 0.0 ? draw_by_the_rule(tree, crown, target, side) : node - padded;
}

typedef struct aim {
    double total;
    double below;
    double smallest;
} aim;

PARALLEL_ROUTINE SUMTREE_INLINE void draw_one(device_call *call, const double *crown, aim at, int64_t k) {
    const sumtree_t *const tree = &call->tree;
    double target;
    if (call->sampling) {
        const int64_t place = call->offset + k;
        target = aimed(philox_double_at(&call->rng, place), place, call->batch, at.total, at.below, call->stratified);
    } else {
        target = call->values[k];
        if (!(target >= 0.0 && target <= at.total)) {
            keep_first(&call->bad_value, call->offset + k);
            call->reply->faulty = 1;
            return;
        }
    }
    const int64_t index = call->side == SUMTREE_SIDE_RIGHT ? draw(tree, crown, target, SUMTREE_SIDE_RIGHT)
                                                           : draw(tree, crown, target, SUMTREE_SIDE_LEFT);
    call->found[k] = index;
    if (call->sampling) {
        const double mass = tree->sum[tree->padded + index];
        call->masses[k] = mass;
        call->weights[k] = weight_of(at.smallest, mass, call->beta);
    }
}

/* The crown is recomputed first where it is due: by every gang for itself, and into the tree by the first. */
void launch_draws(device_block *there, int64_t count) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(count, FEW_LANES), FEW_LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const sumtree_t *const tree = &call->tree;
        const int64_t gangs = (call->count + FEW_LANES - 1) / FEW_LANES;
        const bool crowned = tree->padded >= CROWNED, due = call->crown_due;
        PARALLEL_PRAGMA(acc loop gang)
        for (int64_t gang = 0; gang < gangs; ++gang) {
            double sums[CROWN], mins[OWNERS], maxs[OWNERS];
            if (crowned) {
                PARALLEL_PRAGMA(acc loop vector)
                for (int32_t i = due ? OWNERS : 1; i < CROWN; ++i) sums[i] = tree->sum[i];
            }
            if (due) {
                PARALLEL_PRAGMA(acc loop vector)
                for (int32_t i = 0; i < 8 * PLANE_COUNT; ++i) {
                    const int32_t p = 8 + i % 8;
                    if (i < 8) {
                        raise_plane(sums, SUMTREE_PLANE_SUM, p, eight_at(tree->sum + 8 * p));
                    } else if (tree->kind == SUMTREE_KIND_PRIORITY && i < 16) {
                        raise_plane(mins, SUMTREE_PLANE_MIN, p, eight_at(tree->min + 8 * p));
                    } else if (tree->kind == SUMTREE_KIND_PRIORITY) {
                        raise_plane(maxs, SUMTREE_PLANE_MAX, p, eight_at(tree->max + 8 * p));
                    }
                }
                PARALLEL_PRAGMA(acc loop vector)
                for (int32_t i = 0; i < PLANE_COUNT; ++i) {
                    if (i == 0) {
                        raise_plane(sums, SUMTREE_PLANE_SUM, 1, eight_at(sums + 8));
                    } else if (tree->kind == SUMTREE_KIND_PRIORITY && i == 1) {
                        raise_plane(mins, SUMTREE_PLANE_MIN, 1, eight_at(mins + 8));
                    } else if (tree->kind == SUMTREE_KIND_PRIORITY) {
                        raise_plane(maxs, SUMTREE_PLANE_MAX, 1, eight_at(maxs + 8));
                    }
                }
            }
            aim at;
            at.total = crowned ? sums[1] : tree->sum[1];
            at.below = at.total > 0.0 ? just_below(at.total) : 0.0;
            at.smallest = 0.0;
            if (tree->kind == SUMTREE_KIND_PRIORITY)
                at.smallest = due ? mins[1] : node_value(tree, SUMTREE_PLANE_MIN, 1);
            if (gang == 0) {
                if (due) {
                    PARALLEL_PRAGMA(acc loop vector)
                    for (int32_t i = 1; i < OWNERS; ++i) {
                        tree->sum[i] = sums[i];
                        if (tree->kind == SUMTREE_KIND_PRIORITY) {
                            tree->min[i] = mins[i];
                            tree->max[i] = maxs[i];
                        }
                    }
                }
                report_roots(call);
                call->reply->empty = at.total == 0.0;
            }
            const double *const crown = crowned ? sums : NULL;
            PARALLEL_PRAGMA(acc loop vector)
            for (int32_t lane = 0; lane < FEW_LANES; ++lane) {
                const int64_t k = gang * FEW_LANES + lane;
                if (k < call->count && at.total > 0.0) draw_one(call, crown, at, k);
            }
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

void launch_get(device_block *there, int64_t count) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(count, FEW_LANES), FEW_LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t k = 0; k < call->count; ++k) {
            const int64_t index = call->indices[k];
            if (is_leaf_of(&call->tree, index)) {
                call->masses[k] = leaves(&call->tree)[index];
            } else {
                keep_first(&call->bad_index, call->offset + k);
                call->reply->faulty = 1;
            }
        }
    }
}

/* Over count leaves from start on. */
void launch_range(device_block *there) {
    (void)there;
    PARALLEL_KERNEL(1, 32) {
        const device_call *const call = &BLOCK_OF(there)->call;
        const int64_t first = call->tree.padded + call->start, last = first + call->count - 1;
        call->reply->value = call->tree.kind == SUMTREE_KIND_MIN ? range_min(&call->tree, first, last)
                                                                 : range_sum(&call->tree, first, last);
    }
}

void launch_unsound_leaf(device_block *there, int64_t nodes) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(nodes, 8 * LANES), LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const int64_t padded = call->tree.padded;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t node = padded; node < 2 * padded; ++node) {
            if (!leaf_is_sound(&call->tree, node)) {
                keep_first(&call->bad_value, node);
                call->reply->faulty = 1;
            }
        }
    }
}

/* The place of a node is counted from the leaves up. */
void launch_unsound_node(device_block *there, int64_t nodes) {
    (void)there;
    PARALLEL_KERNEL(gangs_for(nodes, 8 * LANES), LANES) {
        device_call *const call = &BLOCK_OF(there)->call;
        const int64_t padded = call->tree.padded;
        PARALLEL_PRAGMA(acc loop gang vector)
        for (int64_t place = 1; place < padded; ++place) {
            if (!node_is_sound(&call->tree, (sumtree_plane)call->plane, padded - place)) {
                keep_first(&call->bad_value, place);
                call->reply->faulty = 1;
            }
        }
    }
}
