/* Planes in device memory, and updates: which kernels run on what. */
#include <stdlib.h>
#include <string.h>

#include "device_queue.h"
#include "driver.h"
#include "kernels.h"
#include "parallel.h"
#include "philox.h"
#include "rules.h"

/* ---- planes ------------------------------------------------------------------------------------------------------- */

uint64_t kernel_memory_available(int32_t number) {
    if (number == HOST || device_is_host()) return memory_to_spare();
    /* A device that cannot be entered is no matter of memory: kernel_take says what it is. */
    if (device_enter(number) == NULL) return UINT64_MAX;
    const uint64_t available = driver_free_bytes();
    (void)device_leave();
    return available;
}

static void fill_with_infinity(device *at, const sumtree_t *tree, double *plane, int64_t nodes) {
    device_call call = call_for(at, tree);
    call.masses = plane;
    call.count = nodes;
    queue_call(at, &call);
    launch_fill(at->there);
}

static bool take_planes(device *at, sumtree_t *tree) {
    const bool summed = tree->kind != SUMTREE_KIND_MIN, all = tree->kind == SUMTREE_KIND_PRIORITY;
    const uint64_t half = (uint64_t)tree->padded * sizeof(double);
    void *sum = NULL, *min = NULL, *max = NULL, *tags = NULL;
    const bool taken = (!summed || driver_take(2 * half, &sum)) && (!all || driver_take(half, &max)) &&
                       ((summed && !all) || driver_take(all ? half : 2 * half, &min)) &&
                       driver_take((uint64_t)tree->padded * sizeof(int32_t), &tags);
    tree->sum = sum;
    tree->min = min;
    tree->max = max;
    tree->state->tags = tags;
    if (!taken) return false;
    if (summed) must(driver_fill(at->stream, sum, 0, 2 * half));
    if (all) must(driver_fill(at->stream, max, 0, half));
    must(driver_fill(at->stream, tags, 0xff, (size_t)tree->padded * sizeof(int32_t)));
    if (min != NULL) fill_with_infinity(at, tree, min, all ? tree->padded : 2 * tree->padded);
    return true;
}

static void give_planes_back(sumtree_t *tree) {
    driver_give_back(tree->sum);
    driver_give_back(tree->min);
    driver_give_back(tree->max);
    driver_give_back(tree->state->tags);
}

sumtree_status kernel_take(sumtree_t *tree) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    tree->state = calloc(1, sizeof *tree->state);
    const bool taken = tree->state != NULL && take_planes(at, tree);
    if (tree->state != NULL && !taken) give_planes_back(tree);
    const sumtree_status status = leave_with(taken ? SUMTREE_OK : SUMTREE_MEMORY);
    if (status == SUMTREE_OK) return status;
    free(tree->state);
    tree->state = NULL;
    return status;
}

/* In a child of fork the memory of devices is the parent's. */
void kernel_release(sumtree_t *tree) {
    device *at = device_enter(tree->device);
    if (at != NULL) {
        queue_wait(at);
        give_planes_back(tree);
        (void)device_leave();
    }
    free(tree->state);
}

/* Above this many levels, one more pass comes before the single gang that does the rest. */
enum { REST_MOST = 15 };

/* ---- updates ------------------------------------------------------------------------------------------------------ */

static void forget_roots(sumtree_t *tree, bool crown_due) {
    tree->state->roots_known = false;
    tree->state->crown_due = crown_due;
}

static bool is_crowned(const sumtree_t *tree) { return tree->padded >= CROWNED; }

/* What one pass rebuilds from: the blocks with the leaves first .. last. */
static void aim_pass(device_call *call, int64_t first, int64_t last) {
    call->first_block = first / PASS;
    call->blocks = last / PASS - call->first_block + 1;
}

/* Writes the leaves of a call that was aimed and sent, and recomputes all that is above them. */
static void rebuild(device *at, sumtree_t *tree, device_call *call) {
    forget_roots(tree, false);
    if (!is_crowned(tree)) {
        launch_small(at->there);
        return;
    }
    launch_leaf_pass(at->there, call->blocks);
    while (call->levels > REST_MOST) {
        aim_pass(call, call->first_block, call->first_block + call->blocks - 1);
        queue_call(at, call);
        launch_node_pass(at->there, call->blocks);
        call->width >>= PASS_LEVELS;
        call->levels -= PASS_LEVELS;
        queue_call(at, call);
    }
    launch_rest(at->there);
}

static device_call long_call(device *at, const sumtree_t *tree, int64_t first, int64_t last) {
    device_call call = call_for(at, tree);
    aim_pass(&call, first, last);
    call.width = tree->padded >> PASS_LEVELS;
    call.levels = call.height - PASS_LEVELS;
    return call;
}

