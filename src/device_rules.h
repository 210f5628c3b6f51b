/* What the kernels of the gpu backend do for one element, one node or one draw: the rules of rules.h, and forms of them that
 * suit a device better, with the same bits. */
#ifndef SUMTREE_DEVICE_RULES_H
#define SUMTREE_DEVICE_RULES_H

#include "device.h"
#include "philox.h"
#include "rules.h"

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

/* The last of so many gangs or lanes to come by tells the host, and gets true. done: what they have written until then
 * is to be seen first. */
PARALLEL_ROUTINE SUMTREE_INLINE bool tell(device_call *call, volatile uint64_t *word, uint64_t ticket, int64_t many,
                                          bool done, uint64_t outcome) {
    int32_t before;
    if (done) PARALLEL_FENCE();
    PARALLEL_PRAGMA(acc atomic capture) {
        before = call->arrived;
        call->arrived = call->arrived + 1;
    }
    if (before != many - 1) return false;
    if (done) PARALLEL_FENCE();
    *word = ticket << 32 | outcome;
    call->arrived = 0;
    call->ticket = ticket + 1;
    return true;
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

PARALLEL_ROUTINE SUMTREE_INLINE double combined_eight(sumtree_plane plane, eight v) {
    const double left = combined(plane, combined(plane, v.a, v.b), combined(plane, v.c, v.d));
    return combined(plane, left, combined(plane, combined(plane, v.e, v.f), combined(plane, v.g, v.h)));
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

/* ---- updates ------------------------------------------------------------------------------------------------------ */

PARALLEL_ROUTINE SUMTREE_INLINE uint64_t outcome_of(const device_call *call, int64_t bad_index, int64_t bad_value) {
    if (bad_index != NOWHERE) return (uint64_t)SUMTREE_INDEX << 16 | (uint64_t)bad_index;
    if (bad_value == NOWHERE) return SUMTREE_OK;
    const uint64_t status = call->tree.kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS;
    return status << 16 | (uint64_t)bad_value;
}

PARALLEL_ROUTINE SUMTREE_INLINE bool is_good(const device_call *call) {
    return call->bad_index == NOWHERE && call->bad_value == NOWHERE;
}

/* The place in a long update that leaf `index` is given its value from, by its tag or by its place in a range; -1: none. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t place_of(const device_call *call, int64_t index) {
    if (call->indices != NULL) return call->tags[index];
    const int64_t place = index - call->start;
    return place >= 0 && place < call->count ? place : -1;
}

PARALLEL_ROUTINE SUMTREE_INLINE void write_leaf(const device_call *call, bool good, int64_t index) {
    const int64_t place = place_of(call, index);
    if (place < 0) return;
    if (good) leaves(&call->tree)[index] = stored(call->tree.kind, call->values[place * call->step]);
    if (call->indices != NULL) call->tags[index] = -1;
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* Three steps of a descent whose nodes are all looked at ahead; the same subtractions as step by step. a is the left
 * child's sum; b0 and b1 are those of its and its sibling's left children; c0 .. c3 those one level down. The result is the
 * number, 0 .. 7, of the descendant three levels down. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t three_steps(double a, double b0, double b1, double c0, double c1, double c2,
                                                    double c3, double *rest, sumtree_side side) {
    const double at_left = *rest, at_right = at_left - a;
    const bool right = goes_right(a, at_left, side);
    const double b = right ? b1 : b0, at_b = right ? at_right : at_left;
    const bool right_b = goes_right(b, at_b, side);
    const double below_left = right_b ? c1 : c0, below_right = right_b ? c3 : c2;
    const double c = right ? below_right : below_left, at_c = right_b ? at_b - b : at_b;
    const bool right_c = goes_right(c, at_c, side);
    *rest = right_c ? at_c - c : at_c;
    return 4 * right + 2 * right_b + right_c;
}

PARALLEL_ROUTINE SUMTREE_INLINE int64_t three_down(const double *sum, int64_t node, double *rest, sumtree_side side) {
    return 8 * node + three_steps(sum[2 * node], sum[4 * node], sum[4 * node + 2], sum[8 * node], sum[8 * node + 2],
                                  sum[8 * node + 4], sum[8 * node + 6], rest, side);
}

/* The same from the sums of the eight descendants alone. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t three_over(eight v, double *rest, sumtree_side side) {
    const double b0 = v.a + v.b, b1 = v.e + v.f;
    return three_steps(b0 + (v.c + v.d), b0, b1, v.a, v.c, v.e, v.g, rest, side);
}

/* What the owners' roots make of the eight nodes of depth 3. */
PARALLEL_ROUTINE SUMTREE_INLINE eight under_root(sumtree_plane plane, const double *nodes) {
    const double *const v = nodes + OWNERS;
    const eight tops = {combined_eight(plane, eight_at(v)),      combined_eight(plane, eight_at(v + 8)),
                        combined_eight(plane, eight_at(v + 16)), combined_eight(plane, eight_at(v + 24)),
                        combined_eight(plane, eight_at(v + 32)), combined_eight(plane, eight_at(v + 40)),
                        combined_eight(plane, eight_at(v + 48)), combined_eight(plane, eight_at(v + 56))};
    return tops;
}

/* What draws need to know of the nodes above the owners' roots, wherever it comes from. */
typedef struct crown {
    bool due;
    eight tops; /* sums, where the crown is due */
    double total;
    double smallest;
} crown;

PARALLEL_ROUTINE SUMTREE_INLINE crown crown_of(const sumtree_t *tree, bool due) {
    const eight nothing = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    crown made = {due, nothing, 0.0, 0.0};
    const bool all = tree->kind == SUMTREE_KIND_PRIORITY;
    if (due) {
        made.tops = under_root(SUMTREE_PLANE_SUM, tree->sum);
        made.total = combined_eight(SUMTREE_PLANE_SUM, made.tops);
        if (all) made.smallest = combined_eight(SUMTREE_PLANE_MIN, under_root(SUMTREE_PLANE_MIN, tree->min));
    } else {
        made.total = tree->sum[1];
        if (all) made.smallest = node_value(tree, SUMTREE_PLANE_MIN, 1);
    }
    return made;
}

/* The leaf's node that the descent for a target ends in, by left sums alone. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t descend(const sumtree_t *tree, const crown *top, double target,
                                                sumtree_side side) {
    const double *const sum = tree->sum;
    const int64_t padded = tree->padded;
    double rest = target;
    int64_t node = 1;
    if (top->due) {
        node = 8 + three_over(top->tops, &rest, side);
        node = 8 * node + three_over(eight_at(sum + 8 * node), &rest, side);
    }
    while (8 * node <= padded) node = three_down(sum, node, &rest, side);
    while (node < padded) {
        const double left_sum = sum[2 * node];
        const bool right = goes_right(left_sum, rest, side);
        rest -= right ? left_sum : 0.0;
        node = 2 * node + right;
    }
    return node;
}

/* The leaf that a draw ends in. The rule itself reads every node: under a crown that is due it is not followed, and the
 * host is told to try again. */
PARALLEL_ROUTINE SUMTREE_INLINE int64_t draw(const device_call *call, const crown *top, double target,
                                             sumtree_side side) {
    const int64_t node = descend(&call->tree, top, target, side);
    if (call->tree.sum[node] != 0.0) return node - call->tree.padded;
    if (!top->due) return descend_by_the_rule(&call->tree, target, side);
    call->reply->undecided = 1;
    return 0;
}

PARALLEL_ROUTINE SUMTREE_INLINE void sample_one(const device_call *call, const crown *top, double u, int64_t k) {
    const int64_t place = call->offset + k;
    const double target = aimed(u, place, call->batch, top->total, just_below(top->total), call->stratified);
    const int64_t index = draw(call, top, target, SUMTREE_SIDE_RIGHT);
    const double mass = call->tree.sum[call->tree.padded + index];
    call->found[k] = index;
    call->masses[k] = mass;
    call->weights[k] = weight_of(top->smallest, mass, call->beta);
}

PARALLEL_ROUTINE SUMTREE_INLINE void find_one(device_call *call, const crown *top, int64_t k) {
    const double target = call->values[k];
    if (!(target >= 0.0 && target <= top->total)) {
        keep_first(&call->bad_value, call->offset + k);
        call->reply->faulty = 1;
    } else if (call->side == SUMTREE_SIDE_RIGHT) {
        call->found[k] = draw(call, top, target, SUMTREE_SIDE_RIGHT);
    } else {
        call->found[k] = draw(call, top, target, SUMTREE_SIDE_LEFT);
    }
}

PARALLEL_ROUTINE SUMTREE_INLINE void report_crown(const device_call *call, const crown *top) {
    const sumtree_t *const tree = &call->tree;
    double *const roots = call->reply->roots;
    roots[SUMTREE_PLANE_SUM] = top->total;
    roots[SUMTREE_PLANE_MIN] = top->smallest;
    if (tree->kind == SUMTREE_KIND_PRIORITY) {
        roots[SUMTREE_PLANE_MAX] = top->due
                                       ? combined_eight(SUMTREE_PLANE_MAX, under_root(SUMTREE_PLANE_MAX, tree->max))
                                       : node_value(tree, SUMTREE_PLANE_MAX, 1);
    }
}

/* Draw k, or the roots behind the last one. Then, the last of all tells the host, and makes the call the one that would
 * follow it. What is read first is on its way together. */
PARALLEL_ROUTINE SUMTREE_INLINE void draw_one(device_call *call, bool due, int64_t k) {
    const uint64_t ticket = call->ticket;
    device_reply *const reply = call->reply;
    const int32_t sampling = call->sampling;
    const int64_t count = call->count;
    const crown top = crown_of(&call->tree, due);
    const double u = sampling ? philox_double_at(&call->rng, call->offset + k) : 0.0;
    if (k == count) {
        report_crown(call, &top);
    } else if (top.total > 0.0 && sampling) {
        sample_one(call, &top, u, k);
    } else if (top.total > 0.0) {
        find_one(call, &top, k);
    }
    const uint64_t status = top.total == 0.0 ? SUMTREE_EMPTY : SUMTREE_OK;
    if (tell(call, &reply->drawn, ticket, count + 1, true, status << 16) && sampling) philox_skip(&call->rng, count);
}

#endif
