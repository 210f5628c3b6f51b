/*
 * libsumtree: sum, min and priority trees for prioritized replay.
 *
 * The one public header. Every backend (libsumtree_cpu, and whichever others were built) exports exactly
 * these functions; a program links to one of them or opens one at run time.
 *
 * The tree
 * --------
 * A tree has `capacity` leaves, indexed 0 .. capacity-1, padded to P, the next power of two. Nodes are numbered
 * 1 .. 2P-1: node 1 is the root, node i has the children 2i and 2i+1, and leaf j is node P+j. A node that is no leaf
 * holds, in IEEE double,
 *
 *     sum:  v[i] = v[2i] + v[2i+1]                       an unset leaf is 0
 *     min:  v[i] = v[2i+1] < v[2i] ? v[2i+1] : v[2i]     an unset leaf is +inf
 *     max:  v[i] = v[2i+1] > v[2i] ? v[2i+1] : v[2i]     an unset leaf is 0
 *
 * always recomputed from its two children in that order, never adjusted by a difference. The whole array is thus a
 * function of its leaves alone: every backend, algorithm, thread count and compiler gives the same bits.
 *
 * Kinds
 * -----
 * SUMTREE_SUM       leaves are masses; sum.
 * SUMTREE_MIN       leaves are any double but NaN; min. A leaf of 0 counts like any other.
 * SUMTREE_PRIORITY  leaves are masses; sum, and min and max over the *positive* masses held now
 *                   (min is +inf, max is 0 when there is none).
 *
 * A mass m is a double with 0 <= m <= 2^960, so that no sum of 2^40 masses overflows; -0.0 is stored as 0.0.
 *
 * Descent
 * -------
 * sumtree_find(t) walks from the root with m = t. At a node whose children hold the sums l and r:
 *
 *     side right:  if l > m or r == 0: go left            else: m = fl(m - l), go right
 *     side left:   if (l >= m and l > 0) or r == 0: left  else: m = fl(m - l), go right
 *
 * With exact arithmetic "right" gives the smallest index j with t < sum(0, j+1), and "left" the smallest j of
 * positive mass with t <= sum(0, j+1). The rule above, rounding included, is the contract. It never enters a child
 * whose sum is 0: no leaf of mass 0, and no leaf beyond the capacity, is ever returned.
 *
 * Errors
 * ------
 * Every function that can fail returns a sumtree_status. A batch is checked whole before anything is written: after an
 * error the tree is unchanged. After INDEX, MASS, VALUE, PRIORITY and TARGET, *position (if not NULL) is the first bad
 * place of the batch; otherwise it is not written. Functions that return no status take no NULL unless they say so.
 *
 * Threads
 * -------
 * Functions that take a `const sumtree_t *` may run side by side; one that takes a `sumtree_t *` must run alone.
 *
 * Ownership
 * ---------
 * A sumtree_t is owned by the caller, from sumtree_create to sumtree_free. Array arguments are borrowed for the call:
 * nobody may write to them meanwhile, for what was checked is read again. A tree never grows; multicore borrows 16 bytes
 * for each element of a long batch while it updates, and does without where there are none.
 */
#ifndef SUMTREE_H
#define SUMTREE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SUMTREE_ABI_VERSION 2
#define SUMTREE_MAX_CAPACITY ((int64_t)1 << 40)
#define SUMTREE_MAX_MASS 0x1p960 /* hexadecimal: C99, C++17 */

/* code, name, text: the one table of errors. sumtree_strerror and the Python exceptions are made from it. */
#define SUMTREE_STATUS_TABLE(ENTRY)                                                                                    \
    ENTRY(0, OK, "success")                                                                                            \
    ENTRY(1, ARGUMENT, "a required pointer is NULL, a count is negative or a choice is unknown")                       \
    ENTRY(2, CAPACITY, "a capacity must be in 1 .. 2^40")                                                              \
    ENTRY(3, MEMORY, "the memory limit cannot hold the tree")                                                          \
    ENTRY(4, INDEX, "an index must be in 0 .. capacity-1")                                                             \
    ENTRY(5, RANGE, "a range must satisfy 0 <= start <= stop <= capacity")                                             \
    ENTRY(6, MASS, "a mass must be a number in 0 .. 2^960")                                                            \
    ENTRY(7, VALUE, "a value of a min tree must not be NaN")                                                           \
    ENTRY(8, PRIORITY, "a priority must be finite and >= 0, and priority^alpha at most 2^960")                         \
    ENTRY(9, TARGET, "a target must be a number in 0 .. total")                                                        \
    ENTRY(10, EXPONENT, "alpha must be finite and >= 0, beta in 0 .. 1")                                               \
    ENTRY(11, EMPTY, "the tree holds no positive mass: nothing was added yet, or every mass is 0")                     \
    ENTRY(12, KIND, "this kind of tree has no such operation")                                                         \
    ENTRY(13, CORRUPT, "a node is not the combination of its children, or a leaf is outside its domain")               \
    ENTRY(14, DEVICE, "there is no such device, or the gpu backend cannot run on it")

