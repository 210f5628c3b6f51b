/* The gpu backend against the cpu backend, bit for bit:  compare CPU.so GPU.so DEVICE LARGEST [SMALLEST]
 *
 * The same random batches go to a tree of each; every node, root, range, draw and generator must agree in all bits, and
 * weights within 4 ulp. Trees of 2^SMALLEST to 2^LARGEST leaves. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "library.h"

static library cpu, gpu;
static int32_t device_number;
static int64_t comparisons, differences;
static double worst_ulp;
static uint64_t words = 12345;

static uint64_t next_word(void) {
    words = words * 6364136223846793005u + 1442695040888963407u;
    return words >> 11;
}

static int64_t below(int64_t bound) { return (int64_t)(next_word() % (uint64_t)bound); }

static void must(bool same, const char *what, int64_t capacity, int kind, int64_t count) {
    ++comparisons;
    if (same) return;
    if (++differences < 20) {
        printf("DIFFERENT %s: capacity %lld, kind %d, count %lld\n", what, (long long)capacity, kind, (long long)count);
    }
}

static void *take(size_t bytes) {
    void *memory = malloc(bytes + 8);
    if (memory == NULL) exit(2);
    return memory;
}

static void *take_there(size_t bytes) {
    void *memory = NULL;
    if (gpu.device_allocate(device_number, bytes, &memory) != SUMTREE_OK) {
        printf("no device memory: %s\n", gpu.device_problem());
        exit(2);
    }
    return memory;
}

typedef struct pair {
    sumtree_t *c, *g;
    int64_t capacity;
    sumtree_kind kind;
} pair;

static void compare_nodes(const pair *p, int64_t count) {
    const size_t bytes = 2 * (size_t)cpu.padded_capacity(p->c) * sizeof(double);
    double *a = take(bytes), *b = take(bytes);
    for (int plane = 0; plane < 3; ++plane) {
        double c = 0.0, g = 0.0;
        const sumtree_status status = cpu.nodes(p->c, (sumtree_plane)plane, a);
        must(gpu.nodes(p->g, (sumtree_plane)plane, b) == status, "status of nodes", p->capacity, p->kind, count);
        if (status != SUMTREE_OK) continue;
        must(memcmp(a, b, bytes) == 0, "nodes", p->capacity, p->kind, count);
        (void)cpu.root(p->c, (sumtree_plane)plane, &c);
        (void)gpu.root(p->g, (sumtree_plane)plane, &g);
        must(memcmp(&c, &g, sizeof c) == 0, "root", p->capacity, p->kind, count);
    }
    must(gpu.validate(p->g, NULL, NULL) == SUMTREE_OK, "validate", p->capacity, p->kind, count);
    free(a), free(b);
}

static void fill(const pair *p, int64_t count, int64_t *indices, double *masses) {
    const int64_t shape = below(3), start = below(p->capacity), narrow = below(p->capacity) + 1;
    for (int64_t k = 0; k < count; ++k) {
        indices[k] = shape == 0 ? (start + k) % p->capacity : shape == 1 ? below(narrow) : below(p->capacity);
        if (k % 5 == 4) indices[k] = indices[k - 3];
        masses[k] = below(16) == 0 ? 0.0 : ldexp((double)next_word(), (int)below(40) - 70);
        if (p->kind == SUMTREE_KIND_MIN && below(3) == 0) masses[k] = -masses[k];
    }
}

static void update_both(const pair *p, int64_t count, bool there) {
    const size_t bytes = (size_t)count * sizeof(double);
    int64_t *indices = take(bytes);
    double *masses = take(bytes);
    fill(p, count, indices, masses);
    const int64_t step = below(8) != 0;
    must(cpu.update(p->c, count, indices, masses, step, NULL) == SUMTREE_OK, "cpu", p->capacity, p->kind, count);
    sumtree_status status;
    if (there) {
        void *i = take_there(bytes), *m = take_there(bytes);
        library_copy(i, indices, bytes);
        library_copy(m, masses, bytes);
        status = gpu.device_update(p->g, count, i, m, step, NULL);
        gpu.device_release(device_number, i);
        gpu.device_release(device_number, m);
    } else {
        status = gpu.update(p->g, count, indices, masses, step, NULL);
    }
    must(status == SUMTREE_OK, "update", p->capacity, p->kind, count);
    free(indices), free(masses);
}

static double ulps(double a, double b) {
    int64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return fabs((double)(x - y));
}

static void sample_both(const pair *p, int64_t count) {
    const size_t bytes = (size_t)count * sizeof(double);
    int64_t *i[2] = {take(bytes), take(bytes)};
    double *m[2] = {take(bytes), take(bytes)}, *w[2] = {take(bytes), take(bytes)};
    const double beta = (double)below(1001) / 1000.0;
    const int32_t stratified = (int32_t)below(2);
    sumtree_philox a = {{next_word(), next_word()}, {next_word(), 0, 0, UINT64_MAX}, (int32_t)below(5)}, b = a;
    const sumtree_status status = cpu.sample(p->c, &a, count, beta, stratified, i[0], m[0], w[0]);
    must(gpu.sample(p->g, &b, count, beta, stratified, i[1], m[1], w[1]) == status, "sample", p->capacity, p->kind,
         count);
    must(memcmp(a.counter, b.counter, sizeof a.counter) == 0 && a.buffer_pos == b.buffer_pos, "generator", p->capacity,
         p->kind, count);
    if (status == SUMTREE_OK) {
        must(memcmp(i[0], i[1], bytes) == 0, "drawn indices", p->capacity, p->kind, count);
        must(memcmp(m[0], m[1], bytes) == 0, "drawn masses", p->capacity, p->kind, count);
        bool near = true;
        for (int64_t k = 0; k < count; ++k) {
            const double apart = ulps(w[0][k], w[1][k]);
            if (apart > worst_ulp) worst_ulp = apart;
            near = near && apart <= 4.0;
        }
        must(near, "weights", p->capacity, p->kind, count);
    }
    for (int k = 0; k < 2; ++k) free(i[k]), free(m[k]), free(w[k]);
}

static void find_both(const pair *p, int64_t count) {
    const size_t bytes = (size_t)count * sizeof(double);
    int64_t *i[2] = {take(bytes), take(bytes)};
    double *targets = take(bytes), total = 0.0;
    (void)cpu.root(p->c, SUMTREE_PLANE_SUM, &total);
    for (int64_t k = 0; k < count; ++k) {
        double edge = 0.0;
        if (k % 4 == 0) (void)cpu.sum(p->c, 0, below(p->capacity + 1), &edge);
        targets[k] = k % 4 == 0 ? fmin(edge, total) : (double)next_word() * 0x1p-53 * total;
    }
    for (int side = 0; side < 2; ++side) {
        const sumtree_status status = cpu.find(p->c, count, targets, (sumtree_side)side, i[0], NULL);
        must(gpu.find(p->g, count, targets, (sumtree_side)side, i[1], NULL) == status, "find", p->capacity, p->kind,
             count);
        if (status == SUMTREE_OK) must(memcmp(i[0], i[1], bytes) == 0, "found", p->capacity, p->kind, count);
    }
    free(i[0]), free(i[1]), free(targets);
}

static void range_both(const pair *p) {
    for (int round = 0; round < 8; ++round) {
        const int64_t start = below(p->capacity + 1), stop = start + below(p->capacity - start + 1);
        double c = 0.0, g = 0.0;
        if (p->kind == SUMTREE_KIND_MIN) {
            (void)cpu.min(p->c, start, stop, &c);
            (void)gpu.min(p->g, start, stop, &g);
        } else {
            (void)cpu.sum(p->c, start, stop, &c);
            (void)gpu.sum(p->g, start, stop, &g);
        }
        must(memcmp(&c, &g, sizeof c) == 0, "range", p->capacity, p->kind, stop - start);
    }
}

static void compare(int64_t capacity, sumtree_kind kind, const int64_t *counts, int many) {
    pair p = {NULL, NULL, capacity, kind};
    if (cpu.create(capacity, kind, &p.c) != SUMTREE_OK ||
        gpu.create_on(device_number, capacity, kind, &p.g) != SUMTREE_OK) {
        printf("no tree of %lld leaves: %s\n", (long long)capacity, gpu.device_problem());
        exit(2);
    }
    for (int c = 0; c < many; ++c) {
        for (int there = 0; there < 2; ++there) {
            update_both(&p, counts[c], there);
            if (below(2) == 0) compare_nodes(&p, counts[c]);
            if (kind == SUMTREE_KIND_PRIORITY) sample_both(&p, counts[c]);
            if (kind != SUMTREE_KIND_MIN && counts[c] <= 32768) find_both(&p, counts[c]);
            range_both(&p);
        }
    }
    compare_nodes(&p, -1);
    cpu.free(p.c);
    gpu.free(p.g);
}

/* Takes all of a device's memory but a little: a tree that does not fit is refused, one that was there goes on. */
static void exhaust(void) {
    enum { BLOCKS = 512 };
    static void *blocks[BLOCKS];
    static const int64_t counts[] = {512, 32768};
    pair p = {NULL, NULL, 1 << 20, SUMTREE_KIND_PRIORITY};
    sumtree_t *refused = NULL;
    int taken = 0;
    must(cpu.create(p.capacity, p.kind, &p.c) == SUMTREE_OK, "cpu tree", p.capacity, p.kind, 0);
    must(gpu.create_on(device_number, p.capacity, p.kind, &p.g) == SUMTREE_OK, "tree", p.capacity, p.kind, 0);
    for (uint64_t bytes = (uint64_t)1 << 34; bytes >= (uint64_t)1 << 23; bytes /= 2) {
        while (taken < BLOCKS && gpu.device_allocate(device_number, bytes, &blocks[taken]) == SUMTREE_OK) ++taken;
    }
    must(taken < BLOCKS, "device memory never runs out", 0, 0, taken);
    must(gpu.create_on(device_number, (int64_t)1 << 24, p.kind, &refused) == SUMTREE_MEMORY, "no memory", 0, 0, taken);
    must(refused == NULL, "tree without memory", 0, 0, taken);
    for (int c = 0; c < 2; ++c) update_both(&p, counts[c], false);
    sample_both(&p, 512);
    compare_nodes(&p, -2);
    while (taken > 0) gpu.device_release(device_number, blocks[--taken]);
    must(gpu.create_on(device_number, (int64_t)1 << 24, p.kind, &refused) == SUMTREE_OK, "memory again", 0, 0, taken);
    gpu.free(refused);
    cpu.free(p.c);
    gpu.free(p.g);
}