static void update_short(device *at, sumtree_t *tree, device_call *call) {
    if (is_crowned(tree)) {
        launch_owners(at->there);
        forget_roots(tree, true);
    } else {
        launch_tags(at->there, call->count);
        rebuild(at, tree, call);
    }
}

static void update_part(device *at, sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                        int64_t mass_step) {
    device_call call = long_call(at, tree, 0, tree->padded - 1);
    carry_up(at, at->part_indices, indices, (size_t)count * sizeof *indices);
    carry_up(at, at->part_values, masses, (size_t)(mass_step == 0 ? 1 : count) * sizeof *masses);
    call.count = count;
    call.indices = at->part_indices;
    call.values = at->part_values;
    call.step = mass_step;
    queue_call(at, &call);
    launch_tags(at->there, count);
    rebuild(at, tree, &call);
}

sumtree_status kernel_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                             int64_t mass_step) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    if (count <= SHORT) {
        device_call call = long_call(at, tree, 0, tree->padded - 1);
        call.count = count;
        call.indices = (const int64_t *)at->there->data;
        call.values = at->there->data + count;
        call.step = mass_step;
        call.ticket = ++at->ticket;
        queue_call_with(at, &call, indices, (size_t)count * sizeof *indices, masses,
                        (size_t)(mass_step == 0 ? 1 : count) * sizeof *masses);
        update_short(at, tree, &call);
        return device_leave();
    }
    for (int64_t offset = 0; offset < count; offset += PART) {
        update_part(at, tree, part_of(count, offset), indices + offset, masses + offset * mass_step, mass_step);
    }
    return device_leave();
}

sumtree_status kernel_update_range(sumtree_t *tree, int64_t start, int64_t count, const double *masses,
                                   int64_t mass_step) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    settle_crown(at, tree); /* only what is above the range is recomputed */
    for (int64_t offset = 0; offset < count; offset += PART) {
        const int64_t part = part_of(count, offset), first = start + offset;
        const size_t bytes = (size_t)(mass_step == 0 ? 1 : part) * sizeof *masses;
        const bool is_short = bytes <= sizeof at->there->data;
        device_call call = long_call(at, tree, first, first + part - 1);
        call.count = part;
        call.start = first;
        call.values = is_short ? at->there->data : at->part_values;
        call.step = mass_step;
        if (!is_short) carry_up(at, at->part_values, masses + offset * mass_step, bytes);
        queue_call_with(at, &call, masses + offset * mass_step, is_short ? bytes : 0, NULL, 0);
        rebuild(at, tree, &call);
    }
    return device_leave();
}

/* Checks a batch that one launch does not take, before any leaf is written. */
static sumtree_status check_parts(device *at, const sumtree_t *tree, int64_t count, const device_call *whole,
                                  int64_t *position) {
    for (int64_t offset = 0; offset < count; offset += LAUNCH_MOST) {
        device_call call = *whole;
        call.tags = NULL;
        call.offset = offset;
        call.count = launch_of(count, offset);
        call.indices += offset;
        call.values += offset * call.step;
        queue_call(at, &call);
        launch_tags(at->there, call.count);
        const sumtree_status status =
            verdict(at, tree->kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS, position);
        if (status != SUMTREE_OK) return status;
    }
    return SUMTREE_OK;
}

static sumtree_status update_long(device *at, sumtree_t *tree, int64_t count, device_call call, int64_t *position) {
    const sumtree_status other = tree->kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS;
    const device_call whole = call;
    at->reply->faulty = 0;
    /* What a failed check leaves in the block is lost when the block is sent again. */
    if (count > LAUNCH_MOST || call.levels > REST_MOST) {
        const sumtree_status status = check_parts(at, tree, count, &whole, position);
        if (status != SUMTREE_OK) return status;
    }
    for (int64_t offset = 0; offset < count; offset += LAUNCH_MOST) {
        call = whole;
        call.count = launch_of(count, offset);
        call.indices += offset;
        call.values += offset * call.step;
        queue_call(at, &call);
        launch_tags(at->there, call.count);
        rebuild(at, tree, &call);
    }
    return verdict(at, other, position);
}

sumtree_status kernel_device_update(sumtree_t *tree, int64_t count, const int64_t *indices, const double *masses,
                                    int64_t mass_step, int64_t *position) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    device_call call = long_call(at, tree, 0, tree->padded - 1);
    call.count = count;
    call.indices = indices;
    call.values = masses;
    call.step = mass_step;
    if (count > SHORT || !is_crowned(tree)) return leave_with(update_long(at, tree, count, call, position));
    call.ticket = ++at->ticket;
    queue_call(at, &call);
    update_short(at, tree, &call);
    const uint32_t outcome = hear(at, &at->reply->outcome, call.ticket);
    if (outcome != SUMTREE_OK && position != NULL) *position = outcome & UINT16_MAX;
    return leave_with((sumtree_status)(outcome >> 16));
}