typedef enum sumtree_status {
#define SUMTREE_STATUS_ENUM(code, name, text) SUMTREE_##name = (code),
    SUMTREE_STATUS_TABLE(SUMTREE_STATUS_ENUM)
#undef SUMTREE_STATUS_ENUM
        SUMTREE_STATUS_COUNT
} sumtree_status;

typedef enum sumtree_kind { SUMTREE_KIND_SUM = 0, SUMTREE_KIND_MIN = 1, SUMTREE_KIND_PRIORITY = 2 } sumtree_kind;
typedef enum sumtree_side { SUMTREE_SIDE_RIGHT = 0, SUMTREE_SIDE_LEFT = 1 } sumtree_side;
typedef enum sumtree_plane { SUMTREE_PLANE_SUM = 0, SUMTREE_PLANE_MIN = 1, SUMTREE_PLANE_MAX = 2 } sumtree_plane;

typedef struct sumtree sumtree_t;

/* NumPy's Philox4x64-10. buffer_pos is 0 .. 4: how many words of the block at `counter` were used. */
typedef struct sumtree_philox {
    uint64_t key[2];
    uint64_t counter[4];
    int32_t buffer_pos;
} sumtree_philox;

/* ---- the library ------------------------------------------------------------------------------------------------ */

/* SUMTREE_ABI_VERSION of the library that runs: compare it before any other call. */
int32_t sumtree_abi_version(void);

/* "cpu", "multicore" or "gpu". Static storage. */
const char *sumtree_backend(void);

/* The compiler that built the library, what its backend runs on, and the flags, such as
 * "GCC 12.2.0, OpenMP, flags: -O3 -ffp-contract=off"; "flags: not recorded" if CMake did not build it. Static storage. */
const char *sumtree_build(void);

/* The vector units that descents are made for: "baseline", "avx2" or "avx512". The widest that the processor has is
 * chosen when the library is loaded; every level gives the same bits. sumtree_vector_levels lists what can be selected
 * here, separated by spaces, the widest last; sumtree_select_vector_level (ARGUMENT for any other) must run alone. Static
 * storage. */
const char *sumtree_vector_level(void);
const char *sumtree_vector_levels(void);
sumtree_status sumtree_select_vector_level(const char *level);

/* The text of a status, and its name without the prefix ("MASS"); "unknown status" outside the table. Static storage.
 */
const char *sumtree_strerror(int32_t status);
const char *sumtree_status_name(int32_t status);

/* ---- life cycle --------------------------------------------------------------------------------------------------*/

/* Makes a tree with all leaves unset. 1 <= capacity <= 2^40. MEMORY at once if the memory that is available to this
 * process (physical memory, control group and address-space limit) cannot hold it; its pages are taken here, so that
 * no later call runs out. On error *tree is NULL. O(capacity). */
sumtree_status sumtree_create(int64_t capacity, sumtree_kind kind, sumtree_t **tree);

/* The same in the memory of one device; sumtree_create takes device 0 of the gpu backend, and the host otherwise.
 * DEVICE unless 0 <= device < sumtree_device_count(). */
sumtree_status sumtree_create_on(int32_t device, int64_t capacity, sumtree_kind kind, sumtree_t **tree);

/* Accepts NULL. */
void sumtree_free(sumtree_t *tree);

int64_t sumtree_capacity(const sumtree_t *tree);
int64_t sumtree_padded_capacity(const sumtree_t *tree);
sumtree_kind sumtree_get_kind(const sumtree_t *tree);

/* The device that holds the tree; -1: the host. */
int32_t sumtree_get_device(const sumtree_t *tree);

/* The bytes that this process may still take: what physical memory and its control groups leave, less a reserve for
 * page tables; UINT64_MAX if unknown. */
uint64_t sumtree_memory_available(void);

/* The bytes that sumtree_create(capacity, kind) takes; 0 for a capacity outside 1 .. 2^40. */
uint64_t sumtree_bytes(int64_t capacity, sumtree_kind kind);

/* ---- leaves ------------------------------------------------------------------------------------------------------*/

/* leaf[indices[k]] = masses[k] for k = 0 .. count-1; of equal indices the last wins. mass_step is 1, or 0 to give all
 * leaves masses[0]. INDEX, then MASS or VALUE. O(count log capacity), never more than O(capacity) beyond the leaves. */
sumtree_status sumtree_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                              int64_t mass_step, int64_t *position);

/* leaf[start + k] = masses[k]: the contiguous case of sumtree_update. RANGE, then MASS or VALUE. */
sumtree_status sumtree_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                    int64_t mass_step, int64_t *position);

/* masses[k] = leaf[indices[k]]. INDEX. O(count). */
sumtree_status sumtree_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                           int64_t *position);

/* masses[k] = leaf[start + k]. RANGE. O(count). */
sumtree_status sumtree_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses);

/* ---- reductions: the root of the same tree with the leaves outside [start, stop) unset --------------------------- */

