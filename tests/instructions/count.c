/* What valgrind --tool=callgrind counts: this library's calls and the classic loops that do the same work, each in a
 * function of its own, on the same inputs. Ends with status 1 if the two do not agree. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sumtree.h"

enum { LEAVES = 1 << 16, MOST = 512, BATCHES = 40 };
#define MEASURED __attribute__((noinline))

static double plain_sum[2 * LEAVES];
static int64_t indices[BATCHES][MOST], found[2][MOST];
static double numbers[BATCHES][MOST], masses[2][MOST], weights[2][MOST];

static uint64_t next_word(void) {
    static uint64_t words = 1;
    words = words * 6364136223846793005u + 1442695040888963407u;
    return words >> 11;
}

static bool fail(const char *what) {
    (void)fprintf(stderr, "count: %s\n", what);
    return false;
}

/* ---- the classic loops ------------------------------------------------------------------------------------------- */

static bool plain_is_good(int64_t count, const int64_t *batch, const double *values) {
    for (int64_t k = 0; k < count; ++k) {
        if (batch[k] < 0 || batch[k] >= LEAVES || !(values[k] >= 0.0 && values[k] <= SUMTREE_MAX_MASS)) return false;
    }
    return true;
}

static void plain_update(int64_t count, const int64_t *batch, const double *values) {
    if (!plain_is_good(count, batch, values)) return;
    for (int64_t k = 0; k < count; ++k) {
        int64_t i = LEAVES + batch[k];
        plain_sum[i] = values[k];
        for (i >>= 1; i > 0; i >>= 1) plain_sum[i] = plain_sum[2 * i] + plain_sum[2 * i + 1];
    }
}

static int64_t plain_find(double target) {
    int64_t i = 1;
    while (i < LEAVES) {
        i *= 2;
        if (plain_sum[i] <= target) target -= plain_sum[i++];
    }
    return i - LEAVES;
}

static void plain_sample(sumtree_philox *rng, double smallest, double beta) {
    const double total = plain_sum[1], below = nextafter(total, 0.0);
    (void)sumtree_uniforms(rng, MOST, weights[1]);
    for (int64_t k = 0; k < MOST; ++k) {
        const double target = ((double)k + weights[1][k]) / MOST * total;
        found[1][k] = plain_find(target < below ? target : below);
        masses[1][k] = plain_sum[LEAVES + found[1][k]];
        weights[1][k] = pow(smallest / masses[1][k], beta);
    }
}

/* ---- what is measured -------------------------------------------------------------------------------------------- */

MEASURED void plain_update_8(void) {
    for (int b = 0; b < BATCHES; ++b) plain_update(8, indices[b], numbers[b]);
}
MEASURED void our_update_8(sumtree_t *tree) {
    for (int b = 0; b < BATCHES; ++b) (void)sumtree_update(tree, 8, indices[b], numbers[b], 1, NULL);
}
MEASURED void plain_update_512(void) {
    for (int b = 0; b < BATCHES; ++b) plain_update(MOST, indices[b], numbers[b]);
}
MEASURED void our_update_512(sumtree_t *tree) {
    for (int b = 0; b < BATCHES; ++b) (void)sumtree_update(tree, MOST, indices[b], numbers[b], 1, NULL);
}

/* With beta 0, for which every C library's pow is about as short: that of the library is not what is measured. */
MEASURED void plain_sample_512(sumtree_philox *rng, double smallest) {
    for (int b = 0; b < BATCHES; ++b) plain_sample(rng, smallest, 0.0);
}
MEASURED void our_sample_512(const sumtree_t *tree, sumtree_philox *rng) {
    for (int b = 0; b < BATCHES; ++b) (void)sumtree_sample(tree, rng, MOST, 0.0, 1, found[0], masses[0], weights[0]);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static bool same_trees(const sumtree_t *tree) {
    static double nodes[2 * LEAVES];
    plain_sum[0] = 0.0;
    return sumtree_nodes(tree, SUMTREE_PLANE_SUM, nodes) == SUMTREE_OK && memcmp(nodes, plain_sum, sizeof nodes) == 0;
}

static bool updates(sumtree_t *tree) {
    for (int b = 0; b < BATCHES; ++b) {
        for (int k = 0; k < MOST; ++k) {
            indices[b][k] = (int64_t)(next_word() % LEAVES);
            numbers[b][k] = (double)next_word() * 0x1p-53 + 0x1p-60;
        }
    }
    plain_update_8();
    our_update_8(tree);
    if (!same_trees(tree)) return fail("the updates of 8 differ");
    plain_update_512();
    our_update_512(tree);
    return same_trees(tree) || fail("the updates of 512 differ");
}

static bool samples(const sumtree_t *priorities) {
    sumtree_philox rng[2] = {{{1, 2}, {3, 4, 5, 6}, 4}, {{1, 2}, {3, 4, 5, 6}, 4}};
    double smallest = 0.0;
    (void)sumtree_root(priorities, SUMTREE_PLANE_MIN, &smallest);
    our_sample_512(priorities, &rng[0]);
    plain_sample_512(&rng[1], smallest);
    const bool same = memcmp(found[0], found[1], sizeof found[0]) == 0 &&
                      memcmp(masses[0], masses[1], sizeof masses[0]) == 0 &&
                      memcmp(weights[0], weights[1], sizeof weights[0]) == 0;
    return same || fail("the samples differ");
}

int main(void) {
    sumtree_t *sums = NULL, *priorities = NULL;
    if (sumtree_select_vector_level("baseline") != SUMTREE_OK) return 1;
    if (sumtree_create(LEAVES, SUMTREE_KIND_SUM, &sums) != SUMTREE_OK) return 1;
    if (sumtree_create(LEAVES, SUMTREE_KIND_PRIORITY, &priorities) != SUMTREE_OK) return 1;
    bool good = updates(sums);
    for (int64_t j = 0; j < LEAVES; ++j) plain_sum[LEAVES + j] = (double)next_word() * 0x1p-53 + 0x1p-60;
    for (int64_t i = LEAVES - 1; i > 0; --i) plain_sum[i] = plain_sum[2 * i] + plain_sum[2 * i + 1];
    good &= sumtree_update_range(priorities, 0, LEAVES, plain_sum + LEAVES, 1, NULL) == SUMTREE_OK;
    good &= samples(priorities);
    sumtree_free(sums);
    sumtree_free(priorities);
    return good ? 0 : 1;
}
