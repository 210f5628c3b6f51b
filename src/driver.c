/* The CUDA driver, by the few functions of it that are used; in tests, the host in its place. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What cuda.h declares, as far as it is used. The functions' ABI is fixed by their suffixes; device addresses, integers
 * there, are as wide as pointers and passed alike. */
typedef int result;
typedef int device_number;
typedef void *address;
enum { SUCCESS = 0, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, PORTABLE_AND_MAPPED = 3 };

#define DRIVER_TABLE(ENTRY)                                                                                            \
    ENTRY(init, "cuInit", (unsigned))                                                                                  \
    ENTRY(error_text, "cuGetErrorString", (result, const char **))                                                     \
    ENTRY(count, "cuDeviceGetCount", (int *))                                                                          \
    ENTRY(get, "cuDeviceGet", (device_number *, int))                                                                  \
    ENTRY(name, "cuDeviceGetName", (char *, int, device_number))                                                       \
    ENTRY(attribute, "cuDeviceGetAttribute", (int *, int, device_number))                                              \
    ENTRY(retain, "cuDevicePrimaryCtxRetain", (void **, device_number))                                                \
    ENTRY(push, "cuCtxPushCurrent_v2", (void *))                                                                       \
    ENTRY(pop, "cuCtxPopCurrent_v2", (void **))                                                                        \
    ENTRY(memory, "cuMemGetInfo_v2", (size_t *, size_t *))                                                             \
    ENTRY(take, "cuMemAlloc_v2", (address *, size_t))                                                                  \
    ENTRY(give_back, "cuMemFree_v2", (address))                                                                        \
    ENTRY(pin, "cuMemHostAlloc", (void **, size_t, unsigned))                                                          \
    ENTRY(unpin, "cuMemFreeHost", (void *))                                                                            \
    ENTRY(upload, "cuMemcpyHtoDAsync_v2", (address, const void *, size_t, void *))                                     \
    ENTRY(download, "cuMemcpyDtoHAsync_v2", (void *, address, size_t, void *))                                         \
    ENTRY(fill, "cuMemsetD8Async", (address, unsigned char, size_t, void *))                                           \
    ENTRY(wait, "cuStreamSynchronize", (void *))

static struct {
#define DRIVER_MEMBER(member, name, parameters) result(*member) parameters;
    DRIVER_TABLE(DRIVER_MEMBER)
#undef DRIVER_MEMBER
} cuda;

static bool host_in_its_place;
static char error[256];

const char *driver_error(void) { return error; }

static bool well(result code, const char *what) {
    if (code == SUCCESS) return true;
    const char *text = NULL;
    if (cuda.error_text(code, &text) != SUCCESS || text == NULL) text = "unknown error";
    (void)snprintf(error, sizeof error, "%s: %s (%d)", what, text, code);
    return false;
}

/* POSIX makes these pointers interchangeable, ISO C does not. */
static bool find_function(void *library, const char *name, void *pointer) {
    void *found = dlsym(library, name);
    memcpy(pointer, (const void *)&found, sizeof found);
    if (found == NULL) (void)snprintf(error, sizeof error, "the NVIDIA driver is too old: it has no %s", name);
    return found != NULL;
}

bool driver_start(bool on_host) {
    host_in_its_place = on_host;
    if (on_host) return true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(error, sizeof error, "no NVIDIA driver: libcuda.so.1 cannot be loaded (%s)", dlerror());
        return false;
    }
#define DRIVER_FIND(member, name, parameters)                                                                          \
    if (!find_function(library, name, (void *)&cuda.member)) return false;
    DRIVER_TABLE(DRIVER_FIND)
#undef DRIVER_FIND
    return well(cuda.init(0), "the NVIDIA driver cannot be used: cuInit");
}

int32_t driver_device_count(void) {
    int count = 0;
    if (host_in_its_place) return 1;
    return well(cuda.count(&count), "cuDeviceGetCount") ? count : 0;
}

void driver_describe(int32_t device, char *text, size_t size) {
    device_number number;
    char name[128] = "";
    int major = 0, minor = 0;
    (void)snprintf(text, size, "the host, for tests");
    if (host_in_its_place) return;
    if (cuda.get(&number, device) != SUCCESS || cuda.name(name, sizeof name, number) != SUCCESS) *name = '\0';
    (void)cuda.attribute(&major, CAPABILITY_MAJOR, number);
    (void)cuda.attribute(&minor, CAPABILITY_MINOR, number);
    (void)snprintf(text, size, "%s, compute capability %d.%d", name, major, minor);
}

bool driver_retain(int32_t device, void **context) {
    device_number number;
    *context = NULL;
    if (host_in_its_place) return true;
    return well(cuda.get(&number, device), "cuDeviceGet") &&
           well(cuda.retain(context, number), "cuDevicePrimaryCtxRetain");
}

bool driver_enter(void *context) { return host_in_its_place || well(cuda.push(context), "cuCtxPushCurrent"); }

void driver_leave(void) {
    void *left;
    if (!host_in_its_place) (void)cuda.pop(&left);
}

bool driver_take(uint64_t bytes, void **memory) {
    if (bytes == 0) bytes = 1;
    if (host_in_its_place) {
        *memory = malloc(bytes);
        return *memory != NULL;
    }
    *memory = NULL;
    return well(cuda.take(memory, bytes), "cuMemAlloc");
}

void driver_give_back(void *memory) {
    if (host_in_its_place) {
        free(memory);
    } else if (memory != NULL) {
        (void)cuda.give_back(memory);
    }
}

uint64_t driver_free_bytes(void) {
    size_t available = 0, total = 0;
    return well(cuda.memory(&available, &total), "cuMemGetInfo") ? available : 0;
}

bool driver_pin(size_t bytes, void **memory) {
    *memory = NULL;
    if (host_in_its_place) {
        *memory = calloc(1, bytes);
        return *memory != NULL;
    }
    if (!well(cuda.pin(memory, bytes, PORTABLE_AND_MAPPED), "cuMemHostAlloc")) return false;
    memset(*memory, 0, bytes);
    return true;
}

void driver_unpin(void *memory) {
    if (host_in_its_place) {
        free(memory);
    } else if (memory != NULL) {
        (void)cuda.unpin(memory);
    }
}

bool driver_upload(void *stream, void *device, const void *host, size_t bytes) {
    if (host_in_its_place) {
        memcpy(device, host, bytes);
        return true;
    }
    return well(cuda.upload((address)device, host, bytes, stream), "cuMemcpyHtoDAsync");
}

bool driver_download(void *stream, void *host, const void *device, size_t bytes) {
    if (host_in_its_place) {
        memcpy(host, device, bytes);
        return true;
    }
    return well(cuda.download(host, (address)device, bytes, stream), "cuMemcpyDtoHAsync");
}

bool driver_fill(void *stream, void *device, unsigned char byte, size_t bytes) {
    if (host_in_its_place) {
        memset(device, byte, bytes);
        return true;
    }
    return well(cuda.fill((address)device, byte, bytes, stream), "cuMemsetD8Async");
}

bool driver_wait(void *stream) { return host_in_its_place || well(cuda.wait(stream), "cuStreamSynchronize"); }
