/* What differs between the backends, and nothing else. A backend is added here and in SUMTREE_KNOWN_BACKENDS of
 * src/CMakeLists.txt.
 *
 *   parallel_width(work)    how many members a team for so many elements is to have; 1: not worth a team
 *   PARALLEL_TEAM(width)    before a block that every member of a team runs; in it:
 *   parallel_member()       which one this is, 0 .. parallel_members()-1
 *   parallel_members()      how many there are
 *   PARALLEL_LOOP(width)    before a loop whose iterations are independent, shared out among a team
 */
#ifndef SUMTREE_PARALLEL_H
#define SUMTREE_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#if defined(SUMTREE_BACKEND_CPU)

#define BACKEND_NAME "cpu"
#define BACKEND_RUNTIME ""
#define PARALLEL_TEAM(width) (void)(width);
#define PARALLEL_LOOP(width) (void)(width);

static inline int parallel_width(int64_t work) {
    (void)work;
    return 1;
}
static inline int parallel_member(void) { return 0; }
static inline int parallel_members(void) { return 1; }

#elif defined(SUMTREE_BACKEND_MULTICORE)

#include <omp.h>
#include <pthread.h>

#define BACKEND_NAME "multicore"
#define BACKEND_RUNTIME ", OpenMP"
#define PARALLEL_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define PARALLEL_TEAM(width) PARALLEL_PRAGMA(omp parallel num_threads(width))
#define PARALLEL_LOOP(width) PARALLEL_PRAGMA(omp parallel for schedule(static) num_threads(width))

/* OpenMP runtimes hang in a child of fork that wants more than one thread. (A child that is the first to open this
 * library, after its parent ran another library's threads, is not told apart.) */
static bool parallel_forked;
static void parallel_note_fork(void) { parallel_forked = true; }
__attribute__((constructor)) static void parallel_watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, parallel_note_fork);
}

/* A thread is woken for no less than this many elements: it takes about as long as they do. */
static const int64_t PARALLEL_LEAST = 1024;

static inline int parallel_width(int64_t work) {
    if (work < 2 * PARALLEL_LEAST || parallel_forked) return 1;
    const int64_t worth = work / PARALLEL_LEAST, threads = omp_get_max_threads();
    return (int)(worth < threads ? worth : threads);
}
static inline int parallel_member(void) { return omp_get_thread_num(); }
static inline int parallel_members(void) { return omp_get_num_threads(); }

#else
#error "define the backend to build: SUMTREE_BACKEND_CPU or SUMTREE_BACKEND_MULTICORE"
#endif

#endif
