/* Draws: descents at every vector level, samples, and the masses of priorities. */
#define _DEFAULT_SOURCE /* strsep */
#include "trees.h"

/* ---- descents ---------------------------------------------------------------------------------------------------- */

static int64_t naive_find(const double *nodes, int64_t padded, double target, sumtree_side side) {
    int64_t i = 1;
    double m = target;
    while (i < padded) {
        const double l = nodes[2 * i], r = nodes[2 * i + 1];
        const bool inside = side == SUMTREE_SIDE_RIGHT ? l > m : (l >= m && l > 0);
        if (inside || r == 0) {
            i = 2 * i;
        } else {
            m -= l;
            i = 2 * i + 1;
        }
    }
    return i - padded;
}

static void check_descents(int64_t capacity, sumtree_kind kind) {
    static double masses[MOST], nodes[2 * MOST], targets[MOST];
    static int64_t indices[MOST];
    for (int64_t j = 0; j < capacity; ++j) masses[j] = below(3) == 0 ? 0.0 : any_mass(16);
    masses[below(capacity)] = 1.0;
    sumtree_t *tree = make_with(kind, capacity, masses);
    CHECK_STATUS(OK, sumtree_nodes(tree, SUMTREE_PLANE_SUM, nodes));
    const double total = nodes[1];
    const int64_t count = 4 * capacity + 3;
    double part = 0.0;
    for (int64_t k = 0; k < count; ++k) {
        /* Boundaries and their neighbours, and anything in between. */
        if (k < capacity) part += masses[k];
        const double near = k % 3 == 0 ? part : nextafter(part, k % 3 == 1 ? 0.0 : INFINITY);
        const double target = k < capacity ? near : (double)next_word() * 0x1p-53 * total;
        targets[k] = target < total ? target : total;
    }
    targets[0] = 0.0;
    targets[1] = total;
    targets[2] = -0.0;
    for (int side = 0; side < 2; ++side) {
        CHECK_STATUS(OK, sumtree_find(tree, count, targets, (sumtree_side)side, indices, NULL));
        bool same = true, positive = true;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t expected = naive_find(nodes, sumtree_padded_capacity(tree), targets[k], (sumtree_side)side);
            same &= indices[k] == expected;
            positive &= indices[k] < capacity && masses[indices[k]] > 0.0;
        }
        CHECK(same);
        CHECK(positive);
    }
    sumtree_free(tree);
}

static void test_descents(void) {
    static const int64_t capacities[] = {1, 2, 3, 5, 8, 17, 100, 1000};
    seed(3);
    for (int round = 0; round < 8; ++round) {
        for (int k = 0; k < 8; ++k) {
            check_descents(capacities[k], SUMTREE_KIND_SUM);
            check_descents(capacities[k], SUMTREE_KIND_PRIORITY);
        }
    }
}

/* Batches of every length that vectors are filled with in another way, in a tree whose lower levels are fetched ahead. */
static void test_deep_descents(void) {
    static double given[DEEP], nodes[4 * DEEP], targets[LONGEST];
    static int64_t indices[LONGEST];
    seed(7);
    for (int64_t j = 0; j < DEEP; ++j) given[j] = below(4) == 0 ? (double)below(9) : 0.0;
    sumtree_t *tree = make_with(SUMTREE_KIND_SUM, DEEP, given);
    CHECK_STATUS(OK, sumtree_nodes(tree, SUMTREE_PLANE_SUM, nodes));
    /* Integers: every other target is a boundary, where the two sides differ. */
    for (int64_t k = 0; k < LONGEST; ++k) targets[k] = (double)below(2 * (int64_t)nodes[1] + 1) / 2;
    for (int64_t count = 1; count <= LONGEST; count = count < 140 ? count + 1 : 12 * count) {
        for (int side = 0; side < 2; ++side) {
            CHECK_STATUS(OK, sumtree_find(tree, count, targets, (sumtree_side)side, indices, NULL));
            bool same = true;
            for (int64_t k = 0; k < count; ++k) {
                same &= indices[k] == naive_find(nodes, sumtree_padded_capacity(tree), targets[k], (sumtree_side)side);
            }
            CHECK(same);
        }
    }
    sumtree_free(tree);
}

