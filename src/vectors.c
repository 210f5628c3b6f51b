/* Which vector units the processor has, and which are in use. */
#include <string.h>

#include "parallel.h"
#include "vectors.h"

static const char *const NAMES[VECTOR_LEVELS] = {"baseline", "avx2", "avx512"};

/* A processor that has one has those before it. */
static const char *const NAMES_UP_TO[VECTOR_LEVELS] = {"baseline", "baseline avx2", "baseline avx2 avx512"};

static vector_level widest = VECTOR_BASELINE;
static vector_level in_use = VECTOR_BASELINE;

__attribute__((constructor)) static void choose_widest(void) {
#if VECTORS_X86
    if (BACKEND_DEVICE != HOST) return;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) widest = VECTOR_AVX2;
    if (widest == VECTOR_AVX2 && __builtin_cpu_supports("avx512f")) widest = VECTOR_AVX512;
    in_use = widest;
#endif
}

vector_level vectors_in_use(void) { return in_use; }

const char *vectors_name(void) { return NAMES[in_use]; }

const char *vectors_selectable(void) { return NAMES_UP_TO[widest]; }

bool vectors_select(const char *name) {
    for (int level = 0; level <= (int)widest; ++level) {
        if (strcmp(name, NAMES[level]) != 0) continue;
        in_use = (vector_level)level;
        return true;
    }
    return false;
}
