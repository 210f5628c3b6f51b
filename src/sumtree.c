/* Life cycle, checks and errors: every public function. What walks over nodes is behind kernels.h. */
#include "sumtree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "rules.h"
#include "vectors.h"

/* ---- the library ------------------------------------------------------------------------------------------------- */

#if defined(__clang__)
#define COMPILER "Clang " __clang_version__
#elif defined(__NVCOMPILER)
#define COMPILER "NVIDIA HPC " __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

SUMTREE_EXPORT const char *sumtree_backend(void) { return BACKEND_NAME; }

#ifndef SUMTREE_FLAGS
#define SUMTREE_FLAGS "not recorded"
#endif

SUMTREE_EXPORT const char *sumtree_build(void) { return COMPILER BACKEND_RUNTIME ", flags: " SUMTREE_FLAGS; }

SUMTREE_EXPORT const char *sumtree_vector_level(void) { return vectors_name(); }

SUMTREE_EXPORT const char *sumtree_vector_levels(void) { return vectors_selectable(); }

SUMTREE_EXPORT sumtree_status sumtree_select_vector_level(const char *level) {
    return level != NULL && vectors_select(level) ? SUMTREE_OK : SUMTREE_ARGUMENT;
}

SUMTREE_EXPORT int32_t sumtree_abi_version(void) { return SUMTREE_ABI_VERSION; }

SUMTREE_EXPORT const char *sumtree_strerror(int32_t status) {
    switch (status) {
#define TEXT_OF(code, name, text)                                                                                      \
    case (code):                                                                                                       \
        return (text);
        SUMTREE_STATUS_TABLE(TEXT_OF)
#undef TEXT_OF
    default:
        return "unknown status";
    }
}

SUMTREE_EXPORT const char *sumtree_status_name(int32_t status) {
    switch (status) {
#define NAME_OF(code, name, text)                                                                                      \
    case (code):                                                                                                       \
        return #name;
        SUMTREE_STATUS_TABLE(NAME_OF)
#undef NAME_OF
    default:
        return "unknown status";
    }
}

/* ---- life cycle -------------------------------------------------------------------------------------------------- */

static int64_t padded_capacity(int64_t capacity) {
    int64_t padded = 1;
    while (padded < capacity) padded <<= 1;
    return padded;
}

static bool is_capacity(int64_t capacity) { return capacity >= 1 && capacity <= SUMTREE_MAX_CAPACITY; }

SUMTREE_EXPORT uint64_t sumtree_memory_available(void) { return kernel_memory_available(HOST); }

SUMTREE_EXPORT uint64_t sumtree_bytes(int64_t capacity, sumtree_kind kind) {
    if (!is_capacity(capacity)) return 0;
    const uint64_t planes = kind == SUMTREE_KIND_PRIORITY ? 4 : 2;
    return sizeof(sumtree_t) + (planes * sizeof(double) + BACKEND_LEAF_BYTES) * (uint64_t)padded_capacity(capacity);
}

static bool is_device(int32_t device) { return device >= 0 && device < kernel_device_count(); }

static sumtree_status create(int32_t device, int64_t capacity, sumtree_kind kind, sumtree_t **tree) {
    if (tree == NULL) return SUMTREE_ARGUMENT;
    *tree = NULL;
    if (kind != SUMTREE_KIND_SUM && kind != SUMTREE_KIND_MIN && kind != SUMTREE_KIND_PRIORITY) return SUMTREE_ARGUMENT;
    if (!is_capacity(capacity)) return SUMTREE_CAPACITY;
    if (device != HOST && !is_device(device)) return SUMTREE_DEVICE;
    if (sumtree_bytes(capacity, kind) > kernel_memory_available(device)) return SUMTREE_MEMORY;
    sumtree_t *made = calloc(1, sizeof *made);
    if (made == NULL) return SUMTREE_MEMORY;
    made->capacity = capacity;
    made->padded = padded_capacity(capacity);
    made->kind = kind;
    made->device = device;
    const sumtree_status status = kernel_take(made);
    if (status == SUMTREE_OK) {
        *tree = made;
    } else {
        free(made);
    }
    return status;
}

SUMTREE_EXPORT sumtree_status sumtree_create(int64_t capacity, sumtree_kind kind, sumtree_t **tree) {
    return create(BACKEND_DEVICE, capacity, kind, tree);
}

SUMTREE_EXPORT sumtree_status sumtree_create_on(int32_t device, int64_t capacity, sumtree_kind kind, sumtree_t **tree) {
    if (tree != NULL) *tree = NULL;
    return device == HOST ? SUMTREE_DEVICE : create(device, capacity, kind, tree);
}