/* KIND for a min tree; RANGE. O(log capacity). */
sumtree_status sumtree_sum(const sumtree_t *tree, int64_t start, int64_t stop, double *sum);

/* KIND unless it is a min tree; RANGE. O(log capacity). */
sumtree_status sumtree_min(const sumtree_t *tree, int64_t start, int64_t stop, double *min);

/* The root of one plane. KIND if the tree has no such plane. O(1). */
sumtree_status sumtree_root(const sumtree_t *tree, sumtree_plane plane, double *value);

/* ---- draws -------------------------------------------------------------------------------------------------------*/

/* indices[k] = the leaf that the descent for targets[k] ends in. KIND for a min tree; EMPTY if the total is 0 and
 * count > 0; TARGET unless 0 <= target <= total. O(count log capacity). */
sumtree_status sumtree_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                            int64_t *indices, int64_t *position);

/* Draws count leaves with probability mass/total, side right, from exactly count doubles u_0 .. u_(count-1) of *rng:
 *
 *     targets:  stratified == 0:  fl(u_k * total)
 *               otherwise:        fl(fl(fl(k + u_k) / count) * total)        each at most nextafter(total, 0)
 *     weights:  fl(min positive mass / mass)^beta, by the C library's pow
 *
 * KIND unless it is a priority tree; EXPONENT unless 0 <= beta <= 1; EMPTY if count > 0 and the total is 0. After an
 * error *rng is unchanged. O(count log capacity). */
sumtree_status sumtree_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                              int32_t stratified, int64_t *indices, double *masses, double *weights);

/* uniforms[k] = the next double of *rng, (word >> 11) * 2^-53, as numpy.random.Generator(Philox).random draws it.
 * ARGUMENT if buffer_pos is outside 0 .. 4. */
sumtree_status sumtree_uniforms(sumtree_philox *rng, int64_t count, double *uniforms);

/* masses[k] = priorities[k]^alpha, by the C library's pow; 0 for priority 0 whatever alpha is.
 * EXPONENT, then PRIORITY, after which masses holds nothing of use. O(count). */
sumtree_status sumtree_masses(int64_t count, const double *priorities, double alpha, double *masses, int64_t *position);

/* ---- devices: what the gpu backend has, and the others have none of ------------------------------------------------
 *
 * Calls of the gpu backend are serialised within a process. Those above take arrays in host memory, and those below
 * arrays in the memory of the tree's device. Arrays in device memory must be ready when they are passed: what the default
 * stream was given before is. On return all arguments are free again and results can be read, from any stream; an update
 * may still be under way, and every later call on the tree comes after it.
 *
 * In a child of fork, and after a device has failed, every call on a tree returns DEVICE. */

/* How many devices trees can be made on. 0 if there is none, or none can be used: then sumtree_device_problem says why,
 * such as "no NVIDIA driver: libcuda.so.1 cannot be loaded", and is "" otherwise. Static storage. The gpu backend never
 * runs on the host instead, except where the environment variable LIBSUMTREE_GPU_ON_HOST is "for-tests": then device 0
 * is the host itself. */
int32_t sumtree_device_count(void);
const char *sumtree_device_problem(void);

/* What a device is, such as "NVIDIA H200, compute capability 9.0", and its free bytes; "" and 0 for no device. */
const char *sumtree_device_name(int32_t device);
uint64_t sumtree_device_memory_available(int32_t device);

/* Memory of a device. MEMORY or DEVICE; on error *memory is NULL. sumtree_device_release accepts NULL. */
sumtree_status sumtree_device_allocate(int32_t device, uint64_t bytes, void **memory);
void sumtree_device_release(int32_t device, void *memory);

/* As sumtree_update, _get, _find and _sample, with all arrays in the memory of the tree's device; *position and *rng are
 * the host's. DEVICE for a tree in host memory. After INDEX or TARGET, what _get or _find was to fill holds nothing of
 * use. */
sumtree_status sumtree_device_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                     int64_t mass_step, int64_t *position);
sumtree_status sumtree_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                  int64_t *position);
sumtree_status sumtree_device_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                   int64_t *indices, int64_t *position);
sumtree_status sumtree_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                     int32_t stratified, int64_t *indices, double *masses, double *weights);

/* ---- self-check --------------------------------------------------------------------------------------------------*/

/* OK if every leaf is in its domain, every padding leaf is unset and every node has the bits of its rule; else CORRUPT,
 * and *plane and *node name the first place. O(capacity). */
sumtree_status sumtree_validate(const sumtree_t *tree, sumtree_plane *plane, int64_t *node);

/* nodes[i] = node i of a plane for i = 1 .. 2P-1, and nodes[0] = 0: the whole array, for comparison bit for bit.
 * In the min plane of a priority tree a leaf of mass 0 reads +inf. KIND if the tree has no such plane. O(capacity). */
sumtree_status sumtree_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes);

#ifdef __cplusplus
}
#endif

#endif
