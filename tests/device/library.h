/* One backend's library, opened by its path, so that two can be compared in one process. */
#ifndef SUMTREE_DEVICE_LIBRARY_H
#define SUMTREE_DEVICE_LIBRARY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sumtree.h"

#define LIBRARY_TABLE(ENTRY)                                                                                           \
    ENTRY(status_name)                                                                                                 \
    ENTRY(backend)                                                                                                     \
    ENTRY(build)                                                                                                       \
    ENTRY(create)                                                                                                      \
    ENTRY(create_on)                                                                                                   \
    ENTRY(free)                                                                                                        \
    ENTRY(padded_capacity)                                                                                             \
    ENTRY(update)                                                                                                      \
    ENTRY(update_range)                                                                                                \
    ENTRY(get)                                                                                                         \
    ENTRY(root)                                                                                                        \
    ENTRY(sum)                                                                                                         \
    ENTRY(min)                                                                                                         \
    ENTRY(find)                                                                                                        \
    ENTRY(sample)                                                                                                      \
    ENTRY(nodes)                                                                                                       \
    ENTRY(validate)                                                                                                    \
    ENTRY(bytes)                                                                                                       \
    ENTRY(device_count)                                                                                                \
    ENTRY(device_problem)                                                                                              \
    ENTRY(device_name)                                                                                                 \
    ENTRY(device_memory_available)                                                                                     \
    ENTRY(device_allocate)                                                                                             \
    ENTRY(device_release)                                                                                              \
    ENTRY(device_update)                                                                                               \
    ENTRY(device_get)                                                                                                  \
    ENTRY(device_find)                                                                                                 \
    ENTRY(device_sample)

typedef struct library {
#define LIBRARY_MEMBER(name) __typeof__(&sumtree_##name) name;
    LIBRARY_TABLE(LIBRARY_MEMBER)
#undef LIBRARY_MEMBER
} library;

static inline void *library_symbol(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);
    if (symbol == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return symbol;
}

static inline library library_open(const char *path) {
    library opened;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define LIBRARY_FIND(name)                                                                                             \
    symbol = library_symbol(handle, "sumtree_" #name);                                                                 \
    memcpy(&opened.name, &symbol, sizeof symbol);
    LIBRARY_TABLE(LIBRARY_FIND)
#undef LIBRARY_FIND
    return opened;
}

/* Copies between host and device memory by the CUDA driver, in the default stream; plain copies where trees of the gpu
 * backend are on the host. */
static inline void library_copy(void *to, const void *from, size_t bytes) {
    typedef int (*copy)(unsigned long long, unsigned long long, size_t);
    static copy function;
    const char *wish = getenv("LIBSUMTREE_GPU_ON_HOST");
    if (wish != NULL && strcmp(wish, "for-tests") == 0) {
        memcpy(to, from, bytes);
        return;
    }
    if (function == NULL) {
        void *symbol = library_symbol(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpy");
        memcpy(&function, &symbol, sizeof symbol);
    }
    if (function((unsigned long long)(uintptr_t)to, (unsigned long long)(uintptr_t)from, bytes) != 0) {
        fprintf(stderr, "cuMemcpy failed\n");
        exit(2);
    }
}

/* cuMemcpy needs a context: that of a device which the backend has opened. */
static inline void library_use_device(int device) {
    typedef int (*get)(int *, int);
    typedef int (*retain)(void **, int);
    typedef int (*set)(void *);
    const char *wish = getenv("LIBSUMTREE_GPU_ON_HOST");
    if (wish != NULL && strcmp(wish, "for-tests") == 0) return;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int number = 0;
    void *symbols[3] = {library_symbol(handle, "cuDeviceGet"), library_symbol(handle, "cuDevicePrimaryCtxRetain"),
                        library_symbol(handle, "cuCtxSetCurrent")};
    get get_device;
    retain retain_context;
    set set_context;
    memcpy(&get_device, &symbols[0], sizeof(void *));
    memcpy(&retain_context, &symbols[1], sizeof(void *));
    memcpy(&set_context, &symbols[2], sizeof(void *));
    if (get_device(&number, device) != 0 || retain_context(&context, number) != 0 || set_context(context) != 0) {
        fprintf(stderr, "device %d cannot be used\n", device);
        exit(2);
    }
}

#endif
