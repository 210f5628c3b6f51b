/* The kernels of kernels.h for trees in device memory: what is sent ahead, which kernels run, what comes back.
 *
 * Everything goes into the one queue of a device, so whatever is put in later finds it done. A call that has nothing to
 * bring back returns at once: its arguments have been copied to pinned memory. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "driver.h"
#include "kernels.h"
#include "parallel.h"
#include "philox.h"
#include "rules.h"

/* Above this many levels, one more pass comes before the single gang that does the rest. */
enum { REST_MOST = 15 };

/* ---- sending and waiting ------------------------------------------------------------------------------------------ */

static void must(bool done) {
    if (!done) device_fail();
}

static void wait_for(device *at) {
    must(driver_wait(at->stream));
    at->arrived = at->sent;
}

static device_block *next_slot(device *at) {
    if (at->sent - at->arrived == SLOTS) wait_for(at);
    return at->slot[at->sent++ % SLOTS];
}

/* Sends a call with up to two arrays, which lie one behind the other in the block's data. */
static void send(device *at, const device_call *call, const void *first, size_t first_bytes, const void *second,
                 size_t second_bytes) {
    device_block *slot = next_slot(at);
    memcpy(&slot->call, call, sizeof *call);
    if (first_bytes > 0) memcpy(slot->data, first, first_bytes);
    if (second_bytes > 0) memcpy((char *)slot->data + first_bytes, second, second_bytes);
    must(driver_upload(at->stream, &at->there->call, &slot->call, sizeof *call + first_bytes + second_bytes));
}

static void send_call(device *at, const device_call *call) { send(at, call, NULL, 0, NULL, 0); }

/* Copies from host memory of any kind, which the caller may change on return. */
static void carry_up(device *at, void *device_memory, const void *host, size_t bytes) {
    for (size_t done = 0, pieces = 0; done < bytes; ++pieces) {
        const size_t piece = bytes - done < CARGO ? bytes - done : CARGO;
        if (pieces % 2 == 0) wait_for(at);
        char *half = at->pinned + (pieces % 2) * CARGO;
        memcpy(half, (const char *)host + done, piece);
        must(driver_upload(at->stream, (char *)device_memory + done, half, piece));
        done += piece;
    }
}

static void carry_down(device *at, void *host, const void *device_memory, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const size_t piece = bytes - done < CARGO ? bytes - done : CARGO;
        must(driver_download(at->stream, at->pinned, (const char *)device_memory + done, piece));
        wait_for(at);
        memcpy((char *)host + done, at->pinned, piece);
        done += piece;
    }
}

static device_call call_for(device *at, const sumtree_t *tree) {
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
static uint32_t hear(device *at, const volatile uint64_t *word, uint64_t ticket) {
    enum { PATIENCE = 1 << 22 };
    const uint64_t mine = ticket & UINT32_MAX;
    uint64_t outcome = *word;
    for (int tries = 0; BACKEND_TELLS && outcome >> 32 != mine && tries < PATIENCE; ++tries) outcome = *word;
    if (outcome >> 32 == mine) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was written before it */
        at->arrived = at->sent; /* what a kernel has read has left its slot */
    } else {
        wait_for(at);
        outcome = *word;
    }
    return (uint32_t)outcome;
}

/* What is wrong with the elements of a call that found a fault: INDEX, or `other`. */
static sumtree_status first_fault(device *at, const device_call *there, sumtree_status other, int64_t *position) {
    int64_t bad[2];
    const char *cells = (const char *)there + offsetof(device_call, bad_index);
    _Static_assert(offsetof(device_call, bad_value) == offsetof(device_call, bad_index) + sizeof(int64_t), "one copy");
    must(driver_download(at->stream, bad, cells, sizeof bad));
    wait_for(at);
    const bool index = bad[0] != NOWHERE;
    if (position != NULL) *position = bad[index ? 0 : 1];
    return index ? SUMTREE_INDEX : other;
}

/* Waits for a call that checks its elements. */
static sumtree_status verdict(device *at, sumtree_status other, int64_t *position) {
    wait_for(at);
    return at->reply->faulty ? first_fault(at, &at->there->call, other, position) : SUMTREE_OK;
}

