/* int_host.h: products of 8-bit integers on the host, included by int_gemm.pk. A word has four terms of a column of b,
 * as they are in memory; panels have the words of PK_INT_N columns. A few rows are multiplied by columns of b that are
 * contiguous without packing b.
 *
 * Processors with AVX512-VNNI multiply four bytes of a, without a sign, by four of b: 128 is added to bytes of a that
 * have a sign, and 128 times the sums of b's bytes are subtracted. Other processors multiply pairs of 16 bits, terms 0
 * and 2 of a word ("even") and terms 1 and 3 ("odd"), which shifts extract from the word. */
#include "pk_words.h"

#define PK_INT_N PK_WORDS_N /* columns of a panel */
#define PK_INT_M 8          /* rows of a step */
#define PK_INT_K 512        /* terms of a block */
#define PK_INT_DEEP 2048    /* terms of a block of the product of a few rows */
#define PK_INT_COLUMNS 4    /* of b, multiplied by a few rows at once */
#define PK_INT_TILE_N 128   /* maximum number of columns of a tile */
#ifdef PK_IS_I8
#define PK_INT_BIAS 128
#else
#define PK_INT_BIAS 0
#endif

#ifndef PK_INT_PAIR_T
#define PK_INT_PAIR_T
typedef pk_i32 pk_int_pair_t __attribute__((may_alias)); /* two of 16 bits, or four bytes */
#endif

/* The memory of a launch. Each row of a has its even terms first, then the odd ones, or only bytes. */
typedef struct {
  pk_u32 panels[PK_INT_K / 4 * PK_INT_TILE_N] __attribute__((aligned(64)));
  pk_i16 rows[PK_INT_FEW * PK_INT_DEEP] __attribute__((aligned(64)));
  pk_i32 bias[PK_INT_TILE_N] __attribute__((aligned(64))); /* what the sums of a column start with */
  pk_i32 product[PK_INT_M * PK_INT_N] __attribute__((aligned(64)));
} PK_NAME(int_t);
_Static_assert(PK_INT_M *PK_INT_K <= PK_INT_FEW * PK_INT_DEEP, "`rows` suffices for both products");

/* ---- instruction sets ---- */

/* 16 bits of each word, shifted to keep the sign of the even or the odd byte. */
#define PK_INT_SIGNED_EVEN(w, half) (PK_CAT(PK_NAME(int_), PK_INT_SET))((half)((half)(w) << 8) >> 8)
#define PK_INT_SIGNED_ODD(w, half) (PK_CAT(PK_NAME(int_), PK_INT_SET))((half)(w) >> 8)

#ifdef PK_HAS_CLONES
#include <immintrin.h>
typedef pk_i16 PK_NAME(half64) __attribute__((vector_size(64), may_alias));
typedef pk_i16 PK_NAME(half32) __attribute__((vector_size(32), may_alias));

#define PK_INT_SET vnni
#define PK_INT_TARGET PK_TARGET_AVX512_VNNI
#define PK_INT_BYTES 64
#define PK_INT_MOST 8
#define PK_INT_EVEN(w) (w)
#define PK_INT_ODD(w) (w)
#define PK_INT_ADD(x, e, o, even, odd) \
  ((void)(o), (void)(odd), (V)_mm512_dpbusd_epi32((__m512i)(x), (__m512i)(e), (__m512i)(even)))
#define PK_INT_BIASED (PK_INT_BIAS != 0)
#include "int_vector.h"

#define PK_INT_SET avx512
#define PK_INT_TARGET PK_TARGET_AVX512
#define PK_INT_BYTES 64
#define PK_INT_MOST 8
#define PK_INT_EVEN(w) PK_INT_SIGNED_EVEN(w, PK_NAME(half64))
#define PK_INT_ODD(w) PK_INT_SIGNED_ODD(w, PK_NAME(half64))
#define PK_INT_ADD(x, e, o, even, odd) \
  ((x) + (V)_mm512_madd_epi16((__m512i)(e), (__m512i)(even)) + (V)_mm512_madd_epi16((__m512i)(o), (__m512i)(odd)))
