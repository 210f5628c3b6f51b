/* The trees against their contract, spelled out anew in the plainest way. */
#define _DEFAULT_SOURCE
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "planes.h"
#include "test.h"
#include "tree.h"

enum { KINDS = 3, PLANES = 3, MOST = 4096 };
static const double MAX_MASS = 0x1p960;
static const double TINY = 0x1p-1074;

/* ---- tools ------------------------------------------------------------------------------------------------------- */

static uint64_t words;

static void seed(uint64_t value) { words = value; }

/* Knuth's MMIX generator; its high bits are good enough for inputs. */
static uint64_t next_word(void) {
    words = words * 6364136223846793005u + 1442695040888963407u;
    return words >> 11;
}

static int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

static int64_t below(int64_t bound) { return (int64_t)(next_word() % (uint64_t)bound); }

/* Zeros, subnormals, huge masses and ordinary ones. */
static double any_mass(void) {
    static const double extremes[] = {0.0, -0.0, 0x1p-1074, 0x1.8p-1040, DBL_MIN, 1.0, 0x1p900, 0x1p960};
    const int64_t choice = below(16);
    return choice < 8 ? extremes[choice] : (double)next_word() * 0x1p-53 + 0x1p-60;
}

static sumtree_t *make(int64_t capacity, sumtree_kind kind) {
    sumtree_t *tree = NULL;
    CHECK_STATUS(OK, sumtree_create(capacity, kind, &tree));
    if (tree == NULL) exit(2);
    return tree;
}

static sumtree_t *make_with(sumtree_kind kind, int64_t count, const double *masses) {
    sumtree_t *tree = make(count, kind);
    CHECK_STATUS(OK, sumtree_update_range(tree, 0, count, masses, 1, NULL));
    return tree;
}

static double unset(sumtree_plane plane) { return plane == SUMTREE_PLANE_MIN ? INFINITY : 0.0; }

static double combine(sumtree_plane plane, double left, double right) {
    if (plane == SUMTREE_PLANE_SUM) return left + right;
    if (plane == SUMTREE_PLANE_MIN) return right < left ? right : left;
    return right > left ? right : left;
}

static bool has(sumtree_kind kind, sumtree_plane plane) {
    if (kind == SUMTREE_KIND_PRIORITY) return true;
    return plane == (kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM);
}

/* What a plane makes of the number that a leaf was given. */
static double seen(sumtree_kind kind, sumtree_plane plane, double given) {
    if (kind == SUMTREE_KIND_MIN) return given;
    return plane == SUMTREE_PLANE_MIN && given == 0.0 ? INFINITY : given + 0.0;
}

/* All nodes of a plane over padded leaves, from the numbers that the leaves were given. */
static void naive_nodes(sumtree_kind kind, sumtree_plane plane, int64_t padded, const double *given, double *nodes) {
    nodes[0] = 0.0;
    for (int64_t j = 0; j < padded; ++j) nodes[padded + j] = seen(kind, plane, given[j]);
    for (int64_t i = padded - 1; i > 0; --i) nodes[i] = combine(plane, nodes[2 * i], nodes[2 * i + 1]);
}

static void check_nodes(const sumtree_t *tree, const double *given) {
    static double expected[2 * MOST], actual[2 * MOST];
    const int64_t padded = sumtree_padded_capacity(tree);
    for (int p = 0; p < PLANES; ++p) {
        const sumtree_plane plane = (sumtree_plane)p;
        if (!has(sumtree_get_kind(tree), plane)) continue;
        naive_nodes(sumtree_get_kind(tree), plane, padded, given, expected);
        CHECK_STATUS(OK, sumtree_nodes(tree, plane, actual));
        CHECK(memcmp(expected, actual, (size_t)(2 * padded) * sizeof(double)) == 0);
        double root = NAN;
        CHECK_STATUS(OK, sumtree_root(tree, plane, &root));
        CHECK_DOUBLE(expected[1], root);
    }
    CHECK_STATUS(OK, sumtree_validate(tree, NULL, NULL));
}

/* What a call that fails must leave alone. */
static double before[PLANES][2 * MOST];

static void remember(const sumtree_t *tree) {
    for (int p = 0; p < PLANES; ++p) (void)sumtree_nodes(tree, (sumtree_plane)p, before[p]);
}

static void check_unchanged(const sumtree_t *tree) {
    static double now[2 * MOST];
    const size_t bytes = (size_t)(2 * sumtree_padded_capacity(tree)) * sizeof(double);
    for (int p = 0; p < PLANES; ++p) {
        if (sumtree_nodes(tree, (sumtree_plane)p, now) == SUMTREE_OK) CHECK(memcmp(now, before[p], bytes) == 0);
    }
}

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
            masses[k] = kind == SUMTREE_KIND_MIN && below(3) == 0 ? -any_mass() : any_mass();
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
        const double mass = any_mass();
        CHECK_STATUS(OK, sumtree_update(tree, 1, &third, &mass, 1, NULL));
        CHECK_STATUS(OK, sumtree_update(tree, 1, &third, ones, 1, NULL));
    }
    check_nodes(tree, ones);
    sumtree_free(tree);
}

/* ---- trees too large for the caches, and batches for a team of threads ------------------------------------------- */

enum { DEEP = 100000, LONGEST = 20000 };
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
            deep_masses[k] = kind == SUMTREE_KIND_MIN ? -any_mass() : any_mass();
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

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Every range of a tree against the same tree with the other leaves unset. */
static void check_ranges(int64_t capacity, sumtree_kind kind) {
    double masses[64] = {0}, kept[64] = {0}, expected, actual;
    const sumtree_plane plane = kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
    for (int64_t j = 0; j < capacity; ++j) masses[j] = any_mass();
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
    for (int64_t j = 0; j < capacity; ++j) masses[j] = below(3) == 0 ? 0.0 : any_mass();
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
    static double nodes[4 * DEEP], targets[LONGEST];
    static int64_t indices[LONGEST];
    seed(7);
    for (int64_t j = 0; j < DEEP; ++j) deep_given[j] = below(4) == 0 ? (double)below(9) : 0.0;
    sumtree_t *tree = make_with(SUMTREE_KIND_SUM, DEEP, deep_given);
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

static bool same_rng(const sumtree_philox *a, const sumtree_philox *b) {
    return memcmp(a->key, b->key, sizeof a->key) == 0 && memcmp(a->counter, b->counter, sizeof a->counter) == 0 &&
           a->buffer_pos == b->buffer_pos;
}

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
    RUN(test_library);
    RUN(test_status_table);
    RUN(test_capacity);
    RUN(test_bad_capacity);
    RUN(test_no_memory);
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
    RUN(test_ranges);
    RUN(test_range_errors);
    RUN(test_planes_of_kinds);
    RUN(test_min_and_max_forget);
    RUN(test_find_errors);
    RUN(test_vector_levels);
    test_descents_at_all_levels();
    RUN(test_sample_errors);
    RUN(test_masses);
    RUN(test_masses_errors);
    RUN(test_corrupt_leaves_of_masses);
    RUN(test_corrupt_leaves_of_minima);
    RUN(test_corrupt_nodes);
    RUN(test_leaf_without_its_ancestors);
    return report();
}
