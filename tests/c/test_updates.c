/* Leaves: updates, what an update that fails leaves alone, and reading. */
#include "trees.h"

/* ---- updates ----------------------------------------------------------------------------------------------------- */

/* Batches from one leaf to many times the capacity, so that the last duplicate wins and every way of recomputing runs. */
static void check_random_updates(int64_t capacity, sumtree_kind kind) {
    static double given[MOST], masses[MOST];
    static int64_t indices[MOST];
    const sumtree_plane own = kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
    for (int64_t j = 0; j < MOST; ++j) given[j] = unset(own);
    sumtree_t *tree = make(capacity, kind);
    check_nodes(tree, given);
    for (int step = 0; step < 24; ++step) {
        const int64_t count = (int64_t)1 << below(11);
        const int64_t mass_step = below(4) != 0;
        for (int64_t k = 0; k < count; ++k) {
            indices[k] = k % 3 == 2 ? indices[k - 1] : below(capacity);
            masses[k] = kind == SUMTREE_KIND_MIN && below(3) == 0 ? -any_mass(16) : any_mass(16);
        }
        for (int64_t k = 0; k < count; ++k) given[indices[k]] = masses[k * mass_step];
        CHECK_STATUS(OK, sumtree_update(tree, count, indices, masses, mass_step, NULL));
        check_nodes(tree, given);

        const int64_t start = below(capacity + 1), length = below(capacity - start + 1);
        for (int64_t k = 0; k < length; ++k) given[start + k] = masses[(k % count) * mass_step];
        for (int64_t k = count; k < length; ++k) masses[k] = masses[k % count];
        CHECK_STATUS(OK, sumtree_update_range(tree, start, length, masses, mass_step, NULL));
        check_nodes(tree, given);
    }
    sumtree_free(tree);
}

static void test_updates(void) {
    static const int64_t capacities[] = {1, 2, 3, 5, 8, 31, 1000, 2048};
    seed(1);
    for (int k = 0; k < 8; ++k) {
        for (int kind = 0; kind < KINDS; ++kind) check_random_updates(capacities[k], (sumtree_kind)kind);
    }
}

static void test_last_duplicate_wins(void) {
    const int64_t indices[] = {2, 0, 2, 2, 0};
    const double masses[] = {9.0, 8.0, 7.0, 0.5, 0.25};
    const double expected[] = {0.25, 0.0, 0.5, 0.0};
    sumtree_t *tree = make(4, SUMTREE_KIND_PRIORITY);
    CHECK_STATUS(OK, sumtree_update(tree, 5, indices, masses, 1, NULL));
    check_nodes(tree, expected);
    sumtree_free(tree);
}

/* Adding differences instead would leave 1e16 - 1e16 + 1 - .. behind. */
static void test_no_drift(void) {
    sumtree_t *tree = make(8, SUMTREE_KIND_PRIORITY);
    const double ones[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    const int64_t third = 3;
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, 8, ones, 1, NULL));
    for (int k = 0; k < 1000; ++k) {
        const double mass = any_mass(16);
        CHECK_STATUS(OK, sumtree_update(tree, 1, &third, &mass, 1, NULL));
        CHECK_STATUS(OK, sumtree_update(tree, 1, &third, ones, 1, NULL));
    }
    check_nodes(tree, ones);
    sumtree_free(tree);
}

/* ---- trees too large for the caches, and batches for a team of threads ------------------------------------------- */

static double deep_given[DEEP], deep_masses[LONGEST];
static int64_t deep_indices[LONGEST];

/* The leaves are those given, and every node is made of its children. */
static void check_deep(const sumtree_t *tree) {
    static double leaves[DEEP];
    CHECK_STATUS(OK, sumtree_get_range(tree, 0, DEEP, leaves));
    bool same = true;
    for (int64_t j = 0; j < DEEP; ++j) same &= equal_bits(leaves[j], deep_given[j]);
    CHECK(same);
    sumtree_plane plane = SUMTREE_PLANE_SUM;
    int64_t node = 0;
    if (sumtree_validate(tree, &plane, &node) != SUMTREE_OK) CHECK_INT(0, node);
}

/* Equal leaves, siblings, cousins and strangers, all within a part of the tree that is as often small as large. */
static void choose_leaves(int64_t count) {
    const int64_t part = (int64_t)1 << (3 + below(14)), start = below(DEEP - at_most(part, DEEP - 1));
    for (int64_t k = 0; k < count; ++k) {
        const int64_t near = k == 0 ? start : deep_indices[k - 1] ^ below(4);
        const int64_t any = start + below(at_most(part, DEEP - start));
        deep_indices[k] = below(3) == 0 && near < DEEP ? near : any;
    }
}

