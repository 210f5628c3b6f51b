/* Which vector units the processor has, and which are in use. */
#include <string.h>

#include "parallel.h"
#include "vectors.h"

static const char *const NAMES[VECTOR_LEVELS] = {"baseline", "avx2", "avx512"};

static vector_level in_use = VECTOR_BASELINE;

/* The names of the levels that can be selected, separated by spaces. */
static char selectable[64];

static bool is_there(vector_level level) {
    if (level == VECTOR_BASELINE) return true;
#if VECTORS_X86
    if (BACKEND_DEVICE == HOST && level == VECTOR_AVX2) return __builtin_cpu_supports("avx2") != 0;
    if (BACKEND_DEVICE == HOST && level == VECTOR_AVX512) return __builtin_cpu_supports("avx512f") != 0;
#endif
    return false;
}

__attribute__((constructor)) static void choose_widest(void) {
#if VECTORS_X86
    __builtin_cpu_init();
#endif
    for (int level = 0; level < VECTOR_LEVELS; ++level) {
        if (!is_there((vector_level)level)) continue;
        in_use = (vector_level)level;
        if (level > 0) strcat(selectable, " ");
        strcat(selectable, NAMES[level]);
    }
}

vector_level vectors_in_use(void) { return in_use; }

const char *vectors_name(void) { return NAMES[in_use]; }

const char *vectors_selectable(void) { return selectable; }

bool vectors_select(const char *name) {
    for (int level = 0; level < VECTOR_LEVELS; ++level) {
        if (strcmp(name, NAMES[level]) != 0 || !is_there((vector_level)level)) continue;
        in_use = (vector_level)level;
        return true;
    }
    return false;
}
