/* Life cycle, checks and errors: every public function. What walks over nodes is in kernels.c. */
#include "sumtree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

/* ---- the library ------------------------------------------------------------------------------------------------- */

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

/* Page tables take 8 bytes for each page of 4 KiB, and the allocator a little: without this reserve a tree that just
 * fits is killed while its pages are taken. */
SUMTREE_EXPORT uint64_t sumtree_memory_available(void) {
    const uint64_t available = memory_available("");
    if (available == UINT64_MAX) return available;
    const uint64_t reserve = available / 256 + ((uint64_t)1 << 20);
    return reserve < available ? available - reserve : 0;
}

SUMTREE_EXPORT uint64_t sumtree_bytes(int64_t capacity, sumtree_kind kind) {
    if (!is_capacity(capacity)) return 0;
    const uint64_t planes = kind == SUMTREE_KIND_PRIORITY ? 4 : 2;
    return sizeof(sumtree_t) + planes * sizeof(double) * (uint64_t)padded_capacity(capacity);
}

static bool take_planes(sumtree_t *tree) {
    const int64_t padded = tree->padded;
    if (tree->kind != SUMTREE_KIND_MIN) tree->sum = memory_take_zeroed(2 * padded);
    if (tree->kind == SUMTREE_KIND_MIN) tree->min = memory_take_zeroed(2 * padded);
    if (tree->kind == SUMTREE_KIND_PRIORITY) {
        tree->min = memory_take_zeroed(padded);
        tree->max = memory_take_zeroed(padded);
        return tree->sum != NULL && tree->min != NULL && tree->max != NULL;
    }
    return tree->sum != NULL || tree->min != NULL;
}

SUMTREE_EXPORT sumtree_status sumtree_create(int64_t capacity, sumtree_kind kind, sumtree_t **tree) {
    if (tree == NULL) return SUMTREE_ARGUMENT;
    *tree = NULL;
    if (kind != SUMTREE_KIND_SUM && kind != SUMTREE_KIND_MIN && kind != SUMTREE_KIND_PRIORITY) return SUMTREE_ARGUMENT;
    if (!is_capacity(capacity)) return SUMTREE_CAPACITY;
    if (sumtree_bytes(capacity, kind) > sumtree_memory_available()) return SUMTREE_MEMORY;
    sumtree_t *made = calloc(1, sizeof *made);
    if (made == NULL) return SUMTREE_MEMORY;
    made->capacity = capacity;
    made->padded = padded_capacity(capacity);
    made->kind = kind;
    if (!take_planes(made)) {
        sumtree_free(made);
        return SUMTREE_MEMORY;
    }
    kernel_clear(made);
    *tree = made;
    return SUMTREE_OK;
}

SUMTREE_EXPORT void sumtree_free(sumtree_t *tree) {
    if (tree == NULL) return;
    free(tree->sum);
    free(tree->min);
    free(tree->max);
    free(tree);
}

SUMTREE_EXPORT int64_t sumtree_capacity(const sumtree_t *tree) { return tree->capacity; }

SUMTREE_EXPORT int64_t sumtree_padded_capacity(const sumtree_t *tree) { return tree->padded; }

SUMTREE_EXPORT sumtree_kind sumtree_get_kind(const sumtree_t *tree) { return tree->kind; }

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
    const int64_t bad = kernel_first_bad_index(tree->capacity, count, indices);
    return bad < 0 ? SUMTREE_OK : fail_at(SUMTREE_INDEX, bad, position);
}

/* With mass_step 0 there is one mass for all: it is checked once. */
static sumtree_status check_masses(const sumtree_t *tree, int64_t count, const double *masses, int64_t mass_step,
                                   int64_t *position) {
    const int64_t distinct = mass_step == 0 && count > 0 ? 1 : count;
    const bool any = tree->kind == SUMTREE_KIND_MIN;
    const int64_t bad = any ? kernel_first_nan(distinct, masses) : kernel_first_bad_mass(distinct, masses);
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
    if (status == SUMTREE_OK && count > 0) kernel_update(tree, count, indices, masses, mass_step);
    return status;
}

