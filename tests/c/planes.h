/* One double of a plane, wherever the tree is; and arrays in the memory of devices. */
#ifndef SUMTREE_TEST_PLANES_H
#define SUMTREE_TEST_PLANES_H

#include <stdlib.h>
#include <string.h>

#include "tree.h"

#if defined(SUMTREE_BACKEND_GPU)

#include "device.h"
#include "driver.h"

static inline void copy_up(int32_t number, void *there, const void *here, size_t bytes) {
    device *at = device_enter(number);
    const bool done = at != NULL && driver_upload(at->stream, there, here, bytes) && driver_wait(at->stream);
    if (at == NULL || device_leave() != SUMTREE_OK || !done) abort();
}

static inline void copy_down(int32_t number, void *here, const void *there, size_t bytes) {
    device *at = device_enter(number);
    const bool done = at != NULL && driver_download(at->stream, here, there, bytes) && driver_wait(at->stream);
    if (at == NULL || device_leave() != SUMTREE_OK || !done) abort();
}

static inline double peek(const sumtree_t *tree, const double *node) {
    double value;
    copy_down(tree->device, &value, node, sizeof value);
    return value;
}

static inline void poke(const sumtree_t *tree, double *node, double value) {
    copy_up(tree->device, node, &value, sizeof value);
}

#else

static inline double peek(const sumtree_t *tree, const double *node) {
    (void)tree;
    return *node;
}

static inline void poke(const sumtree_t *tree, double *node, double value) {
    (void)tree;
    *node = value;
}

#endif

#endif
