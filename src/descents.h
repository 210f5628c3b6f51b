/* Descents of trees in host memory, one implementation for each level of vector units. All take the same steps. */
#ifndef SUMTREE_DESCENTS_H
#define SUMTREE_DESCENTS_H

#include "tree.h"

/* indices[k] = where the descent for targets[k] ends; the arguments were checked. In one thread. */
typedef void descend_function(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                              int64_t *indices);

/* descents_x86.c */
descend_function descend_avx2, descend_avx512;

#endif
