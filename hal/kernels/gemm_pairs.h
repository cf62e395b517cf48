/* gemm_pairs.h: operands of bfloat16 products in the order of processors with AVX512-BF16 and AMX: in pairs of elements
 * that are adjacent along k; an instruction adds both products of a pair to a float. Operands are packed in squares of
 * 16 elements x 16 pairs, padded with zeros and transposed in registers if necessary. This file has the inner loops of
 * AVX512-BF16; those of AMX are in gemm_amx.h. Subnormal numbers count as zeros, as in every library that uses the
 * instructions. */
#ifdef PK_IS_BF16
typedef pk_u32 pk_pair_t __attribute__((may_alias)); /* in buffers of T */
typedef pk_u16 pk_half_t __attribute__((may_alias)); /* the bits of an element */
typedef pk_u32 pk_pairs_t __attribute__((vector_size(64), aligned(2), may_alias));
typedef pk_u16 pk_halves_t __attribute__((vector_size(32), aligned(2), may_alias));

#define PK_PAIRS 16                                                          /* edge of a square */
#define PK_PAIRS_DEEP(depth) (((depth) + 2 * PK_PAIRS - 1) / (2 * PK_PAIRS)) /* squares along k */

#define PK_PAIRS_LOW(x, y) __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PK_PAIRS_HIGH(x, y) __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Prefetches the memory after the elements of two k, which the next square of these k reads: the processor does not
 * prefetch lines that are a page apart. */
PK_FN void PK_NAME(ahead)(const pk_half_t *from, pk_i64 line) {
  __builtin_prefetch(from + 2 * PK_PAIRS);
  __builtin_prefetch(from + line + 2 * PK_PAIRS);
}

/* Packs a square to rows that are `step` apart. Its lines in memory are `line` apart: a line has the pairs of one
 * element or, with `across`, the elements of one k. `turned`: the square is transposed. */
PK_FN void PK_NAME(square)(const pk_half_t *from, pk_i64 line, const int across, const int turned, pk_pair_t *to,
                           pk_i64 step) {
  pk_pairs_t x[PK_PAIRS], y[PK_PAIRS] __attribute__((unused));
#pragma GCC unroll 16
  for (int r = 0; r < PK_PAIRS; r++) {
    if (across && turned) PK_NAME(ahead)(from + 2 * r * line, line);
    if (across)
      x[r] = __builtin_convertvector(*(const pk_halves_t *)(from + 2 * r * line), pk_pairs_t) |
             __builtin_convertvector(*(const pk_halves_t *)(from + (2 * r + 1) * line), pk_pairs_t) << 16;
    else
      x[r] = *(const pk_pairs_t *)(from + r * line);
  }
  if (turned) PK_TURN(x, y, PK_PAIRS, 4, PK_PAIRS_LOW, PK_PAIRS_HIGH)
#pragma GCC unroll 16
  for (int r = 0; r < PK_PAIRS; r++) *(pk_pairs_t *)(to + r * step) = x[r];
}

/* Packs two adjacent squares, with the elements of one k per line in memory and in the rows: complete cache lines, each
 * read once. */
PK_FN void PK_NAME(wide_square)(const pk_half_t *from, pk_i64 line, pk_pair_t *to) {
  for (int r = 0; r < PK_PAIRS; r++, from += 2 * line, to += 2 * PK_PAIRS) {
#pragma GCC unroll 2
    for (int e = 0; e < 2 * PK_PAIRS; e += PK_PAIRS)
      *(pk_pairs_t *)(to + e) = __builtin_convertvector(*(const pk_halves_t *)(from + e), pk_pairs_t) |
                                __builtin_convertvector(*(const pk_halves_t *)(from + line + e), pk_pairs_t) << 16;
  }
}

