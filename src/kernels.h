/* The kernels: everything that reads or writes planes.
 *
 * Of each there is one for trees in host memory (kernels_host.c: cpu and multicore) and one for trees in the memory of a
 * device (kernels_device.c: gpu). Both are made of the rules in rules.h. Array arguments lie in host memory, were checked
 * by sumtree.c and hold count > 0 elements, unless a function says otherwise. */
#ifndef SUMTREE_KERNELS_H
#define SUMTREE_KERNELS_H

#include "tree.h"

/* Takes the planes of a tree whose other members are set, all leaves unset; OK, or MEMORY or DEVICE with no plane
 * taken. */
sumtree_status kernel_take(sumtree_t *tree);
void kernel_release(sumtree_t *tree);

/* The bytes that may still be taken where `device` says. */
uint64_t kernel_memory_available(int32_t device);

/* OK, or DEVICE if the tree's device can no longer be used. */
sumtree_status kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                             int64_t mass_step);
sumtree_status kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                   int64_t mass_step);
sumtree_status kernel_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses);
sumtree_status kernel_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses);

/* The same, over the nodes first .. last of the leaf level, first <= last. */
sumtree_status kernel_range_sum(const sumtree_t *tree, int64_t first, int64_t last, double *sum);
sumtree_status kernel_range_min(const sumtree_t *tree, int64_t first, int64_t last, double *min);
sumtree_status kernel_root(const sumtree_t *tree, sumtree_plane plane, double *value);

/* Check the total, and the targets, too: EMPTY, or TARGET and *position. */
sumtree_status kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                           int64_t *indices, int64_t *position);
sumtree_status kernel_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta, bool stratified,
                             int64_t *indices, double *masses, double *weights);

/* CORRUPT, and *node is the first unsound leaf, or the first unsound node of a plane, from the leaves up. */
sumtree_status kernel_unsound_leaf(const sumtree_t *tree, int64_t *node);
sumtree_status kernel_unsound_node(const sumtree_t *tree, sumtree_plane plane, int64_t *node);
sumtree_status kernel_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes);

/* ---- devices: as the functions of sumtree.h ----------------------------------------------------------------------- */

int32_t kernel_device_count(void);
const char *kernel_device_problem(void);
const char *kernel_device_name(int32_t device);
sumtree_status kernel_device_allocate(int32_t device, uint64_t bytes, void **memory);
void kernel_device_release(int32_t device, void *memory);

/* With all arrays in the memory of the tree's device, where they are checked too: the statuses of sumtree_update and so
 * on that say what is wrong with an element, or EMPTY. DEVICE for a tree in host memory. */
sumtree_status kernel_device_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                    int64_t mass_step, int64_t *position);
sumtree_status kernel_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                 int64_t *position);
sumtree_status kernel_device_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                  int64_t *indices, int64_t *position);
sumtree_status kernel_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                    bool stratified, int64_t *indices, double *masses, double *weights);

#endif
