/* Descents in the vector units of x86-64 processors. Each lane of a vector is one descent; several vectors take a level
 * one after another, so that some compute while others wait for memory, and stay in registers from the root to the
 * leaves. Left sums are loaded one by one, which is faster than a gather; the line of all eight great-grandchildren is
 * fetched ahead. Nothing is fused: every level of vector units gives the same bits. */
#include "descents.h"
#include "rules.h"
#include "vectors.h"

#if VECTORS_X86

#include <immintrin.h>

enum { MOST_VECTORS = 8 };

static int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

/* Tells whether the nodes 8i .. 8i+7 of nodes i, of the level whose first node is `width`, are to be fetched: they exist,
 * and are of a level too large for the nearest cache. */
static bool fetches_ahead(const sumtree_t *tree, int64_t width) {
    enum { NEAR_NODES = 1 << 13 };
    return 8 * width > NEAR_NODES && 4 * width < tree->padded;
}

/* How many vectors a block of so many descents takes: 1, 2, 4 or 8, so that few wait for no others. */
static int64_t vectors_for(int64_t count, int64_t lanes) {
    int64_t vectors = 1;
    while (vectors < MOST_VECTORS && vectors * lanes < count) vectors *= 2;
    return vectors;
}

/* The last block may be short: its lanes beyond the batch descend for target 0, to wherever that is. */
static void fill(double *padded_targets, int lanes, int64_t count, const double *targets) {
    for (int64_t k = 0; k < lanes; ++k) padded_targets[k] = k < count ? targets[k] : 0.0;
}

static void settle_all(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                       const int64_t *nodes, int64_t *indices) {
    for (int64_t k = 0; k < count; ++k) indices[k] = settle(tree, nodes[k], targets[k], side);
}

/* ---- AVX2: four lanes ---------------------------------------------------------------------------------------------- */

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE AVX2 static inline __attribute__((always_inline))
enum { AVX2_LANES = 4 };

/* The left sums of nodes whose left children are given. */
AVX2_INLINE __m128d avx2_pair(const double *sum, bool ahead, __m128i left) {
    const int64_t first = _mm_cvtsi128_si64(left), second = _mm_extract_epi64(left, 1);
    if (ahead) {
        __builtin_prefetch(sum + 4 * first);
        __builtin_prefetch(sum + 4 * second);
    }
    return _mm_loadh_pd(_mm_load_sd(sum + first), sum + second);
}

AVX2_INLINE __m256d avx2_load(const double *sum, bool ahead, __m256i left) {
    const __m128d low = avx2_pair(sum, ahead, _mm256_castsi256_si128(left));
    const __m128d high = avx2_pair(sum, ahead, _mm256_extracti128_si256(left, 1));
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1);
}

AVX2_INLINE void avx2_step(const double *sum, sumtree_side side, bool ahead, __m256i *node, __m256d *rest) {
    const __m256i left = _mm256_add_epi64(*node, *node);
    const __m256d left_sum = avx2_load(sum, ahead, left);
    const __m256d right = side == SUMTREE_SIDE_RIGHT ? _mm256_cmp_pd(left_sum, *rest, _CMP_LE_OQ)
                                                     : _mm256_cmp_pd(left_sum, *rest, _CMP_LT_OQ);
    *rest = _mm256_sub_pd(*rest, _mm256_and_pd(left_sum, right));
    *node = _mm256_sub_epi64(left, _mm256_castpd_si256(right)); /* all bits of `right` are set, which is -1, or none */
}

AVX2_INLINE void avx2_block(const sumtree_t *tree, sumtree_side side, int vectors, const double *targets,
                            int64_t *nodes) {
    __m256i node[MOST_VECTORS];
    __m256d rest[MOST_VECTORS];
    UNROLLED_LOOP
    for (int64_t v = 0; v < vectors; ++v) {
        node[v] = _mm256_set1_epi64x(1);
        rest[v] = _mm256_loadu_pd(targets + AVX2_LANES * v);
    }
    for (int64_t width = 1; width < tree->padded; width <<= 1) {
        if (fetches_ahead(tree, width)) {
            UNROLLED_LOOP
            for (int64_t v = 0; v < vectors; ++v) avx2_step(tree->sum, side, true, &node[v], &rest[v]);
        } else {
            UNROLLED_LOOP
            for (int64_t v = 0; v < vectors; ++v) avx2_step(tree->sum, side, false, &node[v], &rest[v]);
        }
    }
    UNROLLED_LOOP
    for (int64_t v = 0; v < vectors; ++v) _mm256_storeu_si256((__m256i *)(nodes + AVX2_LANES * v), node[v]);
}

AVX2_INLINE void avx2_blocks(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                             int64_t *indices) {
    enum { BLOCK = MOST_VECTORS * AVX2_LANES };
    double filled[BLOCK];
    int64_t nodes[BLOCK];
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t length = at_most(count - done, BLOCK);
        const double *block = targets + done;
        if (length < BLOCK) {
            fill(filled, BLOCK, length, block);
            block = filled;
        }
        switch (vectors_for(length, AVX2_LANES)) {
        case 1:
            avx2_block(tree, side, 1, block, nodes);
            break;
        case 2:
            avx2_block(tree, side, 2, block, nodes);
            break;
        case 4:
            avx2_block(tree, side, 4, block, nodes);
            break;
        default:
            avx2_block(tree, side, 8, block, nodes);
        }
        settle_all(tree, side, length, block, nodes, indices + done);
    }
}

