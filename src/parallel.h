/* What differs between the backends, and nothing else.
 *
 * PARALLEL_LOOP stands before every loop of kernels.c whose iterations are independent. A backend is added by naming it
 * here and in SUMTREE_BACKENDS of CMakeLists.txt. */
#ifndef SUMTREE_PARALLEL_H
#define SUMTREE_PARALLEL_H

#if defined(SUMTREE_BACKEND_CPU)
#define BACKEND_NAME "cpu"
#define PARALLEL_LOOP
#else
#error "define the backend to build: SUMTREE_BACKEND_CPU"
#endif

#endif
