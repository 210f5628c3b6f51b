/* Devices: which there are, why there are none, and what is kept for each that was opened. */
#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <openacc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "kernels.h"
#include "parallel.h"

enum { DEVICES_MOST = 256, NAME_SIZE = 160 };

/* All of this is behind `turn`, which one thread holds from device_enter to device_leave. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t started_by; /* 0: not started */
static bool on_host;
static int32_t devices_found;
static bool failed;
static device *opened[DEVICES_MOST];
static char names[DEVICES_MOST][NAME_SIZE];
static char problem[1024];

/* Which device OpenACC's runtime works on for this thread. */
static _Thread_local int32_t bound = -1;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
}

/* ---- what is there ------------------------------------------------------------------------------------------------ */

/* The file that OpenACC's runtime was loaded from. */
static const char *runtime_path(void) {
    int (*const function)(acc_device_t) = acc_get_num_devices;
    void *pointer;
    Dl_info info;
    memcpy((void *)&pointer, (const void *)&function, sizeof pointer);
    return dladdr(pointer, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "of unknown origin";
}

static void complain_of_runtime(void) {
    const char *advice =
        "another package may have loaded its own first, as PyTorch does: load libsumtree's gpu backend "
        "before it";
    void *plugin = dlopen("libgomp-plugin-nvptx.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (plugin != NULL) {
        complain("the OpenACC runtime %s offers no NVIDIA device; %s", runtime_path(), advice);
        return;
    }
    complain(
        "the OpenACC runtime %s has no usable plugin for NVIDIA devices (%s): install libgomp-plugin-nvptx.so.1 of "
        "the same GCC beside it; or %s",
        runtime_path(), dlerror(), advice);
}

static void start(void) {
    const char *wish = getenv("LIBSUMTREE_GPU_ON_HOST");
    started_by = getpid();
    on_host = wish != NULL && strcmp(wish, "for-tests") == 0;
    if (!driver_start(on_host)) {
        complain("%s", driver_error());
        return;
    }
    const int32_t found = driver_device_count();
    if (found == 0) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        complain("the NVIDIA driver finds no device%s%s", visible != NULL ? "; CUDA_VISIBLE_DEVICES is " : "",
                 visible != NULL ? visible : "");
        return;
    }
    if (!on_host && acc_get_num_devices(acc_device_nvidia) < found) {
        complain_of_runtime();
        return;
    }
    devices_found = found < DEVICES_MOST ? found : DEVICES_MOST;
    for (int32_t number = 0; number < devices_found; ++number) {
        driver_describe(number, names[number], NAME_SIZE);
    }
}

/* Tells whether this process may use devices; the lock is held if so. A lock that another thread of the parent held when
 * it forked is never asked for. */
static bool take_turn(void) {
    if (started_by != 0 && started_by != getpid()) return false;
    (void)pthread_mutex_lock(&turn);
    if (started_by == 0) start();
    return true;
}

static void end_turn(void) { (void)pthread_mutex_unlock(&turn); }

int32_t kernel_device_count(void) {
    if (!take_turn()) return 0;
    const int32_t count = failed ? 0 : devices_found;
    end_turn();
    return count;
}

const char *kernel_device_problem(void) {
    if (!take_turn()) {
        return "the process was forked after the gpu backend had started: start processes that use it by spawn or "
               "forkserver";
    }
    end_turn();
    return problem;
}

const char *kernel_device_name(int32_t number) { return names[number]; }

bool device_is_host(void) {
    if (!take_turn()) return false;
    const bool is = on_host;
    end_turn();
    return is;
}

void device_fail(void) {
    failed = true;
    complain("a device failed: %s", driver_error());
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

/* OpenACC's runtime adopts the context that is current when it first opens a device. */
static void bind_thread(int32_t number) {
    if (bound == number) return;
    if (on_host) {
        acc_set_device_type(acc_device_host);
    } else {
        acc_set_device_num(number, acc_device_nvidia);
    }
    bound = number;
}

static bool take_memory(device *at) {
    const uint64_t part = (uint64_t)PART * sizeof(double), owners = (uint64_t)OWNERS * SHORT;
    void *pinned[SLOTS + 2] = {NULL}, *taken[6] = {NULL};
    bool done = driver_pin(sizeof(device_reply), &pinned[SLOTS]) && driver_pin(2 * (size_t)CARGO, &pinned[SLOTS + 1]);
    for (int s = 0; s < SLOTS && done; ++s) done = driver_pin(sizeof(device_block), &pinned[s]);
    const uint64_t bytes[6] = {
        part, part, part, owners * sizeof(int32_t), owners * sizeof(int64_t), owners * sizeof(double)};
    for (int t = 0; t < 6 && done; ++t) done = driver_take(bytes[t], &taken[t]);
    for (int s = 0; s < SLOTS; ++s) at->slot[s] = pinned[s];
    at->reply = pinned[SLOTS];
    at->pinned = pinned[SLOTS + 1];
    at->part_indices = taken[0];
    at->part_values = taken[1];
    at->part_weights = taken[2];
    at->places = taken[3];
    at->owned = taken[4];
    at->given = taken[5];
    return done;
}

static void give_memory_back(device *at) {
    void *const pinned[] = {at->reply, at->pinned}, *const taken[] = {at->part_indices, at->part_values,
                                                                      at->part_weights, at->places,
                                                                      at->owned,        at->given};
    for (size_t p = 0; p < sizeof pinned / sizeof pinned[0]; ++p) driver_unpin(pinned[p]);
    for (int s = 0; s < SLOTS; ++s) driver_unpin(at->slot[s]);
    for (size_t t = 0; t < sizeof taken / sizeof taken[0]; ++t) driver_give_back(taken[t]);
}

/* Finds the block and the queue, by a kernel that says whether it ran on the device. */
static bool prove(device *at) {
    int32_t there = 0;
    at->there = launch_block();
    if (at->there == NULL) {
        void *memory;
        if (BACKEND_DECLARES_BLOCK || !driver_take(sizeof(device_block), &memory)) return false;
        at->there = memory;
    }
    launch_probe(at->there);
    at->stream = on_host ? NULL : acc_get_cuda_stream(QUEUE);
    if (!driver_download(at->stream, &there, &at->there->call.on_device, sizeof there) || !driver_wait(at->stream)) {
        return false;
    }
    return on_host || there == 1;
}

static device *open_device(int32_t number) {
    device *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->number = number;
    made->draws.ticket = 1; /* none bears 0 */
    if (!driver_retain(number, &made->context) || !driver_enter(made->context)) {
        complain("device %d cannot be opened: %s", (int)number, driver_error());
        free(made);
        return NULL;
    }
    bind_thread(number);
    const bool taken = take_memory(made), proven = taken && prove(made);
    if (!proven) give_memory_back(made);
    driver_leave();
    if (proven) return made;
    complain("device %d cannot be used: %s", (int)number, taken ? "kernels do not run there" : driver_error());
    free(made);
    return NULL;
}

device *device_enter(int32_t number) {
    if (!take_turn()) return NULL;
    device *at = NULL;
    if (!failed && number >= 0 && number < devices_found) {
        if (opened[number] == NULL) opened[number] = open_device(number);
        at = opened[number];
    }
    if (at == NULL || !driver_enter(at->context)) {
        end_turn();
        return NULL;
    }
    bind_thread(number);
    return at;
}

sumtree_status device_leave(void) {
    driver_leave();
    const sumtree_status status = failed ? SUMTREE_DEVICE : SUMTREE_OK;
    end_turn();
    return status;
}