/* Packs a square by one of the functions above: PK_SQUARE_*. */
#define PK_SQUARE_ALONG 0
#define PK_SQUARE_ALONG_TURNED 1
#define PK_SQUARE_ACROSS 2
#define PK_SQUARE_ACROSS_TURNED 3
#define PK_SQUARE_WIDE 4
#define PK_DEFINE_SQUARES(suffix, attribute)                                        \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(squares), suffix)( \
      const pk_half_t *from, pk_i64 line, int which, pk_pair_t *to, pk_i64 step) {  \
    switch (which) {                                                                \
      case PK_SQUARE_ALONG:                                                         \
        PK_NAME(square)(from, line, 0, 0, to, step);                                \
        break;                                                                      \
      case PK_SQUARE_ALONG_TURNED:                                                  \
        PK_NAME(square)(from, line, 0, 1, to, step);                                \
        break;                                                                      \
      case PK_SQUARE_ACROSS:                                                        \
        PK_NAME(square)(from, line, 1, 0, to, step);                                \
        break;                                                                      \
      case PK_SQUARE_ACROSS_TURNED:                                                 \
        PK_NAME(square)(from, line, 1, 1, to, step);                                \
        break;                                                                      \
      default:                                                                      \
        PK_NAME(wide_square)(from, line, to);                                       \
    }                                                                               \
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

/* How an operand is packed: number k of element e is at e * next + k * along. It is packed into panels of `width`
 * elements (16 or 32), with pair k of element e at k * width + e; or, with `lying`, into squares at k + e * 16, those
 * with the same k one after another. */
typedef struct {
  pk_i64 next, along, width;
  int lying;
} pk_packing_t;

/* Packs a square at the edge, or one of elements that are not contiguous: gathers it first. */
PK_FN void PK_NAME(pack_edge)(const int pk_isa, const pk_packing_t *p, const pk_half_t *first, pk_i64 elements,
                              pk_i64 deep, pk_pair_t *to, pk_i64 step) {
  enum { SPAN = 2 * PK_PAIRS };
  pk_half_t edge[PK_PAIRS * SPAN] __attribute__((aligned(64)));
  memset(edge, 0, sizeof edge);
  for (pk_i64 i = 0; i < elements; i++)
    for (pk_i64 j = 0; j < deep; j++) edge[i * SPAN + j] = first[i * p->next + j * p->along];
  PK_SQUARES(edge, SPAN, p->lying ? PK_SQUARE_ALONG : PK_SQUARE_ALONG_TURNED, to, step);
}

/* Packs `count` elements of `depth` numbers each, padded to complete panels and squares. Panels are
 * PK_PAIRS_DEEP(depth) squares deep. */
PK_FN void PK_NAME(pack_pairs)(const int pk_isa, const pk_packing_t *p, const E *from, pk_i64 depth, pk_i64 count,
                               pk_pair_t *to) {
  enum { SPAN = 2 * PK_PAIRS };
  const pk_i64 step = p->lying ? PK_PAIRS : p->width, end = (count + p->width - 1) & -p->width;
  for (pk_i64 k = 0; k < depth; k += SPAN) {
    const pk_i64 deep = depth - k < SPAN ? depth - k : SPAN;
    for (pk_i64 e = 0; e < end; e += PK_PAIRS) {
      const pk_half_t *const first = (const pk_half_t *)(from + e * p->next + k * p->along);
      const pk_i64 inside = e & (p->width - 1), panel = (e - inside) * PK_PAIRS_DEEP(depth) * PK_PAIRS;
      pk_pair_t *const square = to + panel + k / 2 * p->width + inside * (p->lying ? PK_PAIRS : 1);
      const int whole = deep == SPAN && count - e >= PK_PAIRS;
      if (whole && p->along == 1) {
        PK_SQUARES(first, p->next, p->lying ? PK_SQUARE_ALONG : PK_SQUARE_ALONG_TURNED, square, step);
      } else if (whole && p->next == 1 && !p->lying && p->width == SPAN && e % SPAN == 0 && count - e >= SPAN) {
        PK_SQUARES(first, p->along, PK_SQUARE_WIDE, square, step);
        e += PK_PAIRS;
      } else if (whole && p->next == 1) {
        PK_SQUARES(first, p->along, p->lying ? PK_SQUARE_ACROSS_TURNED : PK_SQUARE_ACROSS, square, step);
      } else {
        const pk_i64 left = count - e < PK_PAIRS ? count - e : PK_PAIRS;
        PK_NAME(pack_edge)(pk_isa, p, first, left < 0 ? 0 : left, deep, square, step);
      }
    }
  }
}

#endif

#if defined(PK_IS_BF16) && defined(PK_HAS_CLONES)
#define PK_HAS_PAIRS 1
#include <immintrin.h>

/* Sums of `rows` x two vectors; `rows` is constant when this is inlined. */
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

/* Computes a product of `rows` (8, 4, 2 or 1) of a panel of 16 x PK_GEMM_N elements. */
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