SUMTREE_EXPORT sumtree_status sumtree_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                                   int64_t mass_step, int64_t *position) {
    if (!is_batch(tree, count, masses, masses) || !is_step(mass_step)) return SUMTREE_ARGUMENT;
    if (!is_span(tree, start, count)) return SUMTREE_RANGE;
    const sumtree_status status = check_masses(tree, count, masses, mass_step, position);
    if (status == SUMTREE_OK && count > 0) kernel_update_range(tree, start, count, masses, mass_step);
    return status;
}

SUMTREE_EXPORT sumtree_status sumtree_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                          int64_t *position) {
    if (!is_batch(tree, count, indices, masses)) return SUMTREE_ARGUMENT;
    const sumtree_status status = check_indices(tree, count, indices, position);
    if (status != SUMTREE_OK) return status;
    const double *leaf = leaves(tree);
    for (int64_t k = 0; k < count; ++k) masses[k] = leaf[indices[k]];
    return SUMTREE_OK;
}

SUMTREE_EXPORT sumtree_status sumtree_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses) {
    if (!is_batch(tree, count, masses, masses)) return SUMTREE_ARGUMENT;
    if (!is_span(tree, start, count)) return SUMTREE_RANGE;
    if (count > 0) memcpy(masses, leaves(tree) + start, (size_t)count * sizeof(double));
    return SUMTREE_OK;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

SUMTREE_EXPORT sumtree_status sumtree_sum(const sumtree_t *tree, int64_t start, int64_t stop, double *sum) {
    if (tree == NULL || sum == NULL) return SUMTREE_ARGUMENT;
    if (tree->kind == SUMTREE_KIND_MIN) return SUMTREE_KIND;
    if (!is_range(tree, start, stop)) return SUMTREE_RANGE;
    *sum = start == stop ? 0.0 : kernel_range_sum(tree->sum, tree->padded + start, tree->padded + stop - 1);
    return SUMTREE_OK;
}

SUMTREE_EXPORT sumtree_status sumtree_min(const sumtree_t *tree, int64_t start, int64_t stop, double *min) {
    if (tree == NULL || min == NULL) return SUMTREE_ARGUMENT;
    if (tree->kind != SUMTREE_KIND_MIN) return SUMTREE_KIND;
    if (!is_range(tree, start, stop)) return SUMTREE_RANGE;
    *min = start == stop ? INFINITY : kernel_range_min(tree->min, tree->padded + start, tree->padded + stop - 1);
    return SUMTREE_OK;
}

/* Node i of a plane, where the min and max planes of a priority tree read their leaves from the sum plane. */
static double node_value(const sumtree_t *tree, sumtree_plane plane, int64_t node) {
    const bool derived = tree->kind == SUMTREE_KIND_PRIORITY && node >= tree->padded;
    switch (plane) {
    case SUMTREE_PLANE_MIN:
        return derived ? positive_or_inf(tree->sum[node]) : tree->min[node];
    case SUMTREE_PLANE_MAX:
        return derived ? tree->sum[node] : tree->max[node];
    default:
        return tree->sum[node];
    }
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
    *value = node_value(tree, plane, 1);
    return SUMTREE_OK;
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

SUMTREE_EXPORT sumtree_status sumtree_find(const sumtree_t *tree, int64_t count, const double *targets,
                                           sumtree_side side, int64_t *indices, int64_t *position) {
    if (!is_batch(tree, count, targets, indices)) return SUMTREE_ARGUMENT;
    if (side != SUMTREE_SIDE_RIGHT && side != SUMTREE_SIDE_LEFT) return SUMTREE_ARGUMENT;
    if (tree->kind == SUMTREE_KIND_MIN) return SUMTREE_KIND;
    if (count == 0) return SUMTREE_OK;
    const double total = tree->sum[1];
    if (total == 0.0) return SUMTREE_EMPTY;
    const int64_t bad = kernel_first_bad_target(total, count, targets);
    if (bad >= 0) return fail_at(SUMTREE_TARGET, bad, position);
    kernel_find(tree, count, targets, side, indices);
    return SUMTREE_OK;
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
    if (count > 0 && tree->sum[1] == 0.0) return SUMTREE_EMPTY;
    return SUMTREE_OK;
}

/* Turns doubles u_0, u_1, .. into targets, in place. */
static void aim(double *targets, int64_t count, double total, bool stratified) {
    const double below = nextafter(total, 0.0);
    for (int64_t k = 0; k < count; ++k) {
        const double u = stratified ? ((double)k + targets[k]) / (double)count : targets[k];
        const double target = u * total;
        targets[k] = target < below ? target : below;
    }
}

SUMTREE_EXPORT sumtree_status sumtree_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                             int32_t stratified, int64_t *indices, double *masses, double *weights) {
    const sumtree_status status = check_sample(tree, rng, count, beta, indices, masses, weights);
    if (status != SUMTREE_OK || count == 0) return status;
    double *targets = weights; /* weights are written last */
    philox_uniforms(rng, count, targets);
    aim(targets, count, tree->sum[1], stratified != 0);
    kernel_find(tree, count, targets, SUMTREE_SIDE_RIGHT, indices);
    kernel_weigh(tree, count, node_value(tree, SUMTREE_PLANE_MIN, 1), beta, indices, masses, weights);
    return SUMTREE_OK;
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

/* ---- self-check -------------------------------------------------------------------------------------------------- */

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static bool leaf_is_sound(const sumtree_t *tree, int64_t node) {
    const bool padding = node - tree->padded >= tree->capacity;
    if (tree->kind == SUMTREE_KIND_MIN) {
        return padding ? same_bits(tree->min[node], INFINITY) : !isnan(tree->min[node]);
    }
    const double mass = tree->sum[node];
    return padding ? same_bits(mass, 0.0) : is_mass(mass) && !signbit(mass);
}

static bool node_is_sound(const sumtree_t *tree, sumtree_plane plane, int64_t node) {
    const double left = node_value(tree, plane, 2 * node), right = node_value(tree, plane, 2 * node + 1);
    const double value = node_value(tree, plane, node);
    switch (plane) {
    case SUMTREE_PLANE_MIN:
        return same_bits(value, smaller(left, right));
    case SUMTREE_PLANE_MAX:
        return same_bits(value, larger(left, right));
    default:
        return same_bits(value, left + right);
    }
}

static sumtree_status corrupt_at(sumtree_plane where, int64_t bad, sumtree_plane *plane, int64_t *node) {
    if (plane != NULL) *plane = where;
    return fail_at(SUMTREE_CORRUPT, bad, node);
}

SUMTREE_EXPORT sumtree_status sumtree_validate(const sumtree_t *tree, sumtree_plane *plane, int64_t *node) {
    if (tree == NULL) return SUMTREE_ARGUMENT;
    const sumtree_plane own = tree->kind == SUMTREE_KIND_MIN ? SUMTREE_PLANE_MIN : SUMTREE_PLANE_SUM;
    for (int64_t i = tree->padded; i < 2 * tree->padded; ++i) {
        if (!leaf_is_sound(tree, i)) return corrupt_at(own, i, plane, node);
    }
    for (int p = SUMTREE_PLANE_SUM; p <= SUMTREE_PLANE_MAX; ++p) {
        if (!has_plane(tree, (sumtree_plane)p)) continue;
        for (int64_t i = tree->padded - 1; i > 0; --i) {
            if (!node_is_sound(tree, (sumtree_plane)p, i)) return corrupt_at((sumtree_plane)p, i, plane, node);
        }
    }
    return SUMTREE_OK;
}

SUMTREE_EXPORT sumtree_status sumtree_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    if (tree == NULL || nodes == NULL) return SUMTREE_ARGUMENT;
    if (!has_plane(tree, plane)) return SUMTREE_KIND;
    nodes[0] = 0.0;
    for (int64_t i = 1; i < 2 * tree->padded; ++i) nodes[i] = node_value(tree, plane, i);
    return SUMTREE_OK;
}
