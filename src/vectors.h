/* The levels of vector units that kernels are made for. */
#ifndef SUMTREE_VECTORS_H
#define SUMTREE_VECTORS_H

#include "tree.h"

/* Compilers that make functions for other processors than the base one, by an attribute. In OpenACC's regions such
 * functions cannot be called. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__NVCOMPILER) && !defined(_OPENACC)
#define VECTORS_X86 1
#else
#define VECTORS_X86 0
#endif

typedef enum vector_level { VECTOR_BASELINE, VECTOR_AVX2, VECTOR_AVX512, VECTOR_LEVELS } vector_level;

/* The widest that the processor has, unless another was selected. */
vector_level vectors_in_use(void);

/* As the functions of sumtree.h; vectors_select tells whether there is such a level. */
const char *vectors_name(void);
const char *vectors_selectable(void);
bool vectors_select(const char *name);

#endif