/* The status of a call: that of its elements, unless the device failed. */
static sumtree_status leave_with(sumtree_status status) {
    const sumtree_status left = device_leave();
    return left == SUMTREE_OK ? status : left;
}

/* ---- the levels above owners, and the roots ----------------------------------------------------------------------- */

/* Everything but updates and draws reads nodes that are sound. */
static void settle_crown(device *at, const sumtree_t *tree) {
    if (!tree->state->crown_due) return;
    device_call call = call_for(at, tree);
    call.crown_due = 1;
    send_call(at, &call);
    launch_crown(at->there);
    tree->state->crown_due = false;
}

static void note_roots(const device *at, const sumtree_t *tree) {
    memcpy(tree->state->roots, at->reply->roots, sizeof tree->state->roots);
    tree->state->roots_known = true;
}

static void fetch_roots(device *at, const sumtree_t *tree) {
    if (tree->state->roots_known) return;
    device_call call = call_for(at, tree);
    call.crown_due = tree->state->crown_due;
    send_call(at, &call);
    launch_crown(at->there);
    wait_for(at);
    tree->state->crown_due = false;
    note_roots(at, tree);
}

sumtree_status kernel_root(const sumtree_t *tree, sumtree_plane plane, double *value) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    fetch_roots(at, tree);
    *value = tree->state->roots[plane];
    return device_leave();
}

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
    send_call(at, &call);
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
    if (tree->state != NULL && take_planes(at, tree)) return device_leave();
    if (tree->state != NULL) give_planes_back(tree);
    free(tree->state);
    tree->state = NULL;
    return leave_with(SUMTREE_MEMORY);
}

/* In a child of fork the memory of devices is the parent's. */
void kernel_release(sumtree_t *tree) {
    device *at = device_enter(tree->device);
    if (at != NULL) {
        wait_for(at);
        give_planes_back(tree);
        (void)device_leave();
    }
    free(tree->state);
}

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
        send_call(at, call);
        launch_node_pass(at->there, call->blocks);
        call->width >>= PASS_LEVELS;
        call->levels -= PASS_LEVELS;
        send_call(at, call);
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

/* The batch's part from `offset` on: PART elements or what is left. */
static int64_t part_of(int64_t count, int64_t offset) { return count - offset < PART ? count - offset : PART; }