int main(int argc, char **argv) {
    static const int64_t counts[] = {1, 8, 64, 512, 4096, 4097, 32768, 1 << 20};
    if (argc != 5 && argc != 6) return 2;
    cpu = library_open(argv[1]);
    gpu = library_open(argv[2]);
    device_number = (int32_t)atoi(argv[3]);
    const int64_t largest = (int64_t)1 << atoi(argv[4]);
    if (gpu.device_count() <= device_number) {
        printf("no device %d: %s\n", (int)device_number, gpu.device_problem());
        return 2;
    }
    library_use_device(device_number);
    const int64_t smallest = (int64_t)1 << (argc == 6 ? atoi(argv[5]) : 0);
    for (int64_t size = smallest; size <= largest; size *= 2) {
        for (int kind = 0; kind < 3; ++kind) {
            const int many = size > (int64_t)1 << 22 ? 8 : 7;
            if (size > (int64_t)1 << 22 && kind != SUMTREE_KIND_SUM) continue;
            compare(size, (sumtree_kind)kind, counts, size < 4096 ? 6 : many);
            if (size <= (int64_t)1 << 20) compare(size + below(size), (sumtree_kind)kind, counts, size < 4096 ? 6 : 7);
        }
    }
    if (largest >= (int64_t)1 << 20) compare(((int64_t)1 << 20) + 77, SUMTREE_KIND_PRIORITY, counts, 8);
    const char *wish = getenv("LIBSUMTREE_GPU_ON_HOST");
    if (wish == NULL && largest > (int64_t)1 << 20) exhaust(); /* a host's memory is not to be used up */
    printf("%s on %s, device %d: %lld comparisons, %lld differences; weights within %.0f ulp\n", gpu.build(),
           gpu.device_name(device_number), (int)device_number, (long long)comparisons, (long long)differences,
           worst_ulp);
    return differences == 0 ? 0 : 1;
}
