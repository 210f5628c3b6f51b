/* The rules of sumtree.h, one element at a time: what a leaf stores, a node is made of, a descent does and a draw gives.
 * Every backend's kernels are made of these, on the host and on devices. */
#ifndef SUMTREE_RULES_H
#define SUMTREE_RULES_H

#include <math.h>
#include <string.h>

#include "parallel.h"
#include "tree.h"

#define SUMTREE_RULE PARALLEL_ROUTINE SUMTREE_INLINE

/* ---- leaves and nodes -------------------------------------------------------------------------------------------- */

SUMTREE_RULE bool is_mass(double mass) { return mass >= 0.0 && mass <= SUMTREE_MAX_MASS; }

SUMTREE_RULE double *leaves(const sumtree_t *tree) {
    return (tree->kind == SUMTREE_KIND_MIN ? tree->min : tree->sum) + tree->padded;
}

/* What a leaf stores: adding 0.0 makes -0.0 a mass of 0.0; a min tree keeps every double. */
SUMTREE_RULE double stored(sumtree_kind kind, double mass) { return kind == SUMTREE_KIND_MIN ? mass : mass + 0.0; }

/* A leaf as the min plane of a priority tree sees it: only positive masses count. */
SUMTREE_RULE double positive_or_inf(double mass) { return mass > 0.0 ? mass : __builtin_inf(); }

SUMTREE_RULE double smaller(double left, double right) { return right < left ? right : left; }
SUMTREE_RULE double larger(double left, double right) { return right > left ? right : left; }

/* What a node of a plane holds, given its children's values. */
SUMTREE_RULE double combined(sumtree_plane plane, double left, double right) {
    switch (plane) {
    case SUMTREE_PLANE_MIN:
        return smaller(left, right);
    case SUMTREE_PLANE_MAX:
        return larger(left, right);
    default:
        return left + right;
    }
}

/* The rules of sumtree.h for node i. of_leaves: its children are leaves, which a priority tree's min and max planes
 * read from the sum plane. The kind is a constant wherever this is inlined. */
SUMTREE_RULE void recompute(const sumtree_t *tree, sumtree_kind kind, bool of_leaves, int64_t i) {
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

/* Node i of a plane, where the min and max planes of a priority tree read their leaves from the sum plane. */
SUMTREE_RULE double node_value(const sumtree_t *tree, sumtree_plane plane, int64_t node) {
    const bool derived = tree->kind == SUMTREE_KIND_PRIORITY && node >= tree->padded;
    switch (plane) {
    case SUMTREE_PLANE_MIN:
        return derived ? positive_or_inf(tree->sum[node]) : tree->min[node];
    case SUMTREE_PLANE_MAX:
        return derived ? tree->sum[node] : tree->max[node];
    default:
        return tree->sum[node];
    }
}

/* ---- descents ---------------------------------------------------------------------------------------------------- */

/* The contract's rule, which looks at both children's sums. */
SUMTREE_RULE bool rule_goes_left(double l, double r, double target, sumtree_side side) {
    const bool inside = side == SUMTREE_SIDE_RIGHT ? l > target : (l >= target && l > 0.0);
    return inside || r == 0.0;
}

PARALLEL_ROUTINE static inline int64_t descend_by_the_rule(const sumtree_t *tree, double target, sumtree_side side) {
    const double *sum = tree->sum;
    int64_t node = 1;
    while (node < tree->padded) {
        const double l = sum[2 * node], r = sum[2 * node + 1];
        const bool left = rule_goes_left(l, r, target, side);
        target -= left ? 0.0 : l;
        node = 2 * node + (left ? 0 : 1);
    }
    return node - tree->padded;
}

/* Descents look at left sums alone. As long as one enters no empty child it takes the rule's steps; once in an empty
 * child it can only end in a leaf of mass 0. So a leaf of positive mass is the rule's, and for the others the rule
 * itself is followed. */
SUMTREE_RULE bool goes_right(double left_sum, double rest, sumtree_side side) {
    return side == SUMTREE_SIDE_RIGHT ? left_sum <= rest : left_sum < rest;
}

/* x where keep, else 0.0. Masked by hand: compilers make a conditional subtraction a branch, which random descents
 * mispredict every other time. */
SUMTREE_RULE double masked(double x, bool keep) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= -(uint64_t)keep;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

SUMTREE_RULE int64_t settle(const sumtree_t *tree, int64_t node, double target, sumtree_side side) {
    return tree->sum[node] == 0.0 ? descend_by_the_rule(tree, target, side) : node - tree->padded;
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

/* nextafter(total, 0) for a total > 0. */
SUMTREE_RULE double just_below(double total) {
    uint64_t bits;
    memcpy(&bits, &total, sizeof bits);
    --bits;
    memcpy(&total, &bits, sizeof total);
    return total;
}

/* The target of draw k of count, from the double u; `below` is just_below(total). */
SUMTREE_RULE double aimed(double u, int64_t k, int64_t count, double total, double below, bool stratified) {
    const double part = stratified ? ((double)k + u) / (double)count : u;
    const double target = PARALLEL_PRODUCT(part, total);
    return target < below ? target : below;
}

SUMTREE_RULE double weight_of(double smallest, double mass, double beta) { return pow(smallest / mass, beta); }

/* ---- reductions over the nodes first .. last of the leaf level ----------------------------------------------------
 *
 * `head` and `tail` are the values of the ancestors of first and last in the tree whose leaves outside the range are
 * unset. Unset leaves add nothing, exactly, so only siblings that lie inside the range are combined, left first. */

SUMTREE_RULE double range_sum(const sumtree_t *tree, int64_t first, int64_t last) {
    const double *sum = tree->sum;
    double head = sum[first], tail = sum[last];
    if (first == last) return head;
    for (; first >> 1 != last >> 1; first >>= 1, last >>= 1) {
        if ((first & 1) == 0) head = head + sum[first + 1];
        if ((last & 1) == 1) tail = sum[last - 1] + tail;
    }
    return head + tail;
}

SUMTREE_RULE double range_min(const sumtree_t *tree, int64_t first, int64_t last) {
    const double *min = tree->min;
    double head = min[first], tail = min[last];
    if (first == last) return head;
    for (; first >> 1 != last >> 1; first >>= 1, last >>= 1) {
        if ((first & 1) == 0) head = smaller(head, min[first + 1]);
        if ((last & 1) == 1) tail = smaller(min[last - 1], tail);
    }
    return smaller(head, tail);
}

/* ---- soundness --------------------------------------------------------------------------------------------------- */

SUMTREE_RULE bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

SUMTREE_RULE bool leaf_is_sound(const sumtree_t *tree, int64_t node) {
    const bool padding = node - tree->padded >= tree->capacity;
    if (tree->kind == SUMTREE_KIND_MIN) {
        return padding ? same_bits(tree->min[node], INFINITY) : !isnan(tree->min[node]);
    }
    const double mass = tree->sum[node];
    return padding ? same_bits(mass, 0.0) : is_mass(mass) && !signbit(mass);
}

SUMTREE_RULE bool node_is_sound(const sumtree_t *tree, sumtree_plane plane, int64_t node) {
    const double left = node_value(tree, plane, 2 * node), right = node_value(tree, plane, 2 * node + 1);
    return same_bits(node_value(tree, plane, node), combined(plane, left, right));
}

#endif
