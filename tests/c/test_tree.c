/* Trees as a whole: the library, their life, their reductions, and what is found wrong with them. */
#include "trees.h"

/* ---- the library ------------------------------------------------------------------------------------------------- */

static void test_library(void) {
    CHECK_INT(SUMTREE_ABI_VERSION, sumtree_abi_version());
    const char *backend = sumtree_backend();
    CHECK(strcmp(backend, "cpu") == 0 || strcmp(backend, "multicore") == 0 || strcmp(backend, "gpu") == 0);
}

/* The codes are part of the ABI: they are spelled out here, and may only be added to. */
static void test_status_table(void) {
    static const char *const names[] = {"OK",       "ARGUMENT", "CAPACITY", "MEMORY",   "INDEX",
                                        "RANGE",    "MASS",     "VALUE",    "PRIORITY", "TARGET",
                                        "EXPONENT", "EMPTY",    "KIND",     "CORRUPT",  "DEVICE"};
    enum { NAMES = sizeof names / sizeof names[0] };
    CHECK_INT(NAMES, SUMTREE_STATUS_COUNT);
    for (int32_t status = 0; status < SUMTREE_STATUS_COUNT; ++status) {
        CHECK(strcmp(names[status], sumtree_status_name(status)) == 0);
        CHECK(strlen(sumtree_strerror(status)) > 0);
        for (int32_t other = 0; other < status; ++other) {
            CHECK(strcmp(sumtree_strerror(status), sumtree_strerror(other)) != 0);
        }
    }
    static const int32_t outside[] = {-1, SUMTREE_STATUS_COUNT, INT32_MIN, INT32_MAX};
    for (int k = 0; k < 4; ++k) {
        CHECK(strcmp("unknown status", sumtree_strerror(outside[k])) == 0);
        CHECK(strcmp("unknown status", sumtree_status_name(outside[k])) == 0);
    }
}

/* ---- life cycle -------------------------------------------------------------------------------------------------- */

static void test_capacity(void) {
    static const int64_t capacities[] = {1, 2, 3, 4, 5, 8, 9, 1000, 1024, 1025, 65535, 65536, 65537};
    static const int64_t padded[] = {1, 2, 4, 4, 8, 8, 16, 1024, 1024, 2048, 65536, 65536, 131072};
    for (int k = 0; k < 13; ++k) {
        for (int kind = 0; kind < KINDS; ++kind) {
            sumtree_t *tree = make(capacities[k], (sumtree_kind)kind);
            CHECK_INT(capacities[k], sumtree_capacity(tree));
            CHECK_INT(padded[k], sumtree_padded_capacity(tree));
            CHECK_INT(kind, sumtree_get_kind(tree));
            CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
            const uint64_t planes = kind == SUMTREE_KIND_PRIORITY ? 4 : 2;
            CHECK(sumtree_bytes(capacities[k], (sumtree_kind)kind) >= planes * 8 * (uint64_t)padded[k]);
            sumtree_free(tree);
        }
    }
    sumtree_free(NULL);
}

static void test_bad_capacity(void) {
    static const int64_t bad[] = {0, -1, INT64_MIN, INT64_MAX, SUMTREE_MAX_CAPACITY + 1};
    sumtree_t other;
    for (int k = 0; k < 5; ++k) {
        sumtree_t *tree = &other;
        CHECK_STATUS(CAPACITY, sumtree_create(bad[k], SUMTREE_KIND_SUM, &tree));
        CHECK(tree == NULL);
        CHECK(sumtree_bytes(bad[k], SUMTREE_KIND_SUM) == 0);
    }
    sumtree_t *tree = &other;
    CHECK_STATUS(ARGUMENT, sumtree_create(4, (sumtree_kind)KINDS, &tree));
    CHECK(tree == NULL);
    CHECK_STATUS(ARGUMENT, sumtree_create(4, SUMTREE_KIND_SUM, NULL));
}