SUMTREE_EXPORT void sumtree_free(sumtree_t *tree) {
    if (tree == NULL) return;
    kernel_release(tree);
    free(tree);
}

SUMTREE_EXPORT int64_t sumtree_capacity(const sumtree_t *tree) { return tree->capacity; }

SUMTREE_EXPORT int64_t sumtree_padded_capacity(const sumtree_t *tree) { return tree->padded; }

SUMTREE_EXPORT sumtree_kind sumtree_get_kind(const sumtree_t *tree) { return tree->kind; }

SUMTREE_EXPORT int32_t sumtree_get_device(const sumtree_t *tree) { return tree->device; }

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static sumtree_status fail_at(sumtree_status status, int64_t bad, int64_t *position) {
    if (position != NULL) *position = bad;
    return status;
}

static bool is_range(const sumtree_t *tree, int64_t start, int64_t stop) {
    return start >= 0 && start <= stop && stop <= tree->capacity;
}

/* The same for a start and a count >= 0, whose sum may be no int64. */
static bool is_span(const sumtree_t *tree, int64_t start, int64_t count) {
    return start >= 0 && start <= tree->capacity && count <= tree->capacity - start;
}

static sumtree_status check_indices(const sumtree_t *tree, int64_t count, const int64_t *indices, int64_t *position) {
    const int64_t bad = first_bad_index(tree->capacity, count, indices);
    return bad < 0 ? SUMTREE_OK : fail_at(SUMTREE_INDEX, bad, position);
}

/* With mass_step 0 there is one mass for all: it is checked once. */
static sumtree_status check_masses(const sumtree_t *tree, int64_t count, const double *masses, int64_t mass_step,
                                   int64_t *position) {
    const int64_t distinct = mass_step == 0 && count > 0 ? 1 : count;
    const bool any = tree->kind == SUMTREE_KIND_MIN;
    const int64_t bad = any ? first_nan(distinct, masses) : first_bad_mass(distinct, masses);
    return bad < 0 ? SUMTREE_OK : fail_at(any ? SUMTREE_VALUE : SUMTREE_MASS, bad, position);
}

static bool is_batch(const sumtree_t *tree, int64_t count, const void *first, const void *second) {
    return tree != NULL && count >= 0 && (count == 0 || (first != NULL && second != NULL));
}

/* Tells what the loops of the checks would say of one leaf: programs that update leaf by leaf are common. */
static bool is_one_good_leaf(const sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses) {
    return count == 1 && (uint64_t)indices[0] < (uint64_t)tree->capacity && is_mass(masses[0]);
}

static bool is_step(int64_t mass_step) { return mass_step == 0 || mass_step == 1; }

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

SUMTREE_EXPORT sumtree_status sumtree_update(sumtree_t *tree, int64_t count, const int64_t *indices,
                                             const double *masses, int64_t mass_step, int64_t *position) {
    if (!is_batch(tree, count, indices, masses) || !is_step(mass_step)) return SUMTREE_ARGUMENT;
    sumtree_status status = SUMTREE_OK;
    if (!is_one_good_leaf(tree, count, indices, masses)) {
        status = check_indices(tree, count, indices, position);
        if (status == SUMTREE_OK) status = check_masses(tree, count, masses, mass_step, position);
    }
    if (status != SUMTREE_OK || count == 0) return status;
    return kernel_update(tree, count, indices, masses, mass_step);
}

SUMTREE_EXPORT sumtree_status sumtree_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                                   int64_t mass_step, int64_t *position) {
    if (!is_batch(tree, count, masses, masses) || !is_step(mass_step)) return SUMTREE_ARGUMENT;
    if (!is_span(tree, start, count)) return SUMTREE_RANGE;
    const sumtree_status status = check_masses(tree, count, masses, mass_step, position);
    if (status != SUMTREE_OK || count == 0) return status;
    return kernel_update_range(tree, start, count, masses, mass_step);
}

SUMTREE_EXPORT sumtree_status sumtree_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                          int64_t *position) {
    if (!is_batch(tree, count, indices, masses)) return SUMTREE_ARGUMENT;
    const sumtree_status status = check_indices(tree, count, indices, position);
    if (status != SUMTREE_OK || count == 0) return status;
    return kernel_get(tree, count, indices, masses);
}