static void check_deep_updates(sumtree_kind kind, int64_t count) {
    const double bottom = kind == SUMTREE_KIND_MIN ? INFINITY : 0.0;
    for (int64_t j = 0; j < DEEP; ++j) deep_given[j] = bottom;
    sumtree_t *tree = make(DEEP, kind);
    for (int step = 0; step < 3; ++step) {
        choose_leaves(count);
        for (int64_t k = 0; k < count; ++k) {
            deep_masses[k] = kind == SUMTREE_KIND_MIN ? -any_mass(16) : any_mass(16);
            deep_given[deep_indices[k]] = kind == SUMTREE_KIND_MIN ? deep_masses[k] : deep_masses[k] + 0.0;
        }
        CHECK_STATUS(OK, sumtree_update(tree, count, deep_indices, deep_masses, 1, NULL));
        check_deep(tree);
    }
    for (int64_t k = 0; k < count; ++k) deep_given[deep_indices[k]] = 0.25;
    const double quarter = 0.25;
    CHECK_STATUS(OK, sumtree_update(tree, count, deep_indices, &quarter, 0, NULL));
    check_deep(tree);
    sumtree_free(tree);
}

static void test_deep_updates(void) {
    static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 40, 100, 1000, 4096, 6000, LONGEST};
    seed(5);
    for (int kind = 0; kind < KINDS; ++kind) {
        for (int k = 0; k < 17; ++k) check_deep_updates((sumtree_kind)kind, counts[k]);
    }
}

static void test_deep_ranges(void) {
    seed(6);
    for (int kind = 0; kind < KINDS; ++kind) {
        sumtree_t *tree = make(DEEP, (sumtree_kind)kind);
        for (int64_t j = 0; j < DEEP; ++j) deep_given[j] = (double)next_word() * 0x1p-53;
        CHECK_STATUS(OK, sumtree_update_range(tree, 0, DEEP, deep_given, 1, NULL));
        check_deep(tree);
        for (int64_t j = 777; j < DEEP - 5; ++j) deep_given[j] = (double)next_word() * 0x1p-53;
        CHECK_STATUS(OK, sumtree_update_range(tree, 777, DEEP - 782, deep_given + 777, 1, NULL));
        check_deep(tree);
        sumtree_free(tree);
    }
}

/* A range recomputes what is above it alone; what an update before it has left to do must not be forgotten. */
static void test_range_after_update(void) {
    static const double ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int64_t capacities[] = {16, 4096, 8192, 16384, 32768};
    for (int k = 0; k < 5; ++k) {
        sumtree_t *tree = NULL;
        CHECK_STATUS(OK, sumtree_create(capacities[k], SUMTREE_KIND_PRIORITY, &tree));
        const int64_t last = capacities[k] - 1;
        double total = 0.0;
        CHECK_STATUS(OK, sumtree_update(tree, 1, &last, ones, 1, NULL));
        CHECK_STATUS(OK, sumtree_update_range(tree, 0, 10, ones, 1, NULL));
        CHECK_STATUS(OK, sumtree_root(tree, SUMTREE_PLANE_SUM, &total));
        CHECK(total == 11.0);
        CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
        sumtree_free(tree);
    }
}

static void check_bad_update(sumtree_t *tree, int32_t expected, int64_t index, double mass) {
    const int64_t indices[] = {0, 1, index, 1};
    const double masses[] = {1.0, 2.0, mass, 3.0};
    int64_t position = -1;
    remember(tree);
    const sumtree_status status = sumtree_update(tree, 4, indices, masses, 1, &position);
    check_status(expected, status, "sumtree_update", __FILE__, __LINE__);
    CHECK_INT(2, position);
    check_status(expected, sumtree_update(tree, 4, indices, masses, 1, NULL), "sumtree_update", __FILE__, __LINE__);
    check_unchanged(tree);
}

static void test_bad_indices(void) {
    static const int64_t bad[] = {-1, 5, 7, INT64_MIN, INT64_MAX, (int64_t)1 << 32};
    for (int kind = 0; kind < KINDS; ++kind) {
        sumtree_t *tree = make(5, (sumtree_kind)kind);
        for (int k = 0; k < 6; ++k) {
            check_bad_update(tree, SUMTREE_INDEX, bad[k], 1.0);
            check_bad_update(tree, SUMTREE_INDEX, bad[k], NAN);
            double mass = -7.0;
            int64_t position = -1;
            CHECK_STATUS(INDEX, sumtree_get(tree, 1, &bad[k], &mass, &position));
            CHECK_INT(0, position);
            CHECK_DOUBLE(-7.0, mass);
        }
        sumtree_free(tree);
    }
}

static void test_bad_masses(void) {
    const double bad[] = {-1.0, -TINY, NAN, -NAN, INFINITY, -INFINITY, nextafter(MAX_MASS, INFINITY), DBL_MAX};
    for (int kind = 0; kind < KINDS; kind += 2) {
        sumtree_t *tree = make(5, (sumtree_kind)kind);
        for (int k = 0; k < 8; ++k) {
            check_bad_update(tree, SUMTREE_MASS, 4, bad[k]);
            const double masses[] = {1.0, bad[k]};
            int64_t position = -1;
            remember(tree);
            CHECK_STATUS(MASS, sumtree_update_range(tree, 1, 2, masses, 1, &position));
            CHECK_INT(1, position);
            CHECK_STATUS(MASS, sumtree_update_range(tree, 0, 5, masses + 1, 0, &position));
            CHECK_INT(0, position);
            check_unchanged(tree);
        }
        sumtree_free(tree);
    }
}