AVX2 void descend_avx2(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                       int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        avx2_blocks(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        avx2_blocks(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
    }
}

/* ---- AVX-512: eight lanes ------------------------------------------------------------------------------------------ */

#define AVX512 __attribute__((target("avx512f")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))
enum { AVX512_LANES = 8 };

/* The left sums of the nodes 1 .. 31, in registers: five levels without loads. Register r holds those of the nodes
 * 8r .. 8r+7. */
enum { TOP_NODES = 32, TOP_REGISTERS = 4 };
typedef struct avx512_top {
    __m512d left_sums[TOP_REGISTERS];
} avx512_top;

AVX512_INLINE avx512_top avx512_read_top(const sumtree_t *tree) {
    double left_sums[TOP_NODES] = {0.0};
    avx512_top top;
    for (int64_t i = 1; i < TOP_NODES && i < tree->padded; ++i) left_sums[i] = tree->sum[2 * i];
    for (int64_t r = 0; r < TOP_REGISTERS; ++r) top.left_sums[r] = _mm512_loadu_pd(left_sums + AVX512_LANES * r);
    return top;
}

AVX512_INLINE __m512d avx512_load(const double *sum, bool ahead, __m512i node) {
    const __m512i left = _mm512_add_epi64(node, node);
    const __m256d low = avx2_load(sum, ahead, _mm512_castsi512_si256(left));
    const __m256d high = avx2_load(sum, ahead, _mm512_extracti64x4_epi64(left, 1));
    return _mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1);
}

AVX512_INLINE void avx512_step(sumtree_side side, __m512d left_sum, __m512i *node, __m512d *rest) {
    const __mmask8 right = side == SUMTREE_SIDE_RIGHT ? _mm512_cmp_pd_mask(left_sum, *rest, _CMP_LE_OQ)
                                                      : _mm512_cmp_pd_mask(left_sum, *rest, _CMP_LT_OQ);
    const __m512i left = _mm512_add_epi64(*node, *node);
    *rest = _mm512_mask_sub_pd(*rest, right, *rest, left_sum);
    *node = _mm512_mask_add_epi64(left, right, left, _mm512_set1_epi64(1));
}

/* The left sum of a node below TOP_NODES of the level whose first node is `width`. A permutation looks at the low bits
 * of a node's number alone. */
AVX512_INLINE __m512d avx512_from_top(const avx512_top *top, int64_t width, __m512i node) {
    if (width < 8) return _mm512_permutexvar_pd(node, top->left_sums[0]);
    if (width < 16) return _mm512_permutexvar_pd(node, top->left_sums[1]);
    return _mm512_permutex2var_pd(top->left_sums[2], node, top->left_sums[3]);
}

AVX512_INLINE void avx512_block(const sumtree_t *tree, const avx512_top *top, sumtree_side side, int vectors,
                                const double *targets, int64_t *nodes) {
    __m512i node[MOST_VECTORS];
    __m512d rest[MOST_VECTORS];
    UNROLLED_LOOP
    for (int64_t v = 0; v < vectors; ++v) {
        node[v] = _mm512_set1_epi64(1);
        rest[v] = _mm512_loadu_pd(targets + AVX512_LANES * v);
    }
    int64_t width = 1;
    for (; width < TOP_NODES && width < tree->padded; width <<= 1) {
        UNROLLED_LOOP
        for (int64_t v = 0; v < vectors; ++v) {
            avx512_step(side, avx512_from_top(top, width, node[v]), &node[v], &rest[v]);
        }
    }
    for (; width < tree->padded; width <<= 1) {
        if (fetches_ahead(tree, width)) {
            UNROLLED_LOOP
            for (int64_t v = 0; v < vectors; ++v)
                avx512_step(side, avx512_load(tree->sum, true, node[v]), &node[v], &rest[v]);
        } else {
            UNROLLED_LOOP
            for (int64_t v = 0; v < vectors; ++v)
                avx512_step(side, avx512_load(tree->sum, false, node[v]), &node[v], &rest[v]);
        }
    }
    UNROLLED_LOOP
    for (int64_t v = 0; v < vectors; ++v) _mm512_storeu_si512(nodes + AVX512_LANES * v, node[v]);
}

AVX512_INLINE void avx512_blocks(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                                 int64_t *indices) {
    enum { BLOCK = MOST_VECTORS * AVX512_LANES };
    const avx512_top top = avx512_read_top(tree);
    double filled[BLOCK];
    int64_t nodes[BLOCK];
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t length = at_most(count - done, BLOCK);
        const double *block = targets + done;
        if (length < BLOCK) {
            fill(filled, BLOCK, length, block);
            block = filled;
        }
        switch (vectors_for(length, AVX512_LANES)) {
        case 1:
            avx512_block(tree, &top, side, 1, block, nodes);
            break;
        case 2:
            avx512_block(tree, &top, side, 2, block, nodes);
            break;
        case 4:
            avx512_block(tree, &top, side, 4, block, nodes);
            break;
        default:
            avx512_block(tree, &top, side, 8, block, nodes);
        }
        settle_all(tree, side, length, block, nodes, indices + done);
    }
}

AVX512 void descend_avx512(const sumtree_t *tree, sumtree_side side, int64_t count, const double *targets,
                           int64_t *indices) {
    if (side == SUMTREE_SIDE_RIGHT) {
        avx512_blocks(tree, SUMTREE_SIDE_RIGHT, count, targets, indices);
    } else {
        avx512_blocks(tree, SUMTREE_SIDE_LEFT, count, targets, indices);
    }
}

#endif
