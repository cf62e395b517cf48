/* gemm_pairs.h: operands of products of bfloat16 as processors with AVX512-BF16 and AMX read them: in pairs of elements that follow each
 * other along k, of which an instruction adds both products to a float. Operands are packed in squares of 16 elements x 16 pairs, filled up
 * with zeros, whose lines are turned around in registers where that is needed. The inner loops of AVX512-BF16; those of AMX are in
 * gemm_amx.h. Subnormal numbers count as zeros, as in every library that uses the instructions. */
#ifdef PK_IS_BF16
typedef pk_u32 pk_pair_t __attribute__((may_alias)); /* in buffers of T */
typedef pk_u16 pk_half_t __attribute__((may_alias)); /* the bits of an element */
typedef pk_u32 pk_pairs_t __attribute__((vector_size(64), aligned(2), may_alias));
typedef pk_u16 pk_halves_t __attribute__((vector_size(32), aligned(2), may_alias));

#define PK_PAIRS 16                                                          /* edge of a square */
#define PK_PAIRS_DEEP(depth) (((depth) + 2 * PK_PAIRS - 1) / (2 * PK_PAIRS)) /* squares along k */

#define PK_PAIRS_LOW(x, y) __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PK_PAIRS_HIGH(x, y) __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Packs a square to rows that are `step` apart. Its lines in memory are `line` apart: the pairs of an element each, or, `across`, the
 * elements of one k each. `turned`: rows are the other of both. */
PK_FN void PK_NAME(square)(const pk_half_t *from, pk_i64 line, const int across, const int turned, pk_pair_t *to,
                           pk_i64 step) {
  pk_pairs_t x[PK_PAIRS], y[PK_PAIRS];
#pragma GCC unroll 16
  for (int r = 0; r < PK_PAIRS; r++) {
    if (across)
      x[r] = __builtin_convertvector(*(const pk_halves_t *)(from + 2 * r * line), pk_pairs_t) |
             __builtin_convertvector(*(const pk_halves_t *)(from + (2 * r + 1) * line), pk_pairs_t) << 16;
    else
      x[r] = *(const pk_pairs_t *)(from + r * line);
  }
#pragma GCC unroll 4
  for (int round = 0; turned && round < 4; round++) { /* as `transpose` of gemm_micro.h */
#pragma GCC unroll 8
    for (int r = 0; r < PK_PAIRS / 2; r++) {
      y[2 * r] = PK_PAIRS_LOW(x[r], x[r + PK_PAIRS / 2]);
      y[2 * r + 1] = PK_PAIRS_HIGH(x[r], x[r + PK_PAIRS / 2]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < PK_PAIRS; r++) x[r] = y[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < PK_PAIRS; r++) *(pk_pairs_t *)(to + r * step) = x[r];
}

#define PK_DEFINE_SQUARES(suffix, attribute)                                                    \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(squares), suffix)(             \
      const pk_half_t *from, pk_i64 line, int across, int turned, pk_pair_t *to, pk_i64 step) { \
    if (across) {                                                                               \
      if (turned)                                                                               \
        PK_NAME(square)(from, line, 1, 1, to, step);                                            \
      else                                                                                      \
        PK_NAME(square)(from, line, 1, 0, to, step);                                            \
    } else {                                                                                    \
      if (turned)                                                                               \
        PK_NAME(square)(from, line, 0, 1, to, step);                                            \
      else                                                                                      \
        PK_NAME(square)(from, line, 0, 0, to, step);                                            \
    }                                                                                           \
  }
PK_DEFINE_SQUARES(_base, )
#ifdef PK_HAS_CLONES
PK_DEFINE_SQUARES(_avx512, PK_TARGET_AVX512)
#define PK_SQUARES (pk_isa == PK_ISA_AMX_MODEL ? PK_NAME(squares_base) : PK_NAME(squares_avx512))
#else
#define PK_SQUARES ((void)pk_isa, PK_NAME(squares_base))
#endif
#undef PK_DEFINE_SQUARES
#undef PK_PAIRS_LOW
#undef PK_PAIRS_HIGH

/* Packs `count` elements, `next` apart, of `depth` numbers each, `along` apart, as a panel of `width` elements (16 or 32): pair k of element
 * e at k * width + e; or, `lying`, in squares, of which those with the same k follow each other: pair k of element e at k + e * 16. */
PK_FN void PK_NAME(pack_pairs)(const int pk_isa, const E *from, pk_i64 next, pk_i64 along, pk_i64 depth, pk_i64 count,
                               const pk_i64 width, const int lying, pk_pair_t *to) {
  enum { SPAN = 2 * PK_PAIRS };
  pk_half_t edge[PK_PAIRS * SPAN] __attribute__((aligned(64)));
  for (pk_i64 k = 0; k < depth; k += SPAN) {
    for (pk_i64 e = 0; e < width; e += PK_PAIRS) {
      const pk_half_t *const first = (const pk_half_t *)(from + e * next + k * along);
      pk_pair_t *const square = lying ? to + k / 2 * width + e * PK_PAIRS : to + k / 2 * width + e;
      const pk_i64 step = lying ? PK_PAIRS : width;
      const int whole = depth - k >= SPAN && count - e >= PK_PAIRS;
      if (whole && along == 1) {
        PK_SQUARES(first, next, 0, !lying, square, step);
      } else if (whole && next == 1) {
        PK_SQUARES(first, along, 1, lying, square, step);
      } else {
        const pk_i64 elements = count - e < PK_PAIRS ? count - e : PK_PAIRS, deep = depth - k < SPAN ? depth - k : SPAN;
        memset(edge, 0, sizeof edge);
        for (pk_i64 i = 0; i < elements; i++)
          for (pk_i64 j = 0; j < deep; j++) edge[i * SPAN + j] = first[i * next + j * along];
        PK_SQUARES(edge, SPAN, 0, !lying, square, step);
      }
    }
  }
}

/* Packs a block of b in panels of PK_GEMM_N columns, PK_PAIRS_PANEL(depth) apart. */
#define PK_PAIRS_PANEL(depth) (PK_PAIRS_DEEP(depth) * PK_PAIRS * PK_GEMM_N)
PK_FN void PK_NAME(pack_pairs_b)(const int pk_isa, const E *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 columns,
                                 pk_pair_t *panels) {
  for (pk_i64 j = 0; j < columns; j += PK_GEMM_N, panels += PK_PAIRS_PANEL(depth))
    PK_NAME(pack_pairs)(pk_isa, b + j * col, col, row, depth, columns - j, PK_GEMM_N, 0, panels);
}
#endif

#if defined(PK_IS_BF16) && defined(PK_HAS_CLONES)
#define PK_HAS_PAIRS 1
#include <immintrin.h>

/* Sums of `rows` x two vectors; `rows` is constant where this is inlined. */
PK_FN PK_TARGET_AVX512_BF16 void PK_NAME(sum_pairs)(const int rows, pk_i64 pairs, const pk_pair_t *a,
                                                    const pk_pair_t *panel, T *product) {
  __m512 x[8][2];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++) x[i][0] = x[i][1] = _mm512_setzero_ps();
  for (pk_i64 k = 0; k < pairs; k++, a += PK_PAIRS, panel += PK_GEMM_N) {
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

/* A product of `rows` (8, 4, 2 or 1) of a panel of 16 x PK_GEMM_N elements. */
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
