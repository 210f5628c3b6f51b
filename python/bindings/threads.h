// Threads and forks: who may be inside a library without the GIL, and what a child of fork finds.
#ifndef SUMTREE_BINDINGS_THREADS_H
#define SUMTREE_BINDINGS_THREADS_H

#include <nanobind/nanobind.h>

#include <mutex>
#include <new>
#include <shared_mutex>

#include "backend.h"

namespace bindings {

// Batches up to this many elements keep the GIL: handing it over costs more than the work.
constexpr int64_t SHORT_BATCH = 4096;

using Reader = std::shared_lock<std::shared_mutex>;
using Writer = std::unique_lock<std::shared_mutex>;

// Shared by every thread that is inside a library without the GIL; a fork takes it alone. Threads that hold the GIL need
// none: the one that forks holds it.
inline std::shared_mutex outside_the_gil;

inline void hold_for_fork() {
    nanobind::gil_scoped_release released;
    outside_the_gil.lock();
}

// In the child, the thread that holds it is another one than the mutex knows.
inline void release_after_fork(bool in_child) {
    if (in_child) {
        new (&outside_the_gil) std::shared_mutex;
        ++forks;
    } else {
        outside_the_gil.unlock();
    }
}

// Runs `work` without the GIL.
template <typename Work> auto without_the_gil(Work &&work) {
    const nanobind::gil_scoped_release released;
    const Reader no_fork(outside_the_gil);
    return work();
}

} // namespace bindings

#endif
