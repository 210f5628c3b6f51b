/* What the sources of the gpu backend share.
 *
 *   driver.c          the CUDA driver
 *   device.c          which devices there are, and what is kept for each
 *   kernels_device.c  what runs on a device: with device_rules.h, every directive
 *   device_queue.c    what is sent to a device, and what comes back
 *   updates_device.c  and draws_device.c: the functions of kernels.h
 *
 * A kernel takes no arguments: it reads one block, which exists once per device and is sent ahead of the kernels of a
 * call, in the order of the device's one queue. (GCC's OpenACC allocates, copies and frees device memory for every kernel
 * that takes any.) */
#ifndef SUMTREE_DEVICE_H
#define SUMTREE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tree.h"

enum {
    OWNER_DEPTH = 6, /* a gang of a short update owns one subtree rooted at this depth */
    OWNERS = 1 << OWNER_DEPTH,
    SHORT = 4096,    /* the longest batch that owners share out, and that travels in the block */
    CROWNED = 4096,  /* trees of this padded capacity or more have such subtrees; smaller are done by one gang */
    PASS_LEVELS = 9, /* what one pass of a long update rebuilds */
    PASS = 1 << PASS_LEVELS,
    QUEUE = 1, /* the OpenACC queue of everything that runs */
    PLANE_COUNT = 3
};

/* Long batches from host memory travel in parts of this many elements. */
static const int64_t PART = (int64_t)1 << 20;

/* Kernels number the elements of a batch by int32: longer ones in device memory are taken in parts of this many. */
static const int64_t LAUNCH_MOST = (int64_t)1 << 30;

/* No element is bad, no node unsound. */
static const int64_t NOWHERE = INT64_MAX;

/* What kernels tell the host, in host memory: the host reads it once a word bears the ticket of its call, or once the
 * queue has come to its end. Owners tell the outcome when their arguments are read for good, draws when they are done. */
typedef struct device_reply {
    volatile uint64_t outcome; /* of owners: ticket << 32 | status << 16 | position */
    volatile uint64_t drawn;   /* the same of draws, whose tickets are their own */
    int32_t faulty;            /* the block holds the first bad place */
    int32_t undecided;         /* draws have met what only a crown that is not due can decide */
    double roots[PLANE_COUNT];
    double value;
} device_reply;

/* What one call asks of the kernels. */
typedef struct device_call {
    sumtree_t tree;
    int32_t *tags; /* for each leaf, the last position of the batch that names it; -1 between calls */
    int32_t height;
    int32_t crown_due; /* the nodes above the owners' subtrees are still to be recomputed */

    int64_t count;
    int64_t offset;         /* the position of the first of count elements in a longer batch */
    int64_t batch;          /* the length of that batch */
    const int64_t *indices; /* NULL: start, start + 1, .. */
    const double *values;   /* masses or targets */
    int64_t step;
    int64_t start;
    int64_t first_block; /* of the blocks of PASS nodes that a pass rebuilds from */
    int64_t blocks;
    int64_t width; /* the nodes width .. 2 width - 1 are sound, the levels above them are not: */
    int32_t levels;

    sumtree_philox rng;
    double beta;
    int32_t sampling; /* targets are drawn from rng; otherwise they are values */
    int32_t stratified;
    int32_t side;
    int32_t plane;
    int64_t *found;
    double *masses;
    double *weights;

    int32_t *places; /* for each owner, SHORT elements each: positions, leaves, and what those are to store */
    int64_t *owned;
    double *given;

    device_reply *reply;
    uint64_t ticket;
    int32_t arrived; /* gangs or lanes that have come to tell the outcome */
    int32_t on_device;
    int64_t bad_index; /* first places, or NOWHERE */
    int64_t bad_value;
} device_call;

/* Draws have a call of their own, which their kernel leaves as the next one like it will be: the same learner step again
 * finds it there, and nothing is sent. */
typedef struct device_block {
    device_call draws;
    device_call call;
    double data[2 * SHORT]; /* short arguments from host memory: indices, then masses; or targets */
} device_block;

/* What is kept besides the planes of a tree. */
struct tree_state {
    int32_t *tags;
    bool crown_due;
    bool roots_known;
    double roots[PLANE_COUNT];
};

enum { SLOTS = 4 };

/* An open device. Pinned memory and scratch are taken once: no call takes any. */
typedef struct device {
    int32_t number;
    void *context;
    void *stream;
    device_block *there;       /* the block, in device memory */
    device_call draws;         /* what the block holds of draws; its ticket is the next one in any case */
    device_block *slot[SLOTS]; /* blocks on their way, pinned; slot[sent % SLOTS] is the next */
    uint64_t sent;             /* blocks sent; those before `arrived` have left their slots */
    uint64_t arrived;
    uint64_t ticket;
    device_reply *reply;   /* pinned */
    char *pinned;          /* 2 * CARGO bytes on their way */
    int64_t *part_indices; /* device memory: PART elements each */
    double *part_values;
    double *part_weights;
    int32_t *places;
    int64_t *owned;
    double *given;
} device;

enum { CARGO = 1 << 20 };

/* ---- device.c ---- */

/* Opens a device if it is not open yet, makes it the calling thread's, and keeps all others out, until device_leave;
 * NULL if it cannot be used. */
device *device_enter(int32_t number);

/* The host stands in for devices, in tests. */
bool device_is_host(void);

/* DEVICE if the driver has failed meanwhile: to be told by device_fail. Nothing runs from then on. */
sumtree_status device_leave(void);
void device_fail(void);

/* ---- kernels_device.c: each puts one kernel into the queue; `there` is where the block is ---- */

device_block *launch_block(void);
void launch_probe(device_block *there);
void launch_fill(device_block *there);
void launch_owners(device_block *there);
void launch_crown(device_block *there);
void launch_tags(device_block *there, int64_t count);
void launch_small(device_block *there);
void launch_leaf_pass(device_block *there, int64_t blocks);
void launch_node_pass(device_block *there, int64_t blocks);
void launch_rest(device_block *there);
void launch_draws(device_block *there, int64_t count);
void launch_draws_under_due_crown(device_block *there, int64_t count);
void launch_get(device_block *there, int64_t count);
void launch_range(device_block *there);
void launch_unsound_leaf(device_block *there, int64_t nodes);
void launch_unsound_node(device_block *there, int64_t nodes);

#endif