#define PK_INT_BIASED 0
#include "int_vector.h"

#define PK_INT_SET avx2
#define PK_INT_TARGET PK_TARGET_AVX2
#define PK_INT_BYTES 32
#define PK_INT_MOST 4
#define PK_INT_EVEN(w) PK_INT_SIGNED_EVEN(w, PK_NAME(half32))
#define PK_INT_ODD(w) PK_INT_SIGNED_ODD(w, PK_NAME(half32))
#define PK_INT_ADD(x, e, o, even, odd) \
  ((x) + (V)_mm256_madd_epi16((__m256i)(e), (__m256i)(even)) + (V)_mm256_madd_epi16((__m256i)(o), (__m256i)(odd)))
#define PK_INT_BIASED 0
#include "int_vector.h"
#endif

/* Any processor: the products of both halves of each lane. */
typedef pk_i16 PK_NAME(half16) __attribute__((vector_size(16), may_alias));
#define PK_INT_LOW(x) ((V)((PK_NAME(word16))(x) << 16) >> 16)
typedef pk_u32 PK_NAME(word16) __attribute__((vector_size(16), may_alias));
#define PK_INT_SET base
#define PK_INT_TARGET
#define PK_INT_BYTES 16
#define PK_INT_MOST 4
#define PK_INT_EVEN(w) PK_INT_SIGNED_EVEN(w, PK_NAME(half16))
#define PK_INT_ODD(w) PK_INT_SIGNED_ODD(w, PK_NAME(half16))
#ifdef __SSE2__
#include <emmintrin.h>
#define PK_INT_ADD(x, e, o, even, odd) \
  ((x) + (V)_mm_madd_epi16((__m128i)(e), (__m128i)(even)) + (V)_mm_madd_epi16((__m128i)(o), (__m128i)(odd)))
#else
#define PK_INT_ADD(x, e, o, even, odd)                                                                       \
  ((x) + PK_INT_LOW(e) * PK_INT_LOW(even) + ((e) >> 16) * ((even) >> 16) + PK_INT_LOW(o) * PK_INT_LOW(odd) + \
   ((o) >> 16) * ((odd) >> 16))
#endif
#define PK_INT_BIASED 0
#include "int_vector.h"

#ifdef PK_HAS_CLONES
#define PK_INT_CALL(isa, name)                                 \
  ((isa) == PK_ISA_AVX512_BF16 ? PK_CAT(PK_NAME(name), vnni)   \
   : (isa) == PK_ISA_AVX512    ? PK_CAT(PK_NAME(name), avx512) \
   : (isa) == PK_ISA_AVX2      ? PK_CAT(PK_NAME(name), avx2)   \
                               : PK_CAT(PK_NAME(name), base))
#else
#define PK_INT_CALL(isa, name) ((void)(isa), PK_CAT(PK_NAME(name), base))
#endif

/* ---- packing ---- */

/* Packs `depth` elements of each of `rows` rows of a, which are `stride` terms apart, with zeros up to the next
 * multiple of 64. */
PK_FN void PK_NAME(pack_rows)(const int isa, const E *a, pk_i64 row, pk_i64 col, pk_i64 rows, pk_i64 depth,
                              pk_i64 stride, pk_i16 *to) {
  const pk_i64 end = (depth + 63) & -64, pairs = depth / 2;
  for (pk_i64 i = 0; i < rows; i++, a += row, to += stride) {
    if (isa == PK_ISA_AVX512_BF16) {
      pk_u8 *const bytes = (pk_u8 *)to;
      for (pk_i64 k = 0; k < depth; k++) bytes[k] = (pk_u8)((pk_u8)a[k * col] ^ PK_INT_BIAS);
      memset(bytes + depth, 0, (size_t)(end - depth));
      continue;
    }
    pk_i16 *const even = to, *const odd = to + stride / 2;
    if (col == 1)
      for (pk_i64 k = 0; k < pairs; k++) even[k] = a[2 * k], odd[k] = a[2 * k + 1];
    else
      for (pk_i64 k = 0; k < pairs; k++) even[k] = a[2 * k * col], odd[k] = a[(2 * k + 1) * col];
    for (pk_i64 k = pairs; k < end / 2; k++) even[k] = odd[k] = 0;
    if (depth % 2) even[pairs] = a[(depth - 1) * col];
  }
}

