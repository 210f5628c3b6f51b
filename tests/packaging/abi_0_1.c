/* The binary interface of version 0.1, frozen: what a program that was compiled against it relies on.
 *
 * It stands beside sumtree.h, not on it: a header that changed does not compile here. Within 0.1.x nothing in this file
 * changes; a version that changes it has another minor number, another SUMTREE_ABI_VERSION (so another soname) and a file
 * of its own. symbols.cmake compares the names below with those that each library exports. */
#include <stddef.h>
#include <stdio.h>

#include "sumtree.h"

#define FUNCTIONS                                                                                                      \
    FUNCTION(int32_t, sumtree_abi_version, (void))                                                                     \
    FUNCTION(const char *, sumtree_backend, (void))                                                                    \
    FUNCTION(const char *, sumtree_build, (void))                                                                      \
    FUNCTION(const char *, sumtree_vector_level, (void))                                                               \
    FUNCTION(const char *, sumtree_vector_levels, (void))                                                              \
    FUNCTION(sumtree_status, sumtree_select_vector_level, (const char *level))                                         \
    FUNCTION(const char *, sumtree_strerror, (int32_t status))                                                         \
    FUNCTION(const char *, sumtree_status_name, (int32_t status))                                                      \
    FUNCTION(sumtree_status, sumtree_create, (int64_t capacity, sumtree_kind kind, sumtree_t **tree))                  \
    FUNCTION(sumtree_status, sumtree_create_on,                                                                        \
             (int32_t device, int64_t capacity, sumtree_kind kind, sumtree_t **tree))                                  \
    FUNCTION(void, sumtree_free, (sumtree_t * tree))                                                                   \
    FUNCTION(int64_t, sumtree_capacity, (const sumtree_t *tree))                                                       \
    FUNCTION(int64_t, sumtree_padded_capacity, (const sumtree_t *tree))                                                \
    FUNCTION(sumtree_kind, sumtree_get_kind, (const sumtree_t *tree))                                                  \
    FUNCTION(int32_t, sumtree_get_device, (const sumtree_t *tree))                                                     \
    FUNCTION(uint64_t, sumtree_memory_available, (void))                                                               \
    FUNCTION(uint64_t, sumtree_bytes, (int64_t capacity, sumtree_kind kind))                                           \
    FUNCTION(sumtree_status, sumtree_update,                                                                           \
             (sumtree_t * tree, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step,        \
              int64_t *position))                                                                                      \
    FUNCTION(                                                                                                          \
        sumtree_status, sumtree_update_range,                                                                          \
        (sumtree_t * tree, int64_t start, int64_t count, const double *masses, int64_t mass_step, int64_t *position))  \
    FUNCTION(sumtree_status, sumtree_get,                                                                              \
             (const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses, int64_t *position))        \
    FUNCTION(sumtree_status, sumtree_get_range, (const sumtree_t *tree, int64_t start, int64_t count, double *masses)) \
    FUNCTION(sumtree_status, sumtree_sum, (const sumtree_t *tree, int64_t start, int64_t stop, double *sum))           \
    FUNCTION(sumtree_status, sumtree_min, (const sumtree_t *tree, int64_t start, int64_t stop, double *min))           \
    FUNCTION(sumtree_status, sumtree_root, (const sumtree_t *tree, sumtree_plane plane, double *value))                \
    FUNCTION(sumtree_status, sumtree_find,                                                                             \
             (const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices,        \
              int64_t *position))                                                                                      \
    FUNCTION(sumtree_status, sumtree_sample,                                                                           \
             (const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta, int32_t stratified,              \
              int64_t *indices, double *masses, double *weights))                                                      \
    FUNCTION(sumtree_status, sumtree_uniforms, (sumtree_philox * rng, int64_t count, double *uniforms))                \
    FUNCTION(sumtree_status, sumtree_masses,                                                                           \
             (int64_t count, const double *priorities, double alpha, double *masses, int64_t *position))               \
    FUNCTION(int32_t, sumtree_device_count, (void))                                                                    \
    FUNCTION(const char *, sumtree_device_problem, (void))                                                             \
    FUNCTION(const char *, sumtree_device_name, (int32_t device))                                                      \
    FUNCTION(uint64_t, sumtree_device_memory_available, (int32_t device))                                              \
    FUNCTION(sumtree_status, sumtree_device_allocate, (int32_t device, uint64_t bytes, void **memory))                 \
    FUNCTION(void, sumtree_device_release, (int32_t device, void *memory))                                             \
    FUNCTION(sumtree_status, sumtree_device_update,                                                                    \
             (sumtree_t * tree, int64_t count, const int64_t *indices, const double *masses, int64_t mass_step,        \
              int64_t *position))                                                                                      \
    FUNCTION(sumtree_status, sumtree_device_get,                                                                       \
             (const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses, int64_t *position))        \
    FUNCTION(sumtree_status, sumtree_device_find,                                                                      \
             (const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side, int64_t *indices,        \
              int64_t *position))                                                                                      \
    FUNCTION(sumtree_status, sumtree_device_sample,                                                                    \
             (const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta, int32_t stratified,              \
              int64_t *indices, double *masses, double *weights))                                                      \
    FUNCTION(sumtree_status, sumtree_validate, (const sumtree_t *tree, sumtree_plane *plane, int64_t *node))           \
    FUNCTION(sumtree_status, sumtree_nodes, (const sumtree_t *tree, sumtree_plane plane, double *nodes))

