/* libFuzzer: the functions of sumtree.h with arguments of every kind, against the contract in its plainest form. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sumtree.h"

enum { MOST = 70, BATCH = 40, PLANES = 3 };

static const double NUMBERS[] = {0.0,
                                 -0.0,
                                 1.0,
                                 0.5,
                                 3.0,
                                 -1.0,
                                 0x1p-1074,
                                 0x1.8p-1040,
                                 0x1p-1022,
                                 0x1p900,
                                 0x1p959,
                                 0x1p960,
                                 0x1.0000000000001p960,
                                 INFINITY,
                                 -INFINITY,
                                 NAN};

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- the input as choices ---------------------------------------------------------------------------------------- */

static const uint8_t *input;
static size_t left;

static uint8_t byte(void) {
    if (left == 0) return 0;
    --left;
    return *input++;
}

static int64_t below(int64_t bound) { return byte() % bound; }

static double raw_double(void) {
    uint8_t bytes[8];
    double value = 0.0;
    for (int i = 0; i < 8; ++i) bytes[i] = byte();
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Mostly small numbers that can be; now and then anything. */
static double number(void) {
    const uint8_t choice = byte();
    if (choice < 16) return NUMBERS[choice];
    if (choice < 24) return raw_double();
    return (choice - 24) * 0.25;
}

static int64_t place(int64_t capacity) {
    const uint8_t choice = byte();
    if (choice >= 250)
        return (int64_t[]){-1, INT64_MAX, INT64_MIN, capacity, capacity + 1, (int64_t)1 << 40}[choice - 250];
    return choice % capacity;
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

typedef struct model {
    sumtree_kind kind;
    int64_t capacity, padded;
    double given[2 * MOST];
} model;

static bool has(sumtree_kind kind, int plane) {
    if (kind == SUMTREE_KIND_PRIORITY) return true;
    return plane == (kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM);
}

static double unset(int plane) { return plane == SUMTREE_PLANE_MIN ? INFINITY : 0.0; }

static double combined(int plane, double l, double r) {
    if (plane == SUMTREE_PLANE_SUM) return l + r;
    if (plane == SUMTREE_PLANE_MIN) return r < l ? r : l;
    return r > l ? r : l;
}

static double leaf(const model *m, int plane, int64_t j) {
    const double given = m->given[j];
    if (m->kind == SUMTREE_KIND_MIN) return given;
    return plane == SUMTREE_PLANE_MIN && given == 0.0 ? INFINITY : given;
}

static void nodes_of(const model *m, int plane, int64_t start, int64_t stop, double *nodes) {
    nodes[0] = 0.0;
    for (int64_t j = 0; j < m->padded; ++j) {
        nodes[m->padded + j] = j >= start && j < stop ? leaf(m, plane, j) : unset(plane);
    }
    for (int64_t i = m->padded - 1; i > 0; --i) nodes[i] = combined(plane, nodes[2 * i], nodes[2 * i + 1]);
}

static bool is_right(const model *m, double mass) {
    if (m->kind == SUMTREE_KIND_MIN) return !isnan(mass);
    return mass >= 0.0 && mass <= SUMTREE_MAX_MASS;
}

static void set(model *m, int64_t j, double mass) { m->given[j] = m->kind == SUMTREE_KIND_MIN ? mass : mass + 0.0; }

static int64_t descend(const model *m, const double *sums, double rest, bool left_side) {
    int64_t i = 1;
    while (i < m->padded) {
        const double l = sums[2 * i], r = sums[2 * i + 1];
        const bool goes_left = left_side ? (l >= rest && l > 0.0) || r == 0.0 : l > rest || r == 0.0;
        if (!goes_left) rest -= l;
        i = 2 * i + !goes_left;
    }
    return i - m->padded;
}

/* The whole array, bit for bit: after an error as before it. */
static void compare(const model *m, const sumtree_t *tree) {
    static double expected[4 * MOST], found[4 * MOST];
    for (int plane = 0; plane < PLANES; ++plane) {
        const sumtree_status status = sumtree_nodes(tree, (sumtree_plane)plane, found);
        REQUIRE(status == (has(m->kind, plane) ? SUMTREE_OK : SUMTREE_KIND));
        if (status != SUMTREE_OK) continue;
        nodes_of(m, plane, 0, m->capacity, expected);
        REQUIRE(memcmp(expected, found, (size_t)(2 * m->padded) * sizeof(double)) == 0);
        double root = NAN;
        REQUIRE(sumtree_root(tree, (sumtree_plane)plane, &root) == SUMTREE_OK);
        REQUIRE(memcmp(&root, &expected[1], sizeof root) == 0);
    }
    REQUIRE(sumtree_validate(tree, NULL, NULL) == SUMTREE_OK);
}

/* ---- one call of each kind --------------------------------------------------------------------------------------- */

static sumtree_status bad_mass(const model *m) { return m->kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS; }

static void update(model *m, sumtree_t *tree) {
    int64_t indices[BATCH], position = -7, bad_at = -7;
    double masses[BATCH];
    const int64_t count = below(BATCH), step = below(2);
    sumtree_status expected = SUMTREE_OK;
    for (int64_t k = 0; k < count; ++k) indices[k] = place(m->capacity);
    for (int64_t k = 0; k < BATCH; ++k) masses[k] = k < count ? number() : 0.0;
    for (int64_t k = count - 1; k >= 0; --k) {
        if (!is_right(m, masses[step * k])) expected = bad_mass(m), bad_at = k;
    }
    if (expected != SUMTREE_OK && step == 0) bad_at = 0;
    for (int64_t k = count - 1; k >= 0; --k) {
        if (indices[k] < 0 || indices[k] >= m->capacity) expected = SUMTREE_INDEX, bad_at = k;
    }
    REQUIRE(sumtree_update(tree, count, indices, masses, step, &position) == expected);
    REQUIRE(position == bad_at);
    for (int64_t k = 0; expected == SUMTREE_OK && k < count; ++k) set(m, indices[k], masses[step * k]);
}

static void update_range(model *m, sumtree_t *tree) {
    double masses[BATCH];
    const int64_t start = place(m->capacity), count = below(BATCH), step = below(2);
    sumtree_status expected = SUMTREE_OK;
    for (int64_t k = 0; k < BATCH; ++k) masses[k] = k < count ? number() : 0.0;
    for (int64_t k = 0; k < count; ++k) {
        if (!is_right(m, masses[step * k])) expected = bad_mass(m);
    }
    if (start < 0 || start > m->capacity || count > m->capacity - start) expected = SUMTREE_RANGE;
    REQUIRE(sumtree_update_range(tree, start, count, masses, step, NULL) == expected);
    for (int64_t k = 0; expected == SUMTREE_OK && k < count; ++k) set(m, start + k, masses[step * k]);
}

static void get(const model *m, const sumtree_t *tree) {
    int64_t indices[BATCH], position = -7, bad_at = -7;
    double masses[BATCH];
    const int64_t count = below(BATCH);
    for (int64_t k = 0; k < count; ++k) indices[k] = place(m->capacity);
    for (int64_t k = count - 1; k >= 0; --k) {
        if (indices[k] < 0 || indices[k] >= m->capacity) bad_at = k;
    }
    const sumtree_status status = sumtree_get(tree, count, indices, masses, &position);
    REQUIRE(status == (bad_at >= 0 ? SUMTREE_INDEX : SUMTREE_OK) && position == bad_at);
    for (int64_t k = 0; status == SUMTREE_OK && k < count; ++k) {
        REQUIRE(memcmp(&masses[k], &m->given[indices[k]], sizeof(double)) == 0);
    }
}

static void reduce(const model *m, const sumtree_t *tree) {
    static double nodes[4 * MOST];
    const int64_t start = place(m->capacity), stop = place(m->capacity);
    const bool is_range = 0 <= start && start <= stop && stop <= m->capacity;
    for (int plane = 0; plane < 2; ++plane) {
        double found = -7.0;
        const bool of_kind = (plane == SUMTREE_PLANE_MIN) == (m->kind == SUMTREE_KIND_MIN);
        const sumtree_status status = plane == SUMTREE_PLANE_MIN ? sumtree_min(tree, start, stop, &found)
                                                                 : sumtree_sum(tree, start, stop, &found);
        REQUIRE(status == (!of_kind ? SUMTREE_KIND : is_range ? SUMTREE_OK : SUMTREE_RANGE));
        if (status != SUMTREE_OK) continue;
        nodes_of(m, plane, start, stop, nodes);
        REQUIRE(memcmp(&found, &nodes[1], sizeof found) == 0);
    }
}

static void find(const model *m, const sumtree_t *tree) {
    static double sums[4 * MOST];
    double targets[BATCH];
    int64_t indices[BATCH], position = -7, bad_at = -7;
    const int64_t count = below(BATCH), side = below(2);
    if (m->kind == SUMTREE_KIND_MIN) {
        REQUIRE(sumtree_find(tree, count, targets, SUMTREE_SIDE_RIGHT, indices, NULL) == SUMTREE_KIND);
        return;
    }
    nodes_of(m, SUMTREE_PLANE_SUM, 0, m->capacity, sums);
    for (int64_t k = 0; k < count; ++k) targets[k] = below(4) == 0 ? number() : sums[1] * (byte() / 255.0);
    for (int64_t k = count - 1; k >= 0; --k) {
        if (!(targets[k] >= 0.0 && targets[k] <= sums[1])) bad_at = k;
    }
    sumtree_status expected = bad_at >= 0 ? SUMTREE_TARGET : SUMTREE_OK;
    if (count > 0 && sums[1] == 0.0) expected = SUMTREE_EMPTY, bad_at = -7;
    REQUIRE(sumtree_find(tree, count, targets, (sumtree_side)side, indices, &position) == expected);
    REQUIRE(position == bad_at);
    for (int64_t k = 0; expected == SUMTREE_OK && k < count; ++k) {
        REQUIRE(indices[k] == descend(m, sums, targets[k], side == SUMTREE_SIDE_LEFT));
        REQUIRE(m->given[indices[k]] > 0.0);
    }
}

static void sample(const model *m, const sumtree_t *tree, sumtree_philox *rng) {
    int64_t indices[BATCH];
    double masses[BATCH], weights[BATCH], total = 0.0;
    const int64_t count = below(BATCH);
    const double beta = below(4) == 0 ? number() : 0.5;
    const sumtree_philox before = *rng;
    const sumtree_status status = sumtree_sample(tree, rng, count, beta, (int32_t)below(2), indices, masses, weights);
    if (m->kind == SUMTREE_KIND_PRIORITY) REQUIRE(sumtree_root(tree, SUMTREE_PLANE_SUM, &total) == SUMTREE_OK);
    sumtree_status expected = count > 0 && total == 0.0 ? SUMTREE_EMPTY : SUMTREE_OK;
    if (!(beta >= 0.0 && beta <= 1.0)) expected = SUMTREE_EXPONENT;
    if (m->kind != SUMTREE_KIND_PRIORITY) expected = SUMTREE_KIND;
    REQUIRE(status == expected);
    if (status != SUMTREE_OK) REQUIRE(memcmp(&before, rng, sizeof before) == 0);
    for (int64_t k = 0; status == SUMTREE_OK && k < count; ++k) {
        REQUIRE(indices[k] >= 0 && indices[k] < m->capacity && masses[k] > 0.0);
        REQUIRE(memcmp(&masses[k], &m->given[indices[k]], sizeof(double)) == 0);
        REQUIRE(weights[k] >= 0.0 && weights[k] <= 1.0);
    }
}

/* What needs no tree, and pointers and choices that are none. */
static void others(sumtree_t *tree) {
    double priorities[BATCH], masses[BATCH];
    int64_t position = -7;
    const int64_t count = below(BATCH);
    const double alpha = number();
    for (int64_t k = 0; k < count; ++k) priorities[k] = number();
    const sumtree_status status = sumtree_masses(count, priorities, alpha, masses, &position);
    REQUIRE((status == SUMTREE_EXPONENT) == !(alpha >= 0.0 && alpha < INFINITY));
    REQUIRE((status == SUMTREE_PRIORITY) == (position >= 0));
    for (int64_t k = 0; status == SUMTREE_OK && k < count; ++k) {
        REQUIRE(masses[k] >= 0.0 && masses[k] <= SUMTREE_MAX_MASS);
    }
    sumtree_philox rng = {{1, 2}, {3, 4, 5, 6}, (int32_t)byte() - 100};
    const bool is_state = rng.buffer_pos >= 0 && rng.buffer_pos <= 4;
    REQUIRE(sumtree_uniforms(&rng, 3, masses) == (is_state ? SUMTREE_OK : SUMTREE_ARGUMENT));
    REQUIRE(sumtree_update(tree, -1, NULL, NULL, 1, NULL) == SUMTREE_ARGUMENT);
    REQUIRE(sumtree_update(tree, 1, NULL, masses, 1, NULL) == SUMTREE_ARGUMENT);
    REQUIRE(sumtree_get(NULL, 0, NULL, NULL, NULL) == SUMTREE_ARGUMENT);
    REQUIRE(strlen(sumtree_strerror((int32_t)byte() - 100)) > 0);
    sumtree_t *none = tree;
    const int64_t capacity = (int64_t[]){0, -1, INT64_MIN, SUMTREE_MAX_CAPACITY + 1, INT64_MAX}[below(5)];
    REQUIRE(sumtree_create(capacity, SUMTREE_KIND_SUM, &none) == SUMTREE_CAPACITY && none == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input = data, left = size;
    model m = {.kind = (sumtree_kind)below(3), .capacity = 1 + below(MOST), .padded = 1};
    while (m.padded < m.capacity) m.padded *= 2;
    for (int64_t j = 0; j < 2 * MOST; ++j) m.given[j] = m.kind == SUMTREE_KIND_MIN ? INFINITY : 0.0;
    sumtree_philox rng = {{1, 2}, {3, 4, 5, 6}, (int32_t)below(5)};
    const char *const levels[] = {"baseline", "avx2", "avx512"};
    (void)sumtree_select_vector_level(levels[below(3)]); /* ARGUMENT where the processor has no such level */
    sumtree_t *tree = NULL;
    REQUIRE(sumtree_create(m.capacity, m.kind, &tree) == SUMTREE_OK);
    while (left > 0) {
        switch (below(8)) {
        case 0:
        case 1:
            update(&m, tree);
            break;
        case 2:
            update_range(&m, tree);
            break;
        case 3:
            get(&m, tree);
            break;
        case 4:
            reduce(&m, tree);
            break;
        case 5:
            find(&m, tree);
            break;
        case 6:
            sample(&m, tree, &rng);
            break;
        default:
            others(tree);
            break;
        }
        compare(&m, tree);
    }
    sumtree_free(tree);
    return 0;
}