/* Packs four lines of b to the words of a panel. */
PK_FN void PK_NAME(pack_line)(const pk_u8 *b, pk_i64 row, pk_i64 width, pk_u32 *to) {
  for (pk_i64 j = 0; j < width; j++)
    to[j] = (pk_u32)b[j] | (pk_u32)b[row + j] << 8 | (pk_u32)b[2 * row + j] << 16 | (pk_u32)b[3 * row + j] << 24;
}

/* Packs `depth` terms of `width` <= PK_INT_N columns of b. */
PK_FN void PK_NAME(pack_panel)(const pk_u8 *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 width, pk_u32 *panel) {
  if (row == 1) {
    pk_words_turn(b, col, width, depth, panel);
    return;
  }
  pk_i64 k = 0;
  if (width < PK_INT_N || col != 1 || depth % 4) memset(panel, 0, (size_t)((depth + 3) / 4 * PK_INT_N) * sizeof *panel);
  for (; col == 1 && k + 4 <= depth; k += 4) {
    if (width == PK_INT_N)
      PK_NAME(pack_line)(b + k * row, row, PK_INT_N, panel + k / 4 * PK_INT_N);
    else
      PK_NAME(pack_line)(b + k * row, row, width, panel + k / 4 * PK_INT_N);
  }
  for (; k < depth; k++)
    for (pk_i64 j = 0; j < width; j++) panel[k / 4 * PK_INT_N + j] |= (pk_u32)b[k * row + j * col] << (8 * (k % 4));
}

/* ---- products ---- */

/* The part of a tile in the result, and its size. */
typedef struct {
  pk_i64 row, rows, column, columns;
} PK_NAME(tile_t);

/* Stores a product whose rows are `stride` apart, or adds it to the result. */
PK_FN void PK_NAME(store)(const pk_i32 *x, pk_i64 stride, pk_i64 rows, pk_i64 columns, int first, pk_i64 n,
                          pk_i32 *result) {
  for (pk_i64 i = 0; i < rows; i++)
    for (pk_i64 j = 0; j < columns; j++)
      result[i * n + j] = first ? x[i * stride + j] : (pk_i32)((pk_u32)result[i * n + j] + (pk_u32)x[i * stride + j]);
}

/* A few rows and columns of b that are contiguous. */
PK_FN void PK_NAME(few)(const int isa, const pk_int_gemm_t *s, const E *a, const pk_u8 *b, const PK_NAME(tile_t) * t,
                        PK_NAME(int_t) * own, pk_i32 *result) {
  for (pk_i64 k = 0; k < s->k || k == 0; k += PK_INT_DEEP) {
    const pk_i64 depth = s->k - k < PK_INT_DEEP ? s->k - k : PK_INT_DEEP;
    PK_NAME(pack_rows)
    (isa, a + t->row * s->a_row + k * s->a_col, s->a_row, s->a_col, t->rows, depth, PK_INT_DEEP, own->rows);
    for (pk_i64 j = 0; j < t->columns; j += PK_INT_COLUMNS) {
      const pk_i64 column = t->column + j, count = t->columns - j < PK_INT_COLUMNS ? t->columns - j : PK_INT_COLUMNS;
      PK_INT_CALL(isa, columns_)
      (t->rows, depth, (const pk_int_pair_t *)own->rows, b + column * s->b_col + k, s->b_col, count, own->product);
      PK_NAME(store)(own->product, PK_INT_COLUMNS, t->rows, count, k == 0, s->n, result + t->row * s->n + column);
    }
  }
}