SUMTREE_EXPORT sumtree_status sumtree_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses) {
    if (!is_batch(tree, count, masses, masses)) return SUMTREE_ARGUMENT;
    if (!is_span(tree, start, count)) return SUMTREE_RANGE;
    return count == 0 ? SUMTREE_OK : kernel_get_range(tree, start, count, masses);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

SUMTREE_EXPORT sumtree_status sumtree_sum(const sumtree_t *tree, int64_t start, int64_t stop, double *sum) {
    if (tree == NULL || sum == NULL) return SUMTREE_ARGUMENT;
    if (tree->kind == SUMTREE_KIND_MIN) return SUMTREE_KIND;
    if (!is_range(tree, start, stop)) return SUMTREE_RANGE;
    *sum = 0.0;
    return start == stop ? SUMTREE_OK : kernel_range_sum(tree, tree->padded + start, tree->padded + stop - 1, sum);
}

SUMTREE_EXPORT sumtree_status sumtree_min(const sumtree_t *tree, int64_t start, int64_t stop, double *min) {
    if (tree == NULL || min == NULL) return SUMTREE_ARGUMENT;
    if (tree->kind != SUMTREE_KIND_MIN) return SUMTREE_KIND;
    if (!is_range(tree, start, stop)) return SUMTREE_RANGE;
    *min = INFINITY;
    return start == stop ? SUMTREE_OK : kernel_range_min(tree, tree->padded + start, tree->padded + stop - 1, min);
}

static bool has_plane(const sumtree_t *tree, sumtree_plane plane) {
    switch (plane) {
    case SUMTREE_PLANE_SUM:
        return tree->sum != NULL;
    case SUMTREE_PLANE_MIN:
        return tree->min != NULL;
    case SUMTREE_PLANE_MAX:
        return tree->max != NULL;
    }
    return false;
}

SUMTREE_EXPORT sumtree_status sumtree_root(const sumtree_t *tree, sumtree_plane plane, double *value) {
    if (tree == NULL || value == NULL) return SUMTREE_ARGUMENT;
    if (!has_plane(tree, plane)) return SUMTREE_KIND;
    return kernel_root(tree, plane, value);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static sumtree_status check_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                 const int64_t *indices) {
    if (!is_batch(tree, count, targets, indices)) return SUMTREE_ARGUMENT;
    if (side != SUMTREE_SIDE_RIGHT && side != SUMTREE_SIDE_LEFT) return SUMTREE_ARGUMENT;
    return tree->kind == SUMTREE_KIND_MIN ? SUMTREE_KIND : SUMTREE_OK;
}

SUMTREE_EXPORT sumtree_status sumtree_find(const sumtree_t *tree, int64_t count, const double *targets,
                                           sumtree_side side, int64_t *indices, int64_t *position) {
    const sumtree_status status = check_find(tree, count, targets, side, indices);
    if (status != SUMTREE_OK || count == 0) return status;
    int64_t bad = -1;
    const sumtree_status found = kernel_find(tree, count, targets, side, indices, &bad);
    return found == SUMTREE_TARGET ? fail_at(found, bad, position) : found;
}

static bool is_philox(const sumtree_philox *rng) { return rng != NULL && rng->buffer_pos >= 0 && rng->buffer_pos <= 4; }

SUMTREE_EXPORT sumtree_status sumtree_uniforms(sumtree_philox *rng, int64_t count, double *uniforms) {
    if (!is_philox(rng) || count < 0 || (count > 0 && uniforms == NULL)) return SUMTREE_ARGUMENT;
    philox_uniforms(rng, count, uniforms);
    return SUMTREE_OK;
}

static sumtree_status check_sample(const sumtree_t *tree, const sumtree_philox *rng, int64_t count, double beta,
                                   const int64_t *indices, const double *masses, const double *weights) {
    if (!is_batch(tree, count, indices, masses) || !is_philox(rng)) return SUMTREE_ARGUMENT;
    if (count > 0 && weights == NULL) return SUMTREE_ARGUMENT;
    if (tree->kind != SUMTREE_KIND_PRIORITY) return SUMTREE_KIND;
    if (!(beta >= 0.0 && beta <= 1.0)) return SUMTREE_EXPONENT;
    return SUMTREE_OK;
}

SUMTREE_EXPORT sumtree_status sumtree_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                             int32_t stratified, int64_t *indices, double *masses, double *weights) {
    const sumtree_status status = check_sample(tree, rng, count, beta, indices, masses, weights);
    if (status != SUMTREE_OK || count == 0) return status;
    return kernel_sample(tree, rng, count, beta, stratified != 0, indices, masses, weights);
}

static bool is_priority(double priority, double mass) { return priority >= 0.0 && isfinite(priority) && is_mass(mass); }

static double mass_of(double priority, double alpha) { return priority > 0.0 ? pow(priority, alpha) : 0.0; }

