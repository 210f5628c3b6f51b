/* Draws from trees in device memory, and reading them. */
#include <string.h>

#include "device_queue.h"
#include "driver.h"
#include "kernels.h"
#include "parallel.h"
#include "philox.h"
#include "rules.h"

/* ---- draws -------------------------------------------------------------------------------------------------------- */

/* Sends a call of draws, with targets from host memory or NULL, unless the block holds it already. */
static void queue_draws(device *at, device_call *call, const double *targets) {
    const size_t bytes = (size_t)call->count * sizeof *targets;
    call->ticket = at->draws.ticket;
    if (targets != NULL) {
        device_block *slot = queue_slot(at);
        memcpy(slot->data, targets, bytes);
        must(driver_upload(at->stream, at->there->data, slot->data, bytes));
    }
    if (memcmp(call, &at->draws, sizeof *call) != 0) {
        device_block *slot = queue_slot(at);
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
    queue_draws(at, call, targets);
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

static device_call find_call(device *at, const sumtree_t *tree, int64_t count, const double *targets, sumtree_side side,
                             int64_t *found) {
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
        const sumtree_status status =
            sample_part(at, tree, request, offset, part, at->part_indices, at->part_values, at->part_weights);
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

sumtree_status kernel_root(const sumtree_t *tree, sumtree_plane plane, double *value) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    fetch_roots(at, tree);
    *value = tree->state->roots[plane];
    return device_leave();
}

static sumtree_status reduce(const sumtree_t *tree, int64_t first, int64_t last, double *value) {
    device *at = device_enter(tree->device);
    if (at == NULL) return SUMTREE_DEVICE;
    settle_crown(at, tree);
    device_call call = call_for(at, tree);
    call.start = first - tree->padded;
    call.count = last - first + 1;
    queue_call(at, &call);
    launch_range(at->there);
    queue_wait(at);
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
    queue_call_with(at, &call, sent, sent != NULL ? (size_t)count * sizeof *sent : 0, NULL, 0);
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
    const double *const own = plane == SUMTREE_PLANE_SUM   ? tree->sum
                              : plane == SUMTREE_PLANE_MIN ? tree->min
                                                           : tree->max;
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
    queue_call(at, &call);
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
    queue_call(at, &call);
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