/* The same of a batch in device memory. */
static int64_t launch_of(int64_t count, int64_t offset) {
    return count - offset < LAUNCH_MOST ? count - offset : LAUNCH_MOST;
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
    send_call(at, &call);
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
        send(at, &call, indices, (size_t)count * sizeof *indices, masses,
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
        send(at, &call, masses + offset * mass_step, is_short ? bytes : 0, NULL, 0);
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
        send_call(at, &call);
        launch_tags(at->there, call.count);
        const sumtree_status status = verdict(at, tree->kind == SUMTREE_KIND_MIN ? SUMTREE_VALUE : SUMTREE_MASS, position);
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
        send_call(at, &call);
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
    send_call(at, &call);
    update_short(at, tree, &call);
    const uint32_t outcome = hear(at, &at->reply->outcome, call.ticket);
    if (outcome != SUMTREE_OK && position != NULL) *position = outcome & UINT16_MAX;
    return leave_with((sumtree_status)(outcome >> 16));
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* Sends a call of draws, with targets from host memory or NULL, unless the block holds it already. */
static void send_draws(device *at, device_call *call, const double *targets) {
    const size_t bytes = (size_t)call->count * sizeof *targets;
    call->ticket = at->draws.ticket;
    if (targets != NULL) {
        device_block *slot = next_slot(at);
        memcpy(slot->data, targets, bytes);
        must(driver_upload(at->stream, at->there->data, slot->data, bytes));
    }
    if (memcmp(call, &at->draws, sizeof *call) != 0) {
        device_block *slot = next_slot(at);
        memcpy(&slot->draws, call, sizeof *call);
        must(driver_upload(at->stream, &at->there->draws, &slot->draws, sizeof *call));
    }
}

/* What draws leave in the block: after a fault, nothing that the next call could want. */
static void expect_draws(device *at, const device_call *call, bool well) {
    if (well) {
        memcpy(&at->draws, call, sizeof *call);
        if (call->sampling) philox_skip(&at->draws.rng, call->count);
    } else {
        memset(&at->draws, 0, sizeof at->draws);
    }
    at->draws.ticket = call->ticket + 1;
}

/* One try: EMPTY, or OK with faults to be looked for. */
static sumtree_status try_draws(device *at, const sumtree_t *tree, device_call *call, const double *targets) {
    send_draws(at, call, targets);
    at->reply->faulty = 0;
    at->reply->undecided = 0;
    if (tree->state->crown_due) {
        launch_draws_under_due_crown(at->there, call->count);
    } else {
        launch_draws(at->there, call->count);
    }
    const sumtree_status status = (sumtree_status)(hear(at, &at->reply->drawn, call->ticket) >> 16);
    expect_draws(at, call, status == SUMTREE_OK && !at->reply->faulty);
    return status;
}

/* EMPTY, TARGET or OK. A crown that is due stays so, unless the draws are many or it must decide them. */
static sumtree_status run_draws(device *at, const sumtree_t *tree, device_call *call, const double *targets,
                                int64_t *position) {
    if (call->count > SHORT) settle_crown(at, tree);
    sumtree_status status = try_draws(at, tree, call, targets);
    if (at->reply->undecided) {
        settle_crown(at, tree);
        status = try_draws(at, tree, call, targets);
    }
    const bool faulty = at->reply->faulty;
    note_roots(at, tree);
    return faulty ? first_fault(at, &at->there->draws, SUMTREE_TARGET, position) : status;
}

static device_call find_call(device *at, const sumtree_t *tree, int64_t count, const double *targets,
                             sumtree_side side, int64_t *found) {
    device_call call = call_for(at, tree);
    call.count = count;
    call.values = targets;
    call.side = side;
    call.found = found;
    return call;
}

static sumtree_status find_short(device *at, const sumtree_t *tree, int64_t count, const double *targets,
                                 sumtree_side side, int64_t *indices, int64_t *position) {
    device_call call = find_call(at, tree, count, at->there->data, side, (int64_t *)(void *)at->pinned);
    const sumtree_status status = run_draws(at, tree, &call, targets, position);
    if (status == SUMTREE_OK) memcpy(indices, at->pinned, (size_t)count * sizeof *indices);
    return status;
}

static sumtree_status find_long(device *at, const sumtree_t *tree, int64_t count, const double *targets,
                                sumtree_side side, int64_t *indices, int64_t *position) {
    fetch_roots(at, tree);
    const double total = tree->state->roots[SUMTREE_PLANE_SUM];
    if (total == 0.0) return SUMTREE_EMPTY;
    *position = first_bad_target(total, count, targets);
    if (*position >= 0) return SUMTREE_TARGET;
    for (int64_t offset = 0; offset < count; offset += PART) {
        const int64_t part = part_of(count, offset);
        device_call call = find_call(at, tree, part, at->part_values, side, at->part_indices);
        carry_up(at, at->part_values, targets + offset, (size_t)part * sizeof *targets);
        (void)run_draws(at, tree, &call, NULL, NULL);
        carry_down(at, indices + offset, at->part_indices, (size_t)part * sizeof *indices);
    }
    return SUMTREE_OK;
}

sumtree_status kernel_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                           int64_t *indices, int64_t *position) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    return leave_with(count <= SHORT ? find_short(at, tree, count, targets, side, indices, position)
                                     : find_long(at, tree, count, targets, side, indices, position));
}

sumtree_status kernel_device_find(const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                                  int64_t *indices, int64_t *position) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    sumtree_status status = SUMTREE_OK;
    for (int64_t offset = 0; offset < count && status == SUMTREE_OK; offset += LAUNCH_MOST) {
        device_call call = find_call(at, tree, launch_of(count, offset), targets + offset, side, indices + offset);
        call.offset = offset;
        status = run_draws(at, tree, &call, NULL, position);
    }
    return leave_with(status);
}

