/* Trees of the gpu backend, long enough for every kernel, by arrays in host memory and in that of a device.
 * Without a device, LIBSUMTREE_GPU_ON_HOST=for-tests runs all of it on the host. */
#include "twins.h"

enum { LONG = (1 << 20) + 5 };

/* ---- updates ----------------------------------------------------------------------------------------------------- */

static sumtree_status update_there(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                   int64_t step, int64_t *position) {
    int64_t *there_indices = up(indices, (size_t)count * sizeof *indices);
    double *there_masses = up(masses, (size_t)(step == 0 && count > 0 ? 1 : count) * sizeof *masses);
    const sumtree_status status = sumtree_device_update(tree, count, there_indices, there_masses, step, position);
    give_back(there_indices);
    give_back(there_masses);
    return status;
}

/* A batch: random, all in one place, or one after the other, with many duplicates. */
static void fill_batch(const twin *t, int64_t count, int64_t *indices, double *masses) {
    const int64_t shape = below(4), start = below(t->capacity), narrow = below(t->capacity) + 1;
    for (int64_t k = 0; k < count; ++k) {
        indices[k] = shape == 0   ? (start + k) % t->capacity
                     : shape == 1 ? (start + below(9)) % t->capacity
                     : shape == 2 ? below(narrow)
                                  : below(t->capacity);
        if (k % 3 == 2) indices[k] = indices[k - 1];
        masses[k] = t->kind == SUMTREE_KIND_MIN && below(3) == 0 ? -any_mass(64) : any_mass(64);
    }
}

static void check_updates(int64_t capacity, sumtree_kind kind, bool there) {
    static const int64_t counts[] = {1, 2, 8, 500, 512, 4095, 4096, 4097, 9000, 0};
    static int64_t indices[9000];
    static double masses[9000];
    twin t = make_twin(capacity, kind);
    check_nodes(&t);
    for (int c = 0; c < 10; ++c) {
        for (int64_t step = 0; step < 2; ++step) {
            fill_batch(&t, counts[c], indices, masses);
            for (int64_t k = 0; k < counts[c]; ++k) set_leaf(&t, indices[k], masses[k * step]);
            int64_t position = -7;
            CHECK_STATUS(OK,
                         (there ? update_there : sumtree_update)(t.tree, counts[c], indices, masses, step, &position));
            CHECK_INT(-7, position);
            if (below(2) == 0) check_nodes(&t); /* or else the next update meets a crown that is due */
        }
    }
    check_nodes(&t);
    free_twin(&t);
}

static const int64_t CAPACITIES[] = {1, 2, 3, 5, 100, 2048, 4095, 4096, 4097, 8192, 8193, 20000, 70000, 1 << 17};
enum { SIZES = sizeof CAPACITIES / sizeof CAPACITIES[0] };

static void test_updates(void) {
    seed(1);
    for (int c = 0; c < SIZES; ++c) {
        for (int kind = 0; kind < KINDS; ++kind) {
            check_updates(CAPACITIES[c], (sumtree_kind)kind, false);
            check_updates(CAPACITIES[c], (sumtree_kind)kind, true);
        }
    }
}

static void test_ranges_of_leaves(void) {
    static double masses[70000];
    seed(2);
    for (int c = 0; c < SIZES; ++c) {
        for (int kind = 0; kind < KINDS; ++kind) {
            if (CAPACITIES[c] > 70000) continue;
            twin t = make_twin(CAPACITIES[c], (sumtree_kind)kind);
            for (int step = 0; step < 6; ++step) {
                const int64_t start = below(t.capacity + 1), count = step == 5 ? 0 : below(t.capacity - start + 1);
                const int64_t stride = step % 2;
                for (int64_t k = 0; k < count; ++k) masses[k] = any_mass(64);
                for (int64_t k = 0; k < count; ++k) set_leaf(&t, start + k, masses[k * stride]);
                CHECK_STATUS(OK, sumtree_update_range(t.tree, start, count, masses, stride, NULL));
                CHECK_STATUS(OK, sumtree_get_range(t.tree, start, count, t.seen));
                CHECK(memcmp(t.seen, t.leaf + start, (size_t)count * sizeof(double)) == 0);
                check_nodes(&t);
            }
            free_twin(&t);
        }
    }
}

