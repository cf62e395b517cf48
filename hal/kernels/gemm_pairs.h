/* gemm_pairs.h: the inner loops of gemm.pk for bfloat16 on processors with AVX512-BF16, whose instruction multiplies pairs of elements that
 * follow each other along k and adds both products to a float. Panels and rows are packed as gemm_micro.h does it, with pairs in place
 * of elements; a pair behind the last element is zeros. Subnormal numbers count as zeros, as in every library that uses the instruction. */
#if defined(PK_IS_BF16) && defined(PK_HAS_CLONES)
#define PK_HAS_PAIRS 1
#include <immintrin.h>

typedef pk_u32 pk_pair_t __attribute__((may_alias)); /* in buffers of T */

PK_FN pk_u32 PK_NAME(pair)(const E *x, pk_i64 next, int whole) {
  return x[0].bits | (whole ? (pk_u32)x[next].bits << 16 : 0);
}

/* Packs a block of b: pair k of column j of panel p stands at p * PK_GEMM_N * depth + k * PK_GEMM_N + j. */
PK_FN void PK_NAME(pack_pairs_b)(const E *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 columns, pk_pair_t *panels) {
  const pk_i64 pairs = (depth + 1) / 2, whole = depth / 2;
  for (pk_i64 j0 = 0; j0 < columns; j0 += PK_GEMM_N) {
    const pk_i64 width = columns - j0 < PK_GEMM_N ? columns - j0 : PK_GEMM_N;
    const E *const p = b + j0 * col;
    pk_pair_t *const panel = panels + j0 * depth;
    if (col == 1 && width == PK_GEMM_N) {
      for (pk_i64 k = 0; k < whole; k++)
        for (pk_i64 j = 0; j < PK_GEMM_N; j++)
          panel[k * PK_GEMM_N + j] = p[2 * k * row + j].bits | (pk_u32)p[(2 * k + 1) * row + j].bits << 16;
    } else if (row == 1) {
      for (pk_i64 k = 0; k < whole; k++)
        for (pk_i64 j = 0; j < width; j++) memcpy(panel + k * PK_GEMM_N + j, p + j * col + 2 * k, sizeof *panel);
    } else {
      for (pk_i64 k = 0; k < whole; k++)
        for (pk_i64 j = 0; j < width; j++) panel[k * PK_GEMM_N + j] = PK_NAME(pair)(p + 2 * k * row + j * col, row, 1);
    }
    for (pk_i64 j = 0; j < width && whole < pairs; j++)
      panel[whole * PK_GEMM_N + j] = PK_NAME(pair)(p + 2 * whole * row + j * col, 0, 0);
  }
}

/* Packs `rows` rows of a block of a: pair k of row i to i + k * PK_GEMM_M. */
PK_FN void PK_NAME(pack_pairs_a)(const E *a, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 rows, pk_pair_t *target) {
  for (pk_i64 i = 0; i < rows; i++) {
    const E *const p = a + i * row;
    if (col == 1) {
      for (pk_i64 k = 0; k < depth / 2; k++) memcpy(target + i + k * PK_GEMM_M, p + 2 * k, sizeof *target);
    } else {
      for (pk_i64 k = 0; k < depth / 2; k++) target[i + k * PK_GEMM_M] = PK_NAME(pair)(p + 2 * k * col, col, 1);
    }
    if (depth % 2) target[i + depth / 2 * PK_GEMM_M] = PK_NAME(pair)(p + (depth - 1) * col, 0, 0);
  }
}

/* Sums of `rows` x two vectors; `rows` is constant where this is inlined. */
PK_FN PK_TARGET_AVX512_BF16 void PK_NAME(sum_pairs)(const int rows, pk_i64 pairs, const pk_pair_t *a,
                                                    const pk_pair_t *panel, T *product) {
  __m512 x[8][2];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) x[i][0] = x[i][1] = _mm512_setzero_ps();
  for (pk_i64 k = 0; k < pairs; k++, a += PK_GEMM_M, panel += PK_GEMM_N) {
    const __m512i y0 = _mm512_loadu_si512(panel), y1 = _mm512_loadu_si512(panel + 16);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      const __m512i pair = _mm512_set1_epi32((int)a[i]);
      x[i][0] = _mm512_dpbf16_ps(x[i][0], (__m512bh)pair, (__m512bh)y0);
      x[i][1] = _mm512_dpbf16_ps(x[i][1], (__m512bh)pair, (__m512bh)y1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) {
    _mm512_storeu_ps(product + i * PK_GEMM_N, x[i][0]);
    _mm512_storeu_ps(product + i * PK_GEMM_N + 16, x[i][1]);
  }
}

/* A product of `rows` (8, 4, 2 or 1) x PK_GEMM_N elements. */
static __attribute__((noinline)) PK_TARGET_AVX512_BF16 void PK_NAME(micro_pairs)(pk_i64 rows, pk_i64 pairs,
                                                                                 const pk_pair_t *a,
                                                                                 const pk_pair_t *panel, T *product) {
  switch (rows) {
    case 8:
      PK_NAME(sum_pairs)(8, pairs, a, panel, product);
      break;
    case 4:
      PK_NAME(sum_pairs)(4, pairs, a, panel, product);
      break;
    case 2:
      PK_NAME(sum_pairs)(2, pairs, a, panel, product);
      break;
    default:
      PK_NAME(sum_pairs)(1, pairs, a, panel, product);
  }
}
#endif