/* Draws offset .. offset + count - 1 of a batch; arrays that devices reach. */
static sumtree_status sample_part(device *at, const sumtree_t *tree, const device_call *request, int64_t offset,
                                  int64_t count, int64_t *indices, double *masses, double *weights) {
    device_call call;
    memcpy(&call, request, sizeof call);
    call.offset = offset;
    call.count = count;
    call.found = indices;
    call.masses = masses;
    call.weights = weights;
    return run_draws(at, tree, &call, NULL, NULL);
}

static device_call sample_call(device *at, const sumtree_t *tree, const sumtree_philox *rng, int64_t count, double beta,
                               bool stratified) {
    device_call call = call_for(at, tree);
    call.sampling = 1;
    call.side = SUMTREE_SIDE_RIGHT;
    memcpy(call.rng.key, rng->key, sizeof rng->key);
    memcpy(call.rng.counter, rng->counter, sizeof rng->counter);
    call.rng.buffer_pos = rng->buffer_pos;
    call.batch = count;
    call.beta = beta;
    call.stratified = stratified;
    return call;
}

static sumtree_status sample_short(device *at, const sumtree_t *tree, const device_call *request, int64_t count,
                                   int64_t *indices, double *masses, double *weights) {
    const size_t bytes = (size_t)count * sizeof(double);
    int64_t *found = (int64_t *)(void *)at->pinned;
    double *drawn = (double *)(void *)(at->pinned + bytes), *weighed = (double *)(void *)(at->pinned + 2 * bytes);
    const sumtree_status status = sample_part(at, tree, request, 0, count, found, drawn, weighed);
    if (status != SUMTREE_OK) return status;
    memcpy(indices, found, bytes);
    memcpy(masses, drawn, bytes);
    memcpy(weights, weighed, bytes);
    return status;
}

static sumtree_status sample_long(device *at, const sumtree_t *tree, const device_call *request, int64_t count,
                                  int64_t *indices, double *masses, double *weights) {
    for (int64_t offset = 0; offset < count; offset += PART) {
        const int64_t part = part_of(count, offset);
        const size_t bytes = (size_t)part * sizeof(double);
        const sumtree_status status = sample_part(at, tree, request, offset, part, at->part_indices, at->part_values,
                                                  at->part_weights);
        if (status != SUMTREE_OK) return status;
        carry_down(at, indices + offset, at->part_indices, bytes);
        carry_down(at, masses + offset, at->part_values, bytes);
        carry_down(at, weights + offset, at->part_weights, bytes);
    }
    return SUMTREE_OK;
}

/* The generator moves on only when all went well. */
static sumtree_status leave_sampled(sumtree_status status, sumtree_philox *rng, int64_t count) {
    status = leave_with(status);
    if (status == SUMTREE_OK) philox_skip(rng, count);
    return status;
}

sumtree_status kernel_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta, bool stratified,
                             int64_t *indices, double *masses, double *weights) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    const device_call request = sample_call(at, tree, rng, count, beta, stratified);
    const sumtree_status status = count <= SHORT ? sample_short(at, tree, &request, count, indices, masses, weights)
                                                 : sample_long(at, tree, &request, count, indices, masses, weights);
    return leave_sampled(status, rng, count);
}

sumtree_status kernel_device_sample(const sumtree_t *tree, sumtree_philox *rng, int64_t count, double beta,
                                    bool stratified, int64_t *indices, double *masses, double *weights) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    const device_call request = sample_call(at, tree, rng, count, beta, stratified);
    sumtree_status status = SUMTREE_OK;
    for (int64_t offset = 0; offset < count && status == SUMTREE_OK; offset += LAUNCH_MOST) {
        status = sample_part(at, tree, &request, offset, launch_of(count, offset), indices + offset, masses + offset,
                             weights + offset);
    }
    return leave_sampled(status, rng, count);
}

/* ---- reductions --------------------------------------------------------------------------------------------------- */

static sumtree_status reduce(const sumtree_t *tree, int64_t first, int64_t last, double *value) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    settle_crown(at, tree);
    device_call call = call_for(at, tree);
    call.start = first - tree->padded;
    call.count = last - first + 1;
    send_call(at, &call);
    launch_range(at->there);
    wait_for(at);
    *value = at->reply->value;
    return device_leave();
}