/* A declaration that differs from the header's is an error of the compiler. */
#define FUNCTION(result, name, arguments) result name arguments;
FUNCTIONS
#undef FUNCTION

#define SAME(constant, value) _Static_assert((constant) == (value), "the ABI of 0.1 has " #constant " = " #value)
SAME(SUMTREE_ABI_VERSION, 2);
SAME(SUMTREE_MAX_CAPACITY, 1099511627776);

SAME(SUMTREE_OK, 0);
SAME(SUMTREE_ARGUMENT, 1);
SAME(SUMTREE_CAPACITY, 2);
SAME(SUMTREE_MEMORY, 3);
SAME(SUMTREE_INDEX, 4);
SAME(SUMTREE_RANGE, 5);
SAME(SUMTREE_MASS, 6);
SAME(SUMTREE_VALUE, 7);
SAME(SUMTREE_PRIORITY, 8);
SAME(SUMTREE_TARGET, 9);
SAME(SUMTREE_EXPONENT, 10);
SAME(SUMTREE_EMPTY, 11);
SAME(SUMTREE_KIND, 12);
SAME(SUMTREE_CORRUPT, 13);
SAME(SUMTREE_DEVICE, 14);
SAME(SUMTREE_STATUS_COUNT, 15);

SAME(SUMTREE_KIND_SUM, 0);
SAME(SUMTREE_KIND_MIN, 1);
SAME(SUMTREE_KIND_PRIORITY, 2);
SAME(SUMTREE_SIDE_RIGHT, 0);
SAME(SUMTREE_SIDE_LEFT, 1);
SAME(SUMTREE_PLANE_SUM, 0);
SAME(SUMTREE_PLANE_MIN, 1);
SAME(SUMTREE_PLANE_MAX, 2);

SAME(sizeof(sumtree_status), 4);
SAME(sizeof(sumtree_kind), 4);
SAME(sizeof(sumtree_side), 4);
SAME(sizeof(sumtree_plane), 4);
SAME(sizeof(sumtree_philox), 56);
SAME(_Alignof(sumtree_philox), 8);
SAME(offsetof(sumtree_philox, key), 0);
SAME(offsetof(sumtree_philox, counter), 16);
SAME(offsetof(sumtree_philox, buffer_pos), 48);

/* Every function resolves in the library that this is linked to. */
int main(void) {
#define FUNCTION(result, name, arguments) (void (*)(void)) name,
    void (*const functions[])(void) = {FUNCTIONS};
#undef FUNCTION
    if (SUMTREE_MAX_MASS != 0x1p960 || sumtree_abi_version() != 2) return 1;
    printf("%d functions of backend %s\n", (int)(sizeof functions / sizeof *functions), sumtree_backend());
    return 0;
}