/* Batches that travel in parts: an index of an early part comes again in a late one. */
static void test_long_batches(void) {
    int64_t *indices = take(LONG * sizeof *indices), *found = take(LONG * sizeof *found);
    double *masses = take(LONG * sizeof *masses), *read = take(LONG * sizeof *read);
    seed(3);
    twin t = make_twin(5000, SUMTREE_KIND_PRIORITY);
    for (int64_t k = 0; k < LONG; ++k) {
        indices[k] = k >= LONG - 5 ? k - (LONG - 5) : below(4500);
        masses[k] = (double)below(1 << 20);
        set_leaf(&t, indices[k], masses[k]);
    }
    CHECK_STATUS(OK, sumtree_update(t.tree, LONG, indices, masses, 1, NULL));
    check_nodes(&t);
    CHECK_STATUS(OK, sumtree_get(t.tree, LONG, indices, read, NULL));
    for (int64_t k = 0; k < LONG; ++k) CHECK(read[k] == t.leaf[indices[k]]);
    double total = 0.0;
    CHECK_STATUS(OK, sumtree_root(t.tree, SUMTREE_PLANE_SUM, &total));
    for (int64_t k = 0; k < LONG; ++k) masses[k] = (double)below((int64_t)total);
    CHECK_STATUS(OK, sumtree_find(t.tree, LONG, masses, SUMTREE_SIDE_RIGHT, found, NULL));
    read[0] = t.leaf[0];
    for (int64_t j = 1; j < 5000; ++j) read[j] = read[j - 1] + t.leaf[j];
    for (int64_t k = 0; k < LONG; ++k) {
        CHECK(masses[k] < read[found[k]] && (found[k] == 0 || masses[k] >= read[found[k] - 1]));
    }
    int64_t position = -1;
    masses[LONG - 1] = nextafter(total, INFINITY);
    CHECK_STATUS(TARGET, sumtree_find(t.tree, LONG, masses, SUMTREE_SIDE_RIGHT, found, &position));
    CHECK_INT(LONG - 1, position);
    free_twin(&t);
    free(indices), free(found), free(masses), free(read);
}

/* ---- errors on the device ----------------------------------------------------------------------------------------- */

static void check_bad_batch(twin *t, int64_t count, int64_t bad, int64_t index, double mass, int32_t expected) {
    int64_t *indices = take((size_t)count * sizeof *indices), position = -1;
    double *masses = take((size_t)count * sizeof *masses);
    for (int64_t k = 0; k < count; ++k) {
        indices[k] = below(t->capacity);
        masses[k] = any_mass(64);
    }
    const int64_t last = count - 1;
    indices[last] = indices[bad] = index;
    masses[last] = masses[bad] = mass;
    check_status(expected, update_there(t->tree, count, indices, masses, 1, &position), "update", __FILE__, __LINE__);
    CHECK_INT(bad, position);
    check_nodes(t);
    /* A bad index comes before any bad mass. */
    indices[last] = -1;
    CHECK_STATUS(INDEX, update_there(t->tree, count, indices, masses, 1, &position));
    CHECK_INT(expected == SUMTREE_INDEX ? bad : last, position);
    check_nodes(t);
    /* Tags of a batch that failed are gone. */
    for (int64_t k = 0; k < count; ++k) {
        indices[k] = k % t->capacity;
        masses[k] = (double)k;
        set_leaf(t, indices[k], masses[k]);
    }
    CHECK_STATUS(OK, update_there(t->tree, count, indices, masses, 1, NULL));
    check_nodes(t);
    free(indices), free(masses);
}