SUMTREE_EXPORT sumtree_status sumtree_masses(int64_t count, const double *priorities, double alpha, double *masses,
                                             int64_t *position) {
    if (count < 0 || (count > 0 && (priorities == NULL || masses == NULL))) return SUMTREE_ARGUMENT;
    if (!(alpha >= 0.0 && isfinite(alpha))) return SUMTREE_EXPONENT;
    for (int64_t k = 0; k < count; ++k) {
        const double mass = mass_of(priorities[k], alpha);
        if (!is_priority(priorities[k], mass)) return fail_at(SUMTREE_PRIORITY, k, position);
        masses[k] = mass;
    }
    return SUMTREE_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

SUMTREE_EXPORT int32_t sumtree_device_count(void) { return kernel_device_count(); }

SUMTREE_EXPORT const char *sumtree_device_problem(void) { return kernel_device_problem(); }

SUMTREE_EXPORT const char *sumtree_device_name(int32_t device) {
    return is_device(device) ? kernel_device_name(device) : "";
}

SUMTREE_EXPORT uint64_t sumtree_device_memory_available(int32_t device) {
    return is_device(device) ? kernel_memory_available(device) : 0;
}

SUMTREE_EXPORT sumtree_status sumtree_device_allocate(int32_t device, uint64_t bytes, void **memory) {
    if (memory == NULL) return SUMTREE_ARGUMENT;
    *memory = NULL;
    return is_device(device) ? kernel_device_allocate(device, bytes, memory) : SUMTREE_DEVICE;
}

SUMTREE_EXPORT void sumtree_device_release(int32_t device, void *memory) {
    if (memory != NULL) kernel_device_release(device, memory);
}

SUMTREE_EXPORT sumtree_status sumtree_device_update(sumtree_t *tree, int64_t count, const int64_t *indices,
                                                    const double *masses, int64_t mass_step, int64_t *position) {
    if (!is_batch(tree, count, indices, masses) || !is_step(mass_step)) return SUMTREE_ARGUMENT;
    if (tree->device == HOST) return SUMTREE_DEVICE;
    return count == 0 ? SUMTREE_OK : kernel_device_update(tree, count, indices, masses, mass_step, position);
}

SUMTREE_EXPORT sumtree_status sumtree_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices,
                                                 double *masses, int64_t *position) {
    if (!is_batch(tree, count, indices, masses)) return SUMTREE_ARGUMENT;
    if (tree->device == HOST) return SUMTREE_DEVICE;
    return count == 0 ? SUMTREE_OK : kernel_device_get(tree, count, indices, masses, position);
}

SUMTREE_EXPORT sumtree_status sumtree_device_find(const sumtree_t *tree, int64_t count, const double *targets,
                                                  sumtree_side side, int64_t *indices, int64_t *position) {
    const sumtree_status status = check_find(tree, count, targets, side, indices);
    if (status != SUMTREE_OK) return status;
    if (tree->device == HOST) return SUMTREE_DEVICE;
    return count == 0 ? SUMTREE_OK : kernel_device_find(tree, count, targets, side, indices, position);
}

SUMTREE_EXPORT sumtree_status sumtree_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count,
                                                    double beta, int32_t stratified, int64_t *indices, double *masses,
                                                    double *weights) {
    const sumtree_status status = check_sample(tree, rng, count, beta, indices, masses, weights);
    if (status != SUMTREE_OK) return status;
    if (tree->device == HOST) return SUMTREE_DEVICE;
    return count == 0 ? SUMTREE_OK
                      : kernel_device_sample(tree, rng, count, beta, stratified != 0, indices, masses, weights);
}

/* ---- self-check -------------------------------------------------------------------------------------------------- */

static sumtree_status corrupt_at(sumtree_plane where, int64_t bad, sumtree_plane *plane, int64_t *node) {
    if (plane != NULL) *plane = where;
    return fail_at(SUMTREE_CORRUPT, bad, node);
}

SUMTREE_EXPORT sumtree_status sumtree_validate(const sumtree_t *tree, sumtree_plane *plane, int64_t *node) {
    if (tree == NULL) return SUMTREE_ARGUMENT;
    const bool min_alone = tree->kind == SUMTREE_KIND_MIN;
    sumtree_plane where = min_alone ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
    int64_t bad = 0;
    sumtree_status status = kernel_unsound_leaf(tree, &bad);
    for (int p = SUMTREE_PLANE_SUM; p <= SUMTREE_PLANE_MAX && status == SUMTREE_OK; ++p) {
        if (!has_plane(tree, (sumtree_plane)p)) continue;
        where = (sumtree_plane)p;
        status = kernel_unsound_node(tree, where, &bad);
    }
    return status == SUMTREE_CORRUPT ? corrupt_at(where, bad, plane, node) : status;
}

SUMTREE_EXPORT sumtree_status sumtree_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    if (tree == NULL || nodes == NULL) return SUMTREE_ARGUMENT;
    if (!has_plane(tree, plane)) return SUMTREE_KIND;
    return kernel_nodes(tree, plane, nodes);
}