sumtree_status kernel_range_sum(const sumtree_t *tree, int64_t first, int64_t last, double *sum) {
    return reduce(tree, first, last, sum);
}

sumtree_status kernel_range_min(const sumtree_t *tree, int64_t first, int64_t last, double *min) {
    return reduce(tree, first, last, min);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static sumtree_status get(device *at, const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                          const int64_t *sent, int64_t *position) {
    device_call call = call_for(at, tree);
    call.count = count;
    call.indices = indices;
    call.masses = masses;
    at->reply->faulty = 0;
    send(at, &call, sent, sent != NULL ? (size_t)count * sizeof *sent : 0, NULL, 0);
    launch_get(at->there, count);
    return verdict(at, SUMTREE_INDEX, position);
}

sumtree_status kernel_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    if (count <= SHORT) {
        double *read = (double *)(void *)at->pinned;
        (void)get(at, tree, count, (const int64_t *)at->there->data, read, indices, NULL);
        memcpy(masses, read, (size_t)count * sizeof *masses);
        return device_leave();
    }
    for (int64_t offset = 0; offset < count; offset += PART) {
        const int64_t part = part_of(count, offset);
        carry_up(at, at->part_indices, indices + offset, (size_t)part * sizeof *indices);
        (void)get(at, tree, part, at->part_indices, at->part_values, NULL, NULL);
        carry_down(at, masses + offset, at->part_values, (size_t)part * sizeof *masses);
    }
    return device_leave();
}

sumtree_status kernel_device_get(const sumtree_t *tree, int64_t count, const int64_t *indices, double *masses,
                                 int64_t *position) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    return leave_with(get(at, tree, count, indices, masses, NULL, position));
}

sumtree_status kernel_get_range(const sumtree_t *tree, int64_t start, int64_t count, double *masses) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    carry_down(at, masses, leaves(tree) + start, (size_t)count * sizeof *masses);
    return device_leave();
}

sumtree_status kernel_nodes(const sumtree_t *tree, sumtree_plane plane, double *nodes) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    settle_crown(at, tree);
    const bool derived = tree->kind == SUMTREE_KIND_PRIORITY;
    const double *const own = plane == SUMTREE_PLANE_SUM ? tree->sum : plane == SUMTREE_PLANE_MIN ? tree->min : tree->max;
    const size_t half = (size_t)tree->padded * sizeof *nodes;
    carry_down(at, nodes, own, half);
    carry_down(at, nodes + tree->padded, (derived ? tree->sum : own) + tree->padded, half);
    if (derived && plane == SUMTREE_PLANE_MIN) {
        for (int64_t i = tree->padded; i < 2 * tree->padded; ++i) nodes[i] = positive_or_inf(nodes[i]);
    }
    nodes[0] = 0.0;
    return device_leave();
}

sumtree_status kernel_unsound_leaf(const sumtree_t *tree, int64_t *node) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    const device_call call = call_for(at, tree);
    at->reply->faulty = 0;
    send_call(at, &call);
    launch_unsound_leaf(at->there, tree->padded);
    return leave_with(verdict(at, SUMTREE_CORRUPT, node));
}

sumtree_status kernel_unsound_node(const sumtree_t *tree, sumtree_plane plane, int64_t *node) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    settle_crown(at, tree);
    device_call call = call_for(at, tree);
    call.plane = (int32_t)plane;
    at->reply->faulty = 0;
    send_call(at, &call);
    launch_unsound_node(at->there, tree->padded);
    const sumtree_status status = verdict(at, SUMTREE_CORRUPT, node);
    if (status == SUMTREE_CORRUPT) *node = tree->padded - *node;
    return leave_with(status);
}

/* ---- memory of devices -------------------------------------------------------------------------------------------- */

sumtree_status kernel_device_allocate(int32_t number, uint64_t bytes, void **memory) {
    if (device_enter(number) == NULL) return SUMTREE_DEVICE;
    const bool taken = driver_take(bytes, memory);
    if (!taken) *memory = NULL;
    return leave_with(taken ? SUMTREE_OK : SUMTREE_MEMORY);
}

void kernel_device_release(int32_t number, void *memory) {
    if (device_enter(number) == NULL) return;
    driver_give_back(memory);
    (void)device_leave();
}