/* Packs the columns of a tile, and what their sums start with. */
PK_FN void PK_NAME(pack_columns)(const int isa, const pk_int_gemm_t *s, const pk_u8 *b, pk_i64 k, pk_i64 depth,
                                 const PK_NAME(tile_t) * t, PK_NAME(int_t) * own) {
  memset(own->bias, 0, sizeof own->bias);
  for (pk_i64 j = 0; j < t->columns; j += PK_INT_N) {
    const pk_i64 width = t->columns - j < PK_INT_N ? t->columns - j : PK_INT_N;
    pk_u32 *const panel = own->panels + j * (PK_INT_K / 4);
    PK_NAME(pack_panel)(b + k * s->b_row + (t->column + j) * s->b_col, s->b_row, s->b_col, depth, width, panel);
    if (isa != PK_ISA_AVX512_BF16 || !PK_INT_BIAS) continue;
    for (pk_i64 w = 0; w < (depth + 3) / 4; w++)
      for (int c = 0; c < PK_INT_N; c++) {
        const pk_i32 x = (pk_i32)panel[w * PK_INT_N + c];
        own->bias[j + c] -= PK_INT_BIAS * ((x >> 24) + (x << 8 >> 24) + (x << 16 >> 24) + (x << 24 >> 24));
      }
  }
}

PK_FN void PK_NAME(tile)(const int isa, const pk_int_gemm_t *s, const E *a, const pk_u8 *b, const PK_NAME(tile_t) * t,
                         PK_NAME(int_t) * own, pk_i32 *result) {
  for (pk_i64 k = 0; k < s->k || k == 0; k += PK_INT_K) {
    const pk_i64 depth = s->k - k < PK_INT_K ? s->k - k : PK_INT_K;
    PK_NAME(pack_columns)(isa, s, b, k, depth, t, own);
    for (pk_i64 i = 0; i < t->rows; i += PK_INT_M) {
      const pk_i64 row = t->row + i, rows = t->rows - i < PK_INT_M ? t->rows - i : PK_INT_M;
      PK_NAME(pack_rows)(isa, a + row * s->a_row + k * s->a_col, s->a_row, s->a_col, rows, depth, PK_INT_K, own->rows);
      for (pk_i64 j = 0; j < t->columns; j += PK_INT_N) {
        const pk_i64 width = t->columns - j < PK_INT_N ? t->columns - j : PK_INT_N;
        PK_INT_CALL(isa, panel_)
        (rows, (depth + 3) / 4, (const pk_int_pair_t *)own->rows, own->panels + j * (PK_INT_K / 4), own->bias + j,
         own->product);
        PK_NAME(store)(own->product, PK_INT_N, rows, width, k == 0, s->n, result + row * s->n + t->column + j);
      }
    }
  }
}

PK_KERNEL(PK_NAME(tiles), INT_GEMM_ARGS) {
  PK_NAME(int_t) own;
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 tile = (pk_i64)u / s.tiles.tiles_m, row = ((pk_i64)u - tile * s.tiles.tiles_m) * s.tiles.tile_m;
      const pk_i64 column = tile * s.tiles.tile_n;
      const PK_NAME(tile_t) t = {row, s.m - row < s.tiles.tile_m ? s.m - row : s.tiles.tile_m, column,
                                 s.n - column < s.tiles.tile_n ? s.n - column : s.tiles.tile_n};
      if (t.rows <= PK_INT_FEW && s.b_row == 1)
        PK_NAME(few)(pk_isa, &s, a, (const pk_u8 *)b, &t, &own, result);
      else
        PK_NAME(tile)(pk_isa, &s, a, (const pk_u8 *)b, &t, &own, result);
    }
  }
}
#undef PK_INT_N
#undef PK_INT_M
#undef PK_INT_K
#undef PK_INT_DEEP
#undef PK_INT_COLUMNS
#undef PK_INT_TILE_N
#undef PK_INT_BIAS
#undef PK_INT_SIGNED_EVEN
#undef PK_INT_SIGNED_ODD
#undef PK_INT_LOW
#undef PK_INT_CALL