static void test_bad_values(void) {
    sumtree_t *tree = make(5, SUMTREE_KIND_MIN);
    check_bad_update(tree, SUMTREE_VALUE, 4, NAN);
    check_bad_update(tree, SUMTREE_VALUE, 4, -NAN);
    const double masses[] = {1.0, NAN};
    int64_t position = -1;
    CHECK_STATUS(VALUE, sumtree_update_range(tree, 1, 2, masses, 1, &position));
    CHECK_INT(1, position);
    const double fine[] = {-INFINITY, INFINITY, -0.0, 0.0, -DBL_MAX};
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, 5, fine, 1, &position));
    const double given[] = {-INFINITY, INFINITY, -0.0, 0.0, -DBL_MAX, INFINITY, INFINITY, INFINITY};
    check_nodes(tree, given);
    sumtree_free(tree);
}

static void test_update_arguments(void) {
    sumtree_t *tree = make(5, SUMTREE_KIND_PRIORITY);
    const int64_t index = 1;
    const double mass = 1.0;
    remember(tree);
    CHECK_STATUS(ARGUMENT, sumtree_update(NULL, 1, &index, &mass, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update(tree, 1, NULL, &mass, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update(tree, 1, &index, NULL, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update(tree, -1, &index, &mass, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update(tree, 1, &index, &mass, 2, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update(tree, 1, &index, &mass, -1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update_range(NULL, 0, 1, &mass, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update_range(tree, 0, 1, NULL, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update_range(tree, 0, -1, &mass, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_update_range(tree, 0, 1, &mass, 2, NULL));
    CHECK_STATUS(OK, sumtree_update(tree, 0, NULL, NULL, 1, NULL));
    CHECK_STATUS(OK, sumtree_update(tree, 0, NULL, NULL, 0, NULL));
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, 0, NULL, 1, NULL));
    CHECK_STATUS(OK, sumtree_update_range(tree, 5, 0, NULL, 0, NULL));
    check_unchanged(tree);
    sumtree_free(tree);
}

static const int64_t BAD_STARTS[] = {-1, 6, 0, 5, INT64_MIN, INT64_MAX, 1};
static const int64_t BAD_COUNTS[] = {1, 0, 6, 1, 1, 1, INT64_MAX};

static void test_bad_ranges_of_leaves(void) {
    const double masses[8] = {0};
    double out[8];
    sumtree_t *tree = make(5, SUMTREE_KIND_PRIORITY);
    for (int k = 0; k < 7; ++k) {
        CHECK_STATUS(RANGE, sumtree_update_range(tree, BAD_STARTS[k], BAD_COUNTS[k], masses, 0, NULL));
        CHECK_STATUS(RANGE, sumtree_get_range(tree, BAD_STARTS[k], BAD_COUNTS[k], out));
    }
    sumtree_free(tree);
}

static void test_reading(void) {
    const double masses[] = {0.5, -0.0, 3.0, 0x1p960, 0x1p-1074};
    const int64_t indices[] = {4, 1, 1, 3, 0};
    double out[5];
    sumtree_t *tree = make_with(SUMTREE_KIND_SUM, 5, masses);
    CHECK_STATUS(OK, sumtree_get(tree, 5, indices, out, NULL));
    for (int k = 0; k < 5; ++k) CHECK_DOUBLE(masses[indices[k]] + 0.0, out[k]);
    CHECK_STATUS(OK, sumtree_get_range(tree, 2, 3, out));
    for (int k = 0; k < 3; ++k) CHECK_DOUBLE(masses[2 + k], out[k]);
    CHECK_STATUS(OK, sumtree_get(tree, 0, NULL, NULL, NULL));
    CHECK_STATUS(OK, sumtree_get_range(tree, 5, 0, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get(NULL, 1, indices, out, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get(tree, 1, NULL, out, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get(tree, 1, indices, NULL, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get(tree, -1, indices, out, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get_range(NULL, 0, 1, out));
    CHECK_STATUS(ARGUMENT, sumtree_get_range(tree, 0, 1, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_get_range(tree, 0, -1, out));
    sumtree_free(tree);
}

int main(void) {
    RUN(test_updates);
    RUN(test_last_duplicate_wins);
    RUN(test_no_drift);
    RUN(test_deep_updates);
    RUN(test_deep_ranges);
    RUN(test_range_after_update);
    RUN(test_bad_indices);
    RUN(test_bad_masses);
    RUN(test_bad_values);
    RUN(test_update_arguments);
    RUN(test_bad_ranges_of_leaves);
    RUN(test_reading);
    return report();
}