/* Masses 0 1 2 0 0 3 0: where each side puts the boundaries. */
static void test_boundaries(void) {
    const double masses[] = {0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0};
    const double targets[] = {0.0, 0.5, 1.0, 2.5, 3.0, 4.0, 6.0};
    const int64_t right[] = {1, 1, 2, 2, 5, 5, 5}, left[] = {1, 1, 1, 2, 2, 5, 5};
    int64_t indices[7];
    sumtree_t *tree = make_with(SUMTREE_KIND_SUM, 7, masses);
    CHECK_STATUS(OK, sumtree_find(tree, 7, targets, SUMTREE_SIDE_RIGHT, indices, NULL));
    for (int k = 0; k < 7; ++k) CHECK_INT(right[k], indices[k]);
    CHECK_STATUS(OK, sumtree_find(tree, 7, targets, SUMTREE_SIDE_LEFT, indices, NULL));
    for (int k = 0; k < 7; ++k) CHECK_INT(left[k], indices[k]);
    sumtree_free(tree);
}

static void test_bad_targets(void) {
    const double masses[] = {1.0, 2.0, 3.0};
    const double bad[] = {-TINY, -1.0, NAN, INFINITY, -INFINITY, nextafter(6.0, 7.0)};
    sumtree_t *tree = make_with(SUMTREE_KIND_SUM, 3, masses);
    for (int k = 0; k < 6; ++k) {
        const double targets[] = {0.0, 6.0, bad[k], NAN};
        int64_t indices[] = {-7, -7, -7, -7}, position = -1;
        CHECK_STATUS(TARGET, sumtree_find(tree, 4, targets, SUMTREE_SIDE_RIGHT, indices, &position));
        CHECK_INT(2, position);
        CHECK_STATUS(TARGET, sumtree_find(tree, 4, targets, SUMTREE_SIDE_LEFT, indices, NULL));
        CHECK_INT(-7, indices[0]);
    }
    sumtree_free(tree);
}

