/* What differs between the backends, and nothing else. A backend is added here and in SUMTREE_KNOWN_BACKENDS of
 * src/CMakeLists.txt.
 *
 *   BACKEND_DEVICE             where trees are made by default: a device's number, or -1, the host
 *   BACKEND_LEAF_BYTES         what a tree takes for each leaf of the padded capacity beside its planes
 *   PARALLEL_ROUTINE           before a function that kernels call
 *   PARALLEL_PRODUCT(a, b)     a * b, rounded: no compiler may contract it with an addition
 *   parallel_width(work)       how many members a team for so many elements is to have; 1: not worth a team
 *   PARALLEL_MEMBERS(width)    before a loop over the members of a team, 0 .. width-1: each runs one iteration
 *   PARALLEL_LOOP(width)       before a loop whose iterations are independent, shared out among a team
 *
 * The gpu backend alone:
 *
 *   PARALLEL_KERNEL(gangs, lanes)  before a block that a device runs, behind those that were put into its queue before
 *   BACKEND_DECLARES_BLOCK         kernels find their block by its name, not by an argument: see device.h
 *
 * And what differs between compilers:
 *
 *   VECTOR_LOOP                before a loop whose iterations are independent, run side by side in vector registers
 *   UNROLLED_LOOP              before a loop of few iterations, known when it is compiled, which work in registers
 */
#ifndef SUMTREE_PARALLEL_H
#define SUMTREE_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#define PARALLEL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(SUMTREE_BACKEND_CPU)

#define BACKEND_NAME "cpu"
#define BACKEND_RUNTIME ""
#define BACKEND_DEVICE (-1)
#define BACKEND_LEAF_BYTES 0
#define PARALLEL_ROUTINE
#define PARALLEL_PRODUCT(a, b) ((a) * (b))
#define PARALLEL_MEMBERS(width) (void)(width);
#define PARALLEL_LOOP(width) (void)(width);

static inline int parallel_width(int64_t work) {
    (void)work;
    return 1;
}

#elif defined(SUMTREE_BACKEND_MULTICORE)

#include <pthread.h>

#define BACKEND_NAME "multicore"
#define BACKEND_DEVICE (-1)
#define BACKEND_LEAF_BYTES 0
#define PARALLEL_ROUTINE
#define PARALLEL_PRODUCT(a, b) ((a) * (b))

#if defined(_OPENACC)

/* A gang is a thread of the host, whose memory all share. Of nvc -acc=multicore, which we cannot run: this follows the
 * specification, and GCC takes it too (-fopenacc, which runs it in one thread). OpenACC does not say how many threads
 * there can be. */
#include <sched.h>
#include <stdlib.h>

#define BACKEND_RUNTIME ", OpenACC"
#define PARALLEL_MEMBERS(width) PARALLEL_PRAGMA(acc parallel loop gang num_gangs(width))
#define PARALLEL_LOOP(width) PARALLEL_PRAGMA(acc parallel loop gang num_gangs(width))

static inline int64_t parallel_threads(void) {
    const char *asked = getenv("OMP_NUM_THREADS");
    const long number = asked == NULL ? 0 : strtol(asked, NULL, 10);
    cpu_set_t mask;
    if (number > 0) return number;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

#else

#include <omp.h>

#define BACKEND_RUNTIME ", OpenMP"
#define PARALLEL_MEMBERS(width) PARALLEL_PRAGMA(omp parallel for schedule(static, 1) num_threads(width))
#define PARALLEL_LOOP(width) PARALLEL_PRAGMA(omp parallel for schedule(static) num_threads(width))

static inline int64_t parallel_threads(void) { return omp_get_max_threads(); }

#endif

/* Runtimes hang in a child of fork that wants more than one thread. (A child that is the first to open this library,
 * after its parent ran another library's threads, is not told apart.) */
static bool parallel_forked;
static void parallel_note_fork(void) { parallel_forked = true; }
__attribute__((constructor)) static void parallel_watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, parallel_note_fork);
}

/* A thread is woken for no less than this many elements: it takes about as long as they do. */
static const int64_t PARALLEL_LEAST = 2048;

static inline int parallel_width(int64_t work) {
    if (work < 2 * PARALLEL_LEAST || parallel_forked) return 1;
    const int64_t worth = work / PARALLEL_LEAST, threads = parallel_threads();
    return (int)(worth < threads ? worth : threads);
}

#elif defined(SUMTREE_BACKEND_GPU)

#define BACKEND_NAME "gpu"
#define BACKEND_DEVICE 0
#define BACKEND_LEAF_BYTES 4 /* a tag */
#define PARALLEL_ROUTINE PARALLEL_PRAGMA(acc routine seq)
#define PARALLEL_PRODUCT(a, b) __builtin_fma(a, b, 0.0) /* ptxas contracts products, whatever the compiler was told */

/* BACKEND_TELLS: a gang can tell the host what the gangs before it have done, by PARALLEL_FENCE, while others run. */
#if defined(__NVCOMPILER)
#define BACKEND_RUNTIME ", OpenACC by nvc"
#define BACKEND_TELLS 0
#define PARALLEL_FENCE() (void)0
#define BACKEND_DECLARES_BLOCK 0
#define PARALLEL_KERNEL(gangs, lanes)                                                                                  \
    PARALLEL_PRAGMA(acc parallel num_gangs(gangs) num_workers(1) vector_length(lanes) async(QUEUE) deviceptr(there))
#else
#define BACKEND_RUNTIME ", OpenACC with nvptx offload"
#define BACKEND_TELLS 1
#define PARALLEL_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define BACKEND_DECLARES_BLOCK 1
#define PARALLEL_KERNEL(gangs, lanes)                                                                                  \
    PARALLEL_PRAGMA(acc parallel num_gangs(gangs) num_workers(1) vector_length(lanes) async(QUEUE))
#endif

#else
#error "define the backend to build: SUMTREE_BACKEND_CPU, SUMTREE_BACKEND_MULTICORE or SUMTREE_BACKEND_GPU"
#endif

#if defined(__clang__)
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#define UNROLLED_LOOP
#elif defined(__NVCOMPILER)
#define VECTOR_LOOP _Pragma("ivdep")
#define UNROLLED_LOOP
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#define UNROLLED_LOOP _Pragma("GCC unroll 8")
#endif

#endif
