/* Trees in host memory: their planes, and reading them. Updates are in updates_host.c, descents in descents_host.c. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "parallel.h"
#include "rules.h"

/* ---- planes ------------------------------------------------------------------------------------------------------ */

static void clear(double *plane, int64_t nodes) {
    for (int64_t i = 0; i < nodes; ++i) plane[i] = __builtin_inf();
}

sumtree_status kernel_take(sumtree_t *tree) {
    const int64_t padded = tree->padded;
    const bool summed = tree->kind != SUMTREE_KIND_MIN, all = tree->kind == SUMTREE_KIND_PRIORITY;
    const int64_t min_nodes = all ? padded : 2 * padded;
    if (summed) tree->sum = memory_take_zeroed(2 * padded);
    if (!summed || all) tree->min = memory_take_zeroed(min_nodes);
    if (all) tree->max = memory_take_zeroed(padded);
    if ((summed && tree->sum == NULL) || ((!summed || all) && tree->min == NULL) || (all && tree->max == NULL)) {
        kernel_release(tree);
        return SUMTREE_MEMORY;
    }
    if (tree->min != NULL) clear(tree->min, min_nodes);
    return SUMTREE_OK;
}

void kernel_release(sumtree_t *tree) {
    free(tree->sum);
    free(tree->min);
    free(tree->max);
}

uint64_t kernel_memory_available(int32_t device) {
    (void)device;
    return memory_to_spare();
}

/* ---- reductions --------------------------------------------------------------------------------------------------- */

sumtree_status kernel_range_sum(const sumtree_t *tree, int64_t first, int64_t last, double *sum) {
    *sum = range_sum(tree, first, last);
    return SUMTREE_OK;
}

sumtree_status kernel_range_min(const sumtree_t *tree, int64_t first, int64_t last, double *min) {
    *min = range_min(tree, first, last);
    return SUMTREE_OK;
}

sumtree_status kernel_root(const sumtree_t *tree, sumtree_plane plane, double *value) {
    *value = node_value(tree, plane, 1);
    return SUMTREE_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

sumtree_status kernel_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses) {
    const double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) masses[k] = leaf[indices[k]];
    return SUMTREE_OK;
}

sumtree_status kernel_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses) {
    memcpy(masses, leaves(tree) + start, (size_t)count * sizeof(double));
    return SUMTREE_OK;
}

sumtree_status kernel_unsound_leaf(const sumtree_t *tree, int64_t *node) {
    for (*node = tree->padded; *node < 2 * tree->padded; ++*node) {
        if (!leaf_is_sound(tree, *node)) return SUMTREE_CORRUPT;
    }
    return SUMTREE_OK;
}

sumtree_status kernel_unsound_node(const sumtree_t *tree, sumtree_plane plane, int64_t *node) {
    for (*node = tree->padded - 1; *node > 0; --*node) {
        if (!node_is_sound(tree, plane, *node)) return SUMTREE_CORRUPT;
    }
    return SUMTREE_OK;
}

sumtree_status kernel_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    nodes[0] = 0.0;
    for (int64_t i = 1; i < 2 * tree->padded; ++i) nodes[i] = node_value(tree, plane, i);
    return SUMTREE_OK;
}

/* ---- devices: none ------------------------------------------------------------------------------------------------ */

int32_t kernel_device_count(void) { return 0; }
const char *kernel_device_problem(void) { return "the " BACKEND_NAME " backend keeps its trees in host memory"; }
const char *kernel_device_name(int32_t device) { return device < 0 ? "host" : ""; }

sumtree_status kernel_device_allocate(int32_t device, uint64_t bytes, void **memory) {
    (void)device, (void)bytes, (void)memory;
    return SUMTREE_DEVICE;
}

void kernel_device_release(int32_t device, void *memory) { (void)device, (void)memory; }

sumtree_status kernel_device_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                    int64_t mass_step, int64_t *position) {
    (void)tree, (void)count, (void)indices, (void)masses, (void)mass_step, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                 int64_t *position) {
    (void)tree, (void)count, (void)indices, (void)masses, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                  int64_t *indices, int64_t *position) {
    (void)tree, (void)count, (void)targets, (void)side, (void)indices, (void)position;
    return SUMTREE_DEVICE;
}

sumtree_status kernel_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                    bool stratified, int64_t *indices, double *masses, double *weights) {
    (void)tree, (void)rng, (void)count, (void)beta, (void)stratified, (void)indices, (void)masses, (void)weights;
    return SUMTREE_DEVICE;
}