static void test_find_errors(void) {
    const double target = 0.0;
    int64_t index = -7;
    sumtree_t *sums = make(3, SUMTREE_KIND_SUM), *mins = make(3, SUMTREE_KIND_MIN);
    CHECK_STATUS(EMPTY, sumtree_find(sums, 1, &target, SUMTREE_SIDE_RIGHT, &index, NULL));
    CHECK_STATUS(OK, sumtree_find(sums, 0, NULL, SUMTREE_SIDE_RIGHT, NULL, NULL));
    CHECK_STATUS(KIND, sumtree_find(mins, 1, &target, SUMTREE_SIDE_RIGHT, &index, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_find(NULL, 1, &target, SUMTREE_SIDE_RIGHT, &index, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_find(sums, 1, NULL, SUMTREE_SIDE_RIGHT, &index, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_find(sums, 1, &target, SUMTREE_SIDE_RIGHT, NULL, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_find(sums, -1, &target, SUMTREE_SIDE_RIGHT, &index, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_find(sums, 1, &target, (sumtree_side)2, &index, NULL));
    CHECK_INT(-7, index);
    sumtree_free(sums);
    sumtree_free(mins);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

enum { DRAWS = 1300 };
static const sumtree_philox START = {{11, 12}, {UINT64_MAX, 0, 3, 4}, 3};

/* Draws of 0, 1, .. and of more than any block inside, against the formulas. */
static void check_sample(int64_t count, bool stratified) {
    static double masses[200], uniforms[DRAWS], targets[DRAWS], drawn[DRAWS], weights[DRAWS];
    static int64_t expected[DRAWS], indices[DRAWS];
    for (int j = 0; j < 200; ++j) masses[j] = j % 4 == 0 ? 0.0 : (double)next_word();
    sumtree_t *tree = make_with(SUMTREE_KIND_PRIORITY, 200, masses);
    double total, smallest;
    CHECK_STATUS(OK, sumtree_root(tree, SUMTREE_PLANE_SUM, &total));
    CHECK_STATUS(OK, sumtree_root(tree, SUMTREE_PLANE_MIN, &smallest));
    sumtree_philox rng = START, other = START;
    CHECK_STATUS(OK, sumtree_sample(tree, &rng, count, 0.25, stratified, indices, drawn, weights));
    CHECK_STATUS(OK, sumtree_uniforms(&other, count, uniforms));
    CHECK(same_rng(&rng, &other));
    for (int64_t k = 0; k < count; ++k) {
        const double fraction = stratified ? ((double)k + uniforms[k]) / (double)count : uniforms[k];
        targets[k] = fmin(fraction * total, nextafter(total, 0.0));
    }
    CHECK_STATUS(OK, sumtree_find(tree, count, targets, SUMTREE_SIDE_RIGHT, expected, NULL));
    for (int64_t k = 0; k < count; ++k) {
        CHECK_INT(expected[k], indices[k]);
        CHECK_DOUBLE(masses[indices[k]], drawn[k]);
        CHECK(fabs(weights[k] - sqrt(sqrt(smallest / drawn[k]))) <= 4 * DBL_EPSILON * weights[k]);
    }
    sumtree_free(tree);
}

static void test_samples(void) {
    static const int64_t counts[] = {0, 1, 2, 15, 511, 512, 513, 1024, DRAWS};
    seed(4);
    for (int k = 0; k < 9; ++k) {
        check_sample(counts[k], true);
        check_sample(counts[k], false);
    }
}

/* With one subnormal mass the double below the total is 0, and no target may reach the total. */
static void test_smallest_total(void) {
    double drawn[64], weights[64];
    int64_t indices[64];
    const double masses[] = {0.0, 0.0, TINY};
    sumtree_t *tree = make_with(SUMTREE_KIND_PRIORITY, 3, masses);
    sumtree_philox rng = START;
    CHECK_STATUS(OK, sumtree_sample(tree, &rng, 64, 1.0, 1, indices, drawn, weights));
    for (int k = 0; k < 64; ++k) {
        CHECK_INT(2, indices[k]);
        CHECK_DOUBLE(TINY, drawn[k]);
        CHECK_DOUBLE(1.0, weights[k]);
    }
    sumtree_free(tree);
}

static void test_sample_errors(void) {
    int64_t index = -7;
    double mass = -7.0, weight = -7.0;
    sumtree_philox rng = START, bad = START;
    bad.buffer_pos = 5;
    const double one = 1.0, exponents[] = {-TINY, 1.0 + DBL_EPSILON, NAN, INFINITY, -INFINITY};
    sumtree_t *tree = make(3, SUMTREE_KIND_PRIORITY), *sums = make(3, SUMTREE_KIND_SUM);
    CHECK_STATUS(EMPTY, sumtree_sample(tree, &rng, 1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(OK, sumtree_sample(tree, &rng, 0, 0.4, 1, NULL, NULL, NULL));
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, 1, &one, 1, NULL));
    for (int k = 0; k < 5; ++k) {
        CHECK_STATUS(EXPONENT, sumtree_sample(tree, &rng, 1, exponents[k], 1, &index, &mass, &weight));
    }
    CHECK_STATUS(KIND, sumtree_sample(sums, &rng, 1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(NULL, &rng, 1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, NULL, 1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, &bad, 1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, &rng, -1, 0.4, 1, &index, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, &rng, 1, 0.4, 1, NULL, &mass, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, &rng, 1, 0.4, 1, &index, NULL, &weight));
    CHECK_STATUS(ARGUMENT, sumtree_sample(tree, &rng, 1, 0.4, 1, &index, &mass, NULL));
    CHECK(same_rng(&rng, &START));
    CHECK_INT(-7, index);
    sumtree_free(tree);
    sumtree_free(sums);
}

/* ---- masses ------------------------------------------------------------------------------------------------------ */

static void test_masses(void) {
    const double priorities[] = {0.0, -0.0, 1.0, 4.0, TINY, 0x1p960};
    double masses[6];
    CHECK_STATUS(OK, sumtree_masses(6, priorities, 0.0, masses, NULL));
    for (int k = 0; k < 6; ++k) CHECK_DOUBLE(k < 2 ? 0.0 : 1.0, masses[k]);
    CHECK_STATUS(OK, sumtree_masses(6, priorities, 0.5, masses, NULL));
    CHECK_DOUBLE(0.0, masses[0]);
    CHECK_DOUBLE(0.0, masses[1]);
    CHECK_DOUBLE(2.0, masses[3]);
    CHECK_STATUS(OK, sumtree_masses(6, priorities, 1.0, masses, NULL));
    for (int k = 0; k < 6; ++k) CHECK_DOUBLE(priorities[k] + 0.0, masses[k]);
    CHECK_STATUS(OK, sumtree_masses(0, NULL, 0.5, NULL, NULL));
}

static void test_masses_errors(void) {
    const double bad[] = {-TINY, -1.0, NAN, INFINITY, -INFINITY, 0x1.1p960};
    const double exponents[] = {-TINY, NAN, INFINITY, -INFINITY};
    const double one = 1.0, large[] = {1.0, 0x1p481};
    double masses[3];
    int64_t position = -1;
    for (int k = 0; k < 6; ++k) {
        const double priorities[] = {1.0, bad[k], NAN};
        CHECK_STATUS(PRIORITY, sumtree_masses(3, priorities, 1.0, masses, &position));
        CHECK_INT(1, position);
        CHECK_STATUS(PRIORITY, sumtree_masses(3, priorities, 1.0, masses, NULL));
        if (k < 5) CHECK_STATUS(PRIORITY, sumtree_masses(3, priorities, 0.0, masses, NULL));
    }
    CHECK_STATUS(PRIORITY, sumtree_masses(2, large, 2.0, masses, NULL));
    for (int k = 0; k < 4; ++k) CHECK_STATUS(EXPONENT, sumtree_masses(1, &one, exponents[k], masses, NULL));
    CHECK_STATUS(EXPONENT, sumtree_masses(0, NULL, -1.0, NULL, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_masses(-1, &one, 1.0, masses, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_masses(1, NULL, 1.0, masses, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_masses(1, &one, 1.0, NULL, NULL));
}

/* ---- vector levels ----------------------------------------------------------------------------------------------- */

static void test_vector_levels(void) {
    CHECK(strncmp(sumtree_vector_levels(), "baseline", 8) == 0);
    const char *last = strrchr(sumtree_vector_levels(), ' ');
    CHECK(strcmp(last == NULL ? "baseline" : last + 1, sumtree_vector_level()) == 0);
    static const char *const bad[] = {"", "sse", "baseline avx2", "AVX2", "avx", "avx5120"};
    for (int k = 0; k < 6; ++k) CHECK_STATUS(ARGUMENT, sumtree_select_vector_level(bad[k]));
    CHECK_STATUS(ARGUMENT, sumtree_select_vector_level(NULL));
}

/* Descents at every level that this processor has, the widest last. */
static void test_descents_at_all_levels(void) {
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    char rest[64], *at = rest;
    (void)snprintf(rest, sizeof rest, "%s", sumtree_vector_levels());
    for (const char *name = strsep(&at, " "); name != NULL; name = strsep(&at, " ")) {
        CHECK(strcmp(name, names[0]) == 0 || strcmp(name, names[1]) == 0 || strcmp(name, names[2]) == 0);
        CHECK_STATUS(OK, sumtree_select_vector_level(name));
        CHECK(strcmp(name, sumtree_vector_level()) == 0);
        printf("descents at level %s\n", name);
        RUN(test_descents);
        RUN(test_deep_descents);
        RUN(test_boundaries);
        RUN(test_bad_targets);
        RUN(test_samples);
        RUN(test_smallest_total);
    }
}

int main(void) {
    RUN(test_find_errors);
    RUN(test_vector_levels);
    test_descents_at_all_levels();
    RUN(test_sample_errors);
    RUN(test_masses);
    RUN(test_masses_errors);
    return report();
}
