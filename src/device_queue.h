/* The one queue of a device: what is sent ahead of kernels, and what comes back. All of it is for the thread that has
 * entered the device. */
#ifndef SUMTREE_DEVICE_QUEUE_H
#define SUMTREE_DEVICE_QUEUE_H

#include <stddef.h>

#include "device.h"

/* Notes whether the driver did as it was told. */
void must(bool done);

/* Waits until the queue is empty. */
void queue_wait(device *at);

/* A pinned block to fill and upload. */
device_block *queue_slot(device *at);

/* A call, and with it up to two arrays, which lie one behind the other in the block's data. */
void queue_call_with(device *at, const device_call *call, const void *first, size_t first_bytes, const void *second,
                     size_t second_bytes);
void queue_call(device *at, const device_call *call);

/* Copies of any length; the caller may change the host memory on return. */
void carry_up(device *at, void *device_memory, const void *host, size_t bytes);
void carry_down(device *at, void *host, const void *device_memory, size_t bytes);

/* What all calls of a tree have in common. */
device_call call_for(device *at, const sumtree_t *tree);

/* The outcome of a kernel, status << 16 | position, sooner than the queue's end. */
uint32_t hear(device *at, const volatile uint64_t *word, uint64_t ticket);

/* What is wrong with the elements of a call that found a fault: INDEX, or `other`. */
sumtree_status first_fault(device *at, const device_call *there, sumtree_status other, int64_t *position);

/* Waits for a call that checks its elements. */
sumtree_status verdict(device *at, sumtree_status other, int64_t *position);

/* Leaves the device; the status of a call is that of its elements, unless the device failed. */
sumtree_status leave_with(sumtree_status status);

/* Recomputes the crown if it is due. */
void settle_crown(device *at, const sumtree_t *tree);

/* The roots that a kernel has told. */
void note_roots(const device *at, const sumtree_t *tree);
void fetch_roots(device *at, const sumtree_t *tree);

/* The part of a batch from `offset` on that has PART elements at most, or that one launch takes. */
static inline int64_t part_of(int64_t count, int64_t offset) { return count - offset < PART ? count - offset : PART; }
static inline int64_t launch_of(int64_t count, int64_t offset) {
    return count - offset < LAUNCH_MOST ? count - offset : LAUNCH_MOST;
}

#endif
