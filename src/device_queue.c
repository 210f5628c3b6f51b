/* Everything that is done on a device goes into its one queue, so whatever is put in later finds it done. A call that has
 * nothing to bring back returns at once: its arguments have been copied to pinned memory. */
#include "device_queue.h"

#include <stddef.h>
#include <string.h>

#include "driver.h"
#include "parallel.h"

/* ---- sending and waiting ------------------------------------------------------------------------------------------ */

void must(bool done) {
    if (!done) device_fail();
}

void queue_wait(device *at) {
    must(driver_wait(at->stream));
    at->arrived = at->sent;
}

device_block *queue_slot(device *at) {
    if (at->sent - at->arrived == SLOTS) queue_wait(at);
    return at->slot[at->sent++ % SLOTS];
}

/* Sends a call with up to two arrays, which lie one behind the other in the block's data. */
void queue_call_with(device *at, const device_call *call, const void *first, size_t first_bytes, const void *second,
                     size_t second_bytes) {
    device_block *slot = queue_slot(at);
    memcpy(&slot->call, call, sizeof *call);
    if (first_bytes > 0) memcpy(slot->data, first, first_bytes);
    if (second_bytes > 0) memcpy((char *)slot->data + first_bytes, second, second_bytes);
    must(driver_upload(at->stream, &at->there->call, &slot->call, sizeof *call + first_bytes + second_bytes));
}

void queue_call(device *at, const device_call *call) { queue_call_with(at, call, NULL, 0, NULL, 0); }

/* Copies from host memory of any kind, which the caller may change on return. */
void carry_up(device *at, void *device_memory, const void *host, size_t bytes) {
    for (size_t done = 0, pieces = 0; done < bytes; ++pieces) {
        const size_t piece = bytes - done < CARGO ? bytes - done : CARGO;
        if (pieces % 2 == 0) queue_wait(at);
        char *half = at->pinned + (pieces % 2) * CARGO;
        memcpy(half, (const char *)host + done, piece);
        must(driver_upload(at->stream, (char *)device_memory + done, half, piece));
        done += piece;
    }
}

void carry_down(device *at, void *host, const void *device_memory, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const size_t piece = bytes - done < CARGO ? bytes - done : CARGO;
        must(driver_download(at->stream, at->pinned, (const char *)device_memory + done, piece));
        queue_wait(at);
        memcpy((char *)host + done, at->pinned, piece);
        done += piece;
    }
}

device_call call_for(device *at, const sumtree_t *tree) {
    device_call call;
    memset(&call, 0, sizeof call); /* calls are compared byte by byte */
    call.tree = *tree;
    call.tags = tree->state->tags;
    call.reply = at->reply;
    while (((int64_t)1 << call.height) < tree->padded) ++call.height;
    call.places = at->places;
    call.owned = at->owned;
    call.given = at->given;
    call.bad_index = NOWHERE;
    call.bad_value = NOWHERE;
    return call;
}

/* Waits until the kernel of a call has told its outcome, status << 16 | position; sooner known than the queue's end. */
uint32_t hear(device *at, const volatile uint64_t *word, uint64_t ticket) {
    enum { PATIENCE = 1 << 22 };
    const uint64_t mine = ticket & UINT32_MAX;
    uint64_t outcome = *word;
    for (int tries = 0; BACKEND_TELLS && outcome >> 32 != mine && tries < PATIENCE; ++tries) outcome = *word;
    if (outcome >> 32 == mine) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was written before it */
        at->arrived = at->sent;                  /* what a kernel has read has left its slot */
    } else {
        queue_wait(at);
        outcome = *word;
    }
    return (uint32_t)outcome;
}

/* What is wrong with the elements of a call that found a fault: INDEX, or `other`. */
sumtree_status first_fault(device *at, const device_call *there, sumtree_status other, int64_t *position) {
    int64_t bad[2];
    const char *cells = (const char *)there + offsetof(device_call, bad_index);
    _Static_assert(offsetof(device_call, bad_value) == offsetof(device_call, bad_index) + sizeof(int64_t), "one copy");
    must(driver_download(at->stream, bad, cells, sizeof bad));
    queue_wait(at);
    const bool index = bad[0] != NOWHERE;
    if (position != NULL) *position = bad[index ? 0 : 1];
    return index ? SUMTREE_INDEX : other;
}

/* Waits for a call that checks its elements. */
sumtree_status verdict(device *at, sumtree_status other, int64_t *position) {
    queue_wait(at);
    return at->reply->faulty ? first_fault(at, &at->there->call, other, position) : SUMTREE_OK;
}

/* The status of a call: that of its elements, unless the device failed. */
sumtree_status leave_with(sumtree_status status) {
    const sumtree_status left = device_leave();
    return left == SUMTREE_OK ? status : left;
}

/* ---- the levels above owners, and the roots ----------------------------------------------------------------------- */

/* Everything but updates and draws reads nodes that are sound. */
void settle_crown(device *at, const sumtree_t *tree) {
    if (!tree->state->crown_due) return;
    device_call call = call_for(at, tree);
    call.crown_due = 1;
    queue_call(at, &call);
    launch_crown(at->there);
    tree->state->crown_due = false;
}

void note_roots(const device *at, const sumtree_t *tree) {
    memcpy(tree->state->roots, at->reply->roots, sizeof tree->state->roots);
    tree->state->roots_known = true;
}

void fetch_roots(device *at, const sumtree_t *tree) {
    if (tree->state->roots_known) return;
    device_call call = call_for(at, tree);
    call.crown_due = tree->state->crown_due;
    queue_call(at, &call);
    launch_crown(at->there);
    queue_wait(at);
    tree->state->crown_due = false;
    note_roots(at, tree);
}