static void test_no_memory(void) {
    CHECK_INT((int64_t)1 << 40, SUMTREE_MAX_CAPACITY);
    for (int kind = 0; kind < KINDS; ++kind) {
        sumtree_t other, *tree = &other;
        CHECK(sumtree_bytes(SUMTREE_MAX_CAPACITY, (sumtree_kind)kind) > (uint64_t)1 << 44);
        CHECK_STATUS(MEMORY, sumtree_create(SUMTREE_MAX_CAPACITY, (sumtree_kind)kind, &tree));
        CHECK(tree == NULL);
    }
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Every range of a tree against the same tree with the other leaves unset. */
static void check_ranges(int64_t capacity, sumtree_kind kind) {
    double masses[64] = {0}, kept[64] = {0}, expected, actual;
    const sumtree_plane plane = kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
    for (int64_t j = 0; j < capacity; ++j) masses[j] = any_mass(16);
    sumtree_t *tree = make_with(kind, capacity, masses);
    for (int64_t start = 0; start <= capacity; ++start) {
        for (int64_t stop = start; stop <= capacity; ++stop) {
            for (int64_t j = 0; j < capacity; ++j) kept[j] = j >= start && j < stop ? masses[j] : unset(plane);
            sumtree_t *other = make_with(kind, capacity, kept);
            CHECK_STATUS(OK, sumtree_root(other, plane, &expected));
            CHECK_STATUS(OK, (kind == SUMTREE_KIND_MIN ? sumtree_min : sumtree_sum)(tree, start, stop, &actual));
            CHECK_DOUBLE(expected, actual);
            sumtree_free(other);
        }
    }
    sumtree_free(tree);
}

static void test_ranges(void) {
    seed(2);
    for (int64_t capacity = 1; capacity <= 20; ++capacity) {
        for (int kind = 0; kind < KINDS; ++kind) check_ranges(capacity, (sumtree_kind)kind);
    }
}

static void test_range_errors(void) {
    static const int64_t starts[] = {-1, 3, 0, 6, INT64_MIN, INT64_MAX, 0};
    static const int64_t stops[] = {1, 2, 6, 6, INT64_MAX, INT64_MIN, -1};
    double value = -7.0;
    sumtree_t *sums = make(5, SUMTREE_KIND_PRIORITY), *mins = make(5, SUMTREE_KIND_MIN);
    for (int k = 0; k < 7; ++k) {
        CHECK_STATUS(RANGE, sumtree_sum(sums, starts[k], stops[k], &value));
        CHECK_STATUS(RANGE, sumtree_min(mins, starts[k], stops[k], &value));
    }
    CHECK_STATUS(KIND, sumtree_sum(mins, 0, 5, &value));
    CHECK_STATUS(KIND, sumtree_min(sums, 0, 5, &value));
    CHECK_STATUS(ARGUMENT, sumtree_sum(NULL, 0, 5, &value));
    CHECK_STATUS(ARGUMENT, sumtree_sum(sums, 0, 5, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_min(NULL, 0, 5, &value));
    CHECK_STATUS(ARGUMENT, sumtree_min(mins, 0, 5, NULL));
    CHECK_DOUBLE(-7.0, value);
    sumtree_free(sums);
    sumtree_free(mins);
}

static void test_planes_of_kinds(void) {
    double value = -7.0, nodes[16];
    for (int kind = 0; kind < KINDS; ++kind) {
        sumtree_t *tree = make(5, (sumtree_kind)kind);
        for (int p = 0; p <= PLANES; ++p) {
            const bool there = p < PLANES && has((sumtree_kind)kind, (sumtree_plane)p);
            const int32_t expected = there ? SUMTREE_OK : SUMTREE_KIND;
            CHECK_INT(expected, sumtree_root(tree, (sumtree_plane)p, &value));
            CHECK_INT(expected, sumtree_nodes(tree, (sumtree_plane)p, nodes));
            if (there) CHECK_DOUBLE(unset((sumtree_plane)p), value);
        }
        CHECK_STATUS(ARGUMENT, sumtree_root(tree, SUMTREE_PLANE_SUM, NULL));
        CHECK_STATUS(ARGUMENT, sumtree_nodes(tree, SUMTREE_PLANE_SUM, NULL));
        sumtree_free(tree);
    }
    CHECK_STATUS(ARGUMENT, sumtree_root(NULL, SUMTREE_PLANE_SUM, &value));
    CHECK_STATUS(ARGUMENT, sumtree_nodes(NULL, SUMTREE_PLANE_SUM, nodes));
}

/* min and max of a priority tree are of the positive masses held now. */
static void test_min_and_max_forget(void) {
    double masses[] = {0.0, 7.0, 0.5, 3.0, 0.0}, min, max;
    sumtree_t *tree = make_with(SUMTREE_KIND_PRIORITY, 5, masses);
    static const int64_t order[] = {1, 2, 3};
    static const double mins[] = {0.5, 3.0, INFINITY}, maxes[] = {3.0, 3.0, 0.0};
    const double zero = -0.0;
    for (int k = 0; k < 3; ++k) {
        CHECK_STATUS(OK, sumtree_update(tree, 1, &order[k], &zero, 1, NULL));
        CHECK_STATUS(OK, sumtree_root(tree, SUMTREE_PLANE_MIN, &min));
        CHECK_STATUS(OK, sumtree_root(tree, SUMTREE_PLANE_MAX, &max));
        CHECK_DOUBLE(mins[k], min);
        CHECK_DOUBLE(maxes[k], max);
    }
    sumtree_free(tree);
}

/* ---- self-check -------------------------------------------------------------------------------------------------- */

/* Overwrites one double of a tree, looks whether it is found there, and puts it back. */
static void check_found(const sumtree_t *tree, double *memory, sumtree_plane plane, int64_t node, double wrong) {
    const double right = peek(tree, memory + node);
    sumtree_plane found_plane = (sumtree_plane)PLANES;
    int64_t found_node = -1;
    poke(tree, memory + node, wrong);
    CHECK_STATUS(CORRUPT, sumtree_validate(tree, &found_plane, &found_node));
    CHECK_STATUS(CORRUPT, sumtree_validate(tree, NULL, NULL));
    CHECK_INT(plane, found_plane);
    CHECK_INT(node, found_node);
    poke(tree, memory + node, right);
    CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
}

static const double FIVE[] = {1.5, 2.5, 0.0, 3.0, 4.0};

static void test_corrupt_leaves_of_masses(void) {
    const double wrong[] = {-1.0, -0.0, NAN, INFINITY, 0x1.1p960}, padding[] = {1.0, -0.0, TINY, NAN};
    for (int kind = 0; kind < KINDS; kind += 2) {
        sumtree_t *tree = make_with((sumtree_kind)kind, 5, FIVE);
        for (int k = 0; k < 5; ++k) check_found(tree, tree->sum, SUMTREE_PLANE_SUM, 8 + k, wrong[k]);
        for (int j = 5; j < 8; ++j) {
            for (int k = 0; k < 4; ++k) check_found(tree, tree->sum, SUMTREE_PLANE_SUM, 8 + j, padding[k]);
        }
        sumtree_free(tree);
    }
}

static void test_corrupt_leaves_of_minima(void) {
    const double padding[] = {1.0, -INFINITY, NAN, DBL_MAX};
    sumtree_t *tree = make_with(SUMTREE_KIND_MIN, 5, FIVE);
    check_found(tree, tree->min, SUMTREE_PLANE_MIN, 8, NAN);
    for (int j = 5; j < 8; ++j) {
        for (int k = 0; k < 4; ++k) check_found(tree, tree->min, SUMTREE_PLANE_MIN, 8 + j, padding[k]);
    }
    sumtree_free(tree);
}

/* Every node of every plane, off by its last bit. Deeper nodes are looked at first, so the one overwritten is named
 * unless its parent is wrong too: the parent has a smaller number and is looked at later. */
static void test_corrupt_nodes(void) {
    for (int kind = 0; kind < KINDS; ++kind) {
        sumtree_t *tree = make_with((sumtree_kind)kind, 5, FIVE);
        double *memory[] = {tree->sum, tree->min, tree->max};
        for (int p = 0; p < PLANES; ++p) {
            if (!has((sumtree_kind)kind, (sumtree_plane)p)) continue;
            for (int64_t node = 1; node < 8; ++node) {
                const double right = peek(tree, memory[p] + node);
                const double off = isinf(right) ? DBL_MAX : nextafter(right, 100.0);
                check_found(tree, memory[p], (sumtree_plane)p, node, off);
                check_found(tree, memory[p], (sumtree_plane)p, node, NAN);
            }
        }
        sumtree_free(tree);
    }
    CHECK_STATUS(ARGUMENT, sumtree_validate(NULL, NULL, NULL));
}

/* A changed leaf within its domain shows in the node above it. */
static void test_leaf_without_its_ancestors(void) {
    sumtree_t *tree = make_with(SUMTREE_KIND_PRIORITY, 5, FIVE);
    int64_t node = -1;
    poke(tree, tree->sum + 8 + 4, 4.5);
    CHECK_STATUS(CORRUPT, sumtree_validate(tree, NULL, &node));
    CHECK_INT(6, node);
    sumtree_free(tree);
}

int main(void) {
    RUN(test_library);
    RUN(test_status_table);
    RUN(test_capacity);
    RUN(test_bad_capacity);
    RUN(test_no_memory);
    RUN(test_ranges);
    RUN(test_range_errors);
    RUN(test_planes_of_kinds);
    RUN(test_min_and_max_forget);
    RUN(test_corrupt_leaves_of_masses);
    RUN(test_corrupt_leaves_of_minima);
    RUN(test_corrupt_nodes);
    RUN(test_leaf_without_its_ancestors);
    return report();
}