static void test_bad_batches(void) {
    static const int64_t counts[] = {1, 2, 300, 4096, 4097, 20000};
    seed(4);
    for (int kind = 0; kind < KINDS; ++kind) {
        for (int c = 0; c < 6; ++c) {
            twin small = make_twin(1000, (sumtree_kind)kind), large = make_twin(5000, (sumtree_kind)kind);
            for (int round = 0; round < 2; ++round) {
                twin *t = round == 0 ? &small : &large;
                const int64_t bad = below(counts[c]);
                check_bad_batch(t, counts[c], bad, t->capacity, 1.0, SUMTREE_INDEX);
                check_bad_batch(t, counts[c], bad, INT64_MIN, NAN, SUMTREE_INDEX);
                check_bad_batch(t, counts[c], bad, INT64_MAX, 1.0, SUMTREE_INDEX);
                const bool min = kind == SUMTREE_KIND_MIN;
                check_bad_batch(t, counts[c], bad, 7, min ? NAN : -1.0, min ? SUMTREE_VALUE : SUMTREE_MASS);
                check_bad_batch(t, counts[c], bad, 7, NAN, min ? SUMTREE_VALUE : SUMTREE_MASS);
            }
            free_twin(&small);
            free_twin(&large);
        }
    }
}

static void test_bad_reads(void) {
    twin t = make_twin(5000, SUMTREE_KIND_SUM);
    const int64_t indices[] = {1, 2, -3, 5000, 4};
    double targets[] = {0.0, 0.5, 1.0, 1.5, NAN}, read[5];
    int64_t *there = up(indices, sizeof indices), *found = up(indices, sizeof indices), position = -1;
    double *targets_there = up(targets, sizeof targets), *read_there = up(targets, sizeof targets);
    CHECK_STATUS(EMPTY, sumtree_device_find(t.tree, 5, targets_there, SUMTREE_SIDE_RIGHT, found, &position));
    CHECK_STATUS(INDEX, sumtree_device_get(t.tree, 5, there, read_there, &position));
    CHECK_INT(2, position);
    const double one = 1.0;
    CHECK_STATUS(OK, sumtree_update(t.tree, 1, indices, &one, 1, NULL));
    CHECK_STATUS(TARGET, sumtree_device_find(t.tree, 5, targets_there, SUMTREE_SIDE_RIGHT, found, &position));
    CHECK_INT(3, position);
    CHECK_STATUS(TARGET, sumtree_find(t.tree, 5, targets, SUMTREE_SIDE_LEFT, (int64_t[5]){0}, &position));
    CHECK_INT(3, position);
    CHECK_STATUS(OK, sumtree_device_find(t.tree, 3, targets_there, SUMTREE_SIDE_RIGHT, found, NULL));
    CHECK_STATUS(OK, sumtree_device_get(t.tree, 3, found, read_there, NULL));
    copy_down(0, read, read_there, 3 * sizeof *read);
    for (int k = 0; k < 3; ++k) CHECK_DOUBLE(1.0, read[k]);
    CHECK_STATUS(OK, sumtree_device_get(t.tree, 0, NULL, NULL, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_device_get(t.tree, 1, NULL, read_there, NULL));
    CHECK_STATUS(ARGUMENT, sumtree_device_update(t.tree, 1, there, targets_there, 2, NULL));
    give_back(there), give_back(found), give_back(targets_there), give_back(read_there);
    free_twin(&t);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static const sumtree_philox START = {{1, 2}, {UINT64_MAX - 1, UINT64_MAX, 3, 4}, 3};

static int64_t descend(const double *sum, int64_t padded, double rest) {
    int64_t node = 1;
    while (node < padded) {
        const double l = sum[2 * node], r = sum[2 * node + 1];
        const bool left = l > rest || r == 0.0;
        rest -= left ? 0.0 : l;
        node = 2 * node + !left;
    }
    return node - padded;
}

/* The same draws from host and device arrays as one target at a time. */
static void check_draws(int64_t capacity, int64_t count, bool stratified) {
    const size_t bytes = (size_t)count * sizeof(double);
    twin t = make_twin(capacity, SUMTREE_KIND_PRIORITY);
    for (int64_t j = 0; j < capacity; ++j) set_leaf(&t, j, below(4) == 0 ? 0.0 : (double)next_word());
    CHECK_STATUS(OK, sumtree_update_range(t.tree, 0, capacity, t.leaf, 1, NULL));
    const int64_t touched = capacity / 2;
    set_leaf(&t, touched, 0x1p60);
    CHECK_STATUS(OK, sumtree_update(t.tree, 1, &touched, t.leaf + touched, 1, NULL)); /* its crown is due */
    int64_t *indices = take(bytes), *found = take(bytes);
    double *masses = take(bytes), *weights = take(bytes), *uniforms = take(bytes), *other = take(bytes);
    void *there[3] = {up(masses, bytes), up(masses, bytes), up(masses, bytes)};
    sumtree_philox rng = START, again = START, plain = START;
    CHECK_STATUS(OK, sumtree_sample(t.tree, &rng, count, 0.5, stratified, indices, masses, weights));
    CHECK_STATUS(OK, sumtree_device_sample(t.tree, &again, count, 0.5, stratified, there[0], there[1], there[2]));
    CHECK_STATUS(OK, sumtree_uniforms(&plain, count, uniforms));
    CHECK(same_rng(&rng, &plain) && same_rng(&again, &plain));
    copy_down(0, found, there[0], bytes);
    CHECK(memcmp(found, indices, bytes) == 0);
    copy_down(0, other, there[1], bytes);
    CHECK(memcmp(other, masses, bytes) == 0);
    copy_down(0, other, there[2], bytes);
    CHECK(memcmp(other, weights, bytes) == 0);
    double total = 0.0, smallest = 0.0;
    CHECK_STATUS(OK, sumtree_root(t.tree, SUMTREE_PLANE_SUM, &total));
    CHECK_STATUS(OK, sumtree_root(t.tree, SUMTREE_PLANE_MIN, &smallest));
    for (int64_t k = 0; k < count; ++k) {
        const double part = stratified ? ((double)k + uniforms[k]) / (double)count : uniforms[k];
        other[k] = fmin(part * total, nextafter(total, 0.0));
        CHECK_DOUBLE(t.leaf[indices[k]], masses[k]);
        const double expected = sqrt(smallest / masses[k]);
        CHECK(fabs(weights[k] - expected) <= 4 * DBL_EPSILON * expected);
    }
    CHECK_STATUS(OK, sumtree_nodes(t.tree, SUMTREE_PLANE_SUM, t.node));
    for (int64_t k = 0; k < count; ++k) CHECK_INT(descend(t.node, t.padded, other[k]), indices[k]);
    check_nodes(&t);
    for (int k = 0; k < 3; ++k) give_back(there[k]);
    free(indices), free(found), free(masses), free(weights), free(uniforms), free(other);
    free_twin(&t);
}

static void test_draws(void) {
    static const int64_t counts[] = {1, 5, 64, 512, 4096, 4097, 30000}, capacities[] = {1, 7, 4095, 4097, 9000, 70000};
    seed(5);
    for (int c = 0; c < 7; ++c) {
        for (int size = 0; size < 6; ++size) {
            check_draws(capacities[size], counts[c], false);
            check_draws(capacities[size], counts[c], true);
        }
    }
    check_draws(5000, LONG, true);
}

/* Learner steps of two trees with one generator, the same call again and again: what a device keeps of the last one must
 * be what the next one needs, also after calls that failed. */
static void test_steps(void) {
    enum { COUNT = 100, STEPS = 60 };
    twin twins[2] = {make_twin(5000, SUMTREE_KIND_PRIORITY), make_twin(700, SUMTREE_KIND_PRIORITY)};
    twin empty = make_twin(5000, SUMTREE_KIND_PRIORITY);
    int64_t indices[COUNT], found[COUNT];
    double masses[COUNT], drawn[COUNT], weights[COUNT], uniforms[COUNT];
    double *there = up(masses, sizeof masses), *there_too = up(masses, sizeof masses),
           *weighed = up(masses, sizeof masses);
    sumtree_philox rng = START, plain = START;
    seed(8);
    for (int step = 0; step < STEPS; ++step) {
        twin *t = &twins[step % 7 == 6];
        const int64_t count = step % 11 == 10 ? 7 : COUNT;
        for (int64_t k = 0; k < count; ++k) {
            indices[k] = below(t->capacity);
            masses[k] = (double)next_word();
            set_leaf(t, indices[k], masses[k]);
        }
        CHECK_STATUS(OK, sumtree_update(t->tree, count, indices, masses, 1, NULL));
        if (step % 5 == 4) CHECK_STATUS(EMPTY, sumtree_sample(empty.tree, &rng, count, 1.0, 0, found, drawn, weights));
        if (step % 13 == 12) CHECK_STATUS(TARGET, sumtree_find(t->tree, 1, (double[]){-1.0}, 0, found, NULL));
        if (step % 3 == 2) {
            CHECK_STATUS(
                OK, sumtree_device_sample(t->tree, &rng, count, 1.0, 0, (int64_t *)(void *)there, there_too, weighed));
            copy_down(0, found, there, (size_t)count * sizeof *found);
            copy_down(0, drawn, there_too, (size_t)count * sizeof *drawn);
        } else {
            CHECK_STATUS(OK, sumtree_sample(t->tree, &rng, count, 1.0, 0, found, drawn, weights));
        }
        double total;
        CHECK_STATUS(OK, sumtree_root(t->tree, SUMTREE_PLANE_SUM, &total));
        CHECK_STATUS(OK, sumtree_uniforms(&plain, count, uniforms));
        CHECK(same_rng(&rng, &plain));
        CHECK_STATUS(OK, sumtree_nodes(t->tree, SUMTREE_PLANE_SUM, t->node));
        for (int64_t k = 0; k < count; ++k) {
            CHECK_INT(descend(t->node, t->padded, fmin(uniforms[k] * total, nextafter(total, 0.0))), found[k]);
            CHECK_DOUBLE(t->leaf[found[k]], drawn[k]);
        }
        check_nodes(t);
    }
    give_back(there), give_back(there_too), give_back(weighed);
    free_twin(&twins[0]), free_twin(&twins[1]), free_twin(&empty);
}

/* Both sides, on targets where a descent would enter an empty child: the sums of all leaves to the left. */
static void test_boundaries(void) {
    enum { LEAVES = 5000 };
    static double targets[LEAVES + 1];
    static int64_t found[LEAVES + 1];
    seed(6);
    twin t = make_twin(LEAVES, SUMTREE_KIND_SUM);
    for (int64_t j = 0; j < LEAVES; ++j) set_leaf(&t, j, below(3) == 0 ? (double)below(9) : 0.0);
    CHECK_STATUS(OK, sumtree_update_range(t.tree, 0, LEAVES, t.leaf, 1, NULL));
    for (int64_t j = 0; j < LEAVES; ++j) targets[j + 1] = targets[j] + t.leaf[j];
    for (int side = 0; side < 2; ++side) {
        for (int64_t first = 0; first <= LEAVES; first += LEAVES) {
            const int64_t count = first == 0 ? LEAVES + 1 : 4000;
            CHECK_STATUS(OK, sumtree_find(t.tree, count, targets, (sumtree_side)side, found, NULL));
            for (int64_t k = 0; k < count; ++k) {
                int64_t j = 0;
                while (t.leaf[j] == 0.0 || (side == 0 ? targets[k] >= targets[j + 1] : targets[k] > targets[j + 1])) {
                    if (++j == LEAVES) break;
                }
                if (j == LEAVES)
                    while (t.leaf[--j] == 0.0) {
                    }
                CHECK_INT(j, found[k]);
            }
        }
    }
    free_twin(&t);
}

static void test_sample_errors(void) {
    twin t = make_twin(5000, SUMTREE_KIND_PRIORITY), sums = make_twin(5000, SUMTREE_KIND_SUM);
    double *there = up(t.leaf, 10 * sizeof(double)), drawn[10];
    int64_t found[10];
    sumtree_philox rng = START;
    CHECK_STATUS(EMPTY, sumtree_sample(t.tree, &rng, 10, 0.5, 0, found, drawn, drawn));
    CHECK_STATUS(EMPTY, sumtree_device_sample(t.tree, &rng, 10, 0.5, 0, (int64_t *)(void *)there, there, there));
    CHECK_STATUS(OK, sumtree_device_sample(t.tree, &rng, 0, 0.5, 0, NULL, NULL, NULL));
    CHECK_STATUS(EXPONENT, sumtree_device_sample(t.tree, &rng, 10, 1.5, 0, (int64_t *)(void *)there, there, there));
    CHECK_STATUS(KIND, sumtree_device_sample(sums.tree, &rng, 10, 0.5, 0, (int64_t *)(void *)there, there, there));
    CHECK(same_rng(&rng, &START));
    give_back(there);
    free_twin(&t);
    free_twin(&sums);
}

/* ---- reductions, and what is wrong with nodes ---------------------------------------------------------------------- */

static void test_ranges(void) {
    seed(7);
    for (int kind = 0; kind < KINDS; ++kind) {
        twin t = make_twin(5000, (sumtree_kind)kind);
        for (int64_t j = 0; j < t.capacity; ++j) set_leaf(&t, j, any_mass(64));
        CHECK_STATUS(OK, sumtree_update_range(t.tree, 0, t.capacity, t.leaf, 1, NULL));
        for (int round = 0; round < 40; ++round) {
            const int64_t touched = below(t.capacity), start = below(t.capacity),
                          stop = start + below(t.capacity - start) + 1;
            set_leaf(&t, touched, any_mass(64));
            CHECK_STATUS(OK, sumtree_update(t.tree, 1, &touched, t.leaf + touched, 1, NULL));
            for (int64_t j = 0; j < t.padded; ++j) {
                t.node[t.padded + j] = j >= start && j < stop ? t.leaf[j] : unset(t.kind);
            }
            const sumtree_plane plane = kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
            for (int64_t i = t.padded - 1; i > 0; --i) t.node[i] = combine(plane, t.node[2 * i], t.node[2 * i + 1]);
            double value = NAN;
            CHECK_STATUS(OK, (plane == SUMTREE_PLANE_MIN ? sumtree_min : sumtree_sum)(t.tree, start, stop, &value));
            CHECK_DOUBLE(t.node[1], value);
        }
        free_twin(&t);
    }
}

static void test_corrupt_nodes(void) {
    static const int64_t nodes[] = {1, 2, 63, 64, 127, 128, 4095, 8191, 8192, 8192 + 4999};
    twin t = make_twin(5000, SUMTREE_KIND_PRIORITY);
    for (int64_t j = 0; j < t.capacity; ++j) set_leaf(&t, j, (double)(j + 1));
    CHECK_STATUS(OK, sumtree_update_range(t.tree, 0, t.capacity, t.leaf, 1, NULL));
    for (int k = 0; k < 10; ++k) {
        for (int p = 0; p < 3; ++p) {
            double *planes[] = {t.tree->sum, t.tree->min, t.tree->max}, *memory = planes[p];
            if (p > 0 && nodes[k] >= t.padded) continue;
            const double right = peek(t.tree, memory + nodes[k]);
            sumtree_plane plane = SUMTREE_PLANE_SUM;
            int64_t node = -1;
            poke(t.tree, memory + nodes[k], nodes[k] >= t.padded ? -1.0 : isinf(right) ? 0.25 : right + 0.25);
            CHECK_STATUS(CORRUPT, sumtree_validate(t.tree, &plane, &node));
            CHECK_INT(p, plane);
            CHECK_INT(nodes[k], node);
            poke(t.tree, memory + nodes[k], right);
            CHECK_STATUS(OK, sumtree_validate(t.tree, NULL, NULL));
        }
    }
    free_twin(&t);
}

int main(void) {
    RUN(test_updates);
    RUN(test_ranges_of_leaves);
    RUN(test_long_batches);
    RUN(test_bad_batches);
    RUN(test_bad_reads);
    RUN(test_draws);
    RUN(test_steps);
    RUN(test_boundaries);
    RUN(test_sample_errors);
    RUN(test_ranges);
    RUN(test_corrupt_nodes);
    return report();
}
