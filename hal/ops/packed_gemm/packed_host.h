/* packed_host.h: products with weights of 4 or 8 bits on the host, included by packed_gemm.pk. Words of 32 bits of the
 * rows of weights are transposed in registers first: a vector then has the words of adjacent columns, of which it
 * extracts the same bits.
 *
 * One row of a: the sums of a group's integers stay in registers, and are multiplied by its numbers once. With AVX2 and
 * AVX-512, weights of 8 bits whose rows are one group are not transposed. More rows: a block of weights is converted to
 * panels in the cache, once for all rows of a tile, which gemm_micro.h multiplies. */
#include "gemm_micro.h"

_Static_assert(PK_GEMM_N == PK_WORDS_N, "a panel has the words of as many columns");

#define PK_STRIP_K 1024 /* depth of a block of the product of one row */

/* The memory of a launch. */
typedef struct {
  pk_u32 words[PK_STRIP_K / 4 * PK_GEMM_N] __attribute__((aligned(64))); /* [word of a row][column] */
  T panels[PK_GEMM_K * PK_GEMM_TILE_N] __attribute__((aligned(64)));     /* converted weights */
  T rows[PK_GEMM_K * PK_GEMM_M] __attribute__((aligned(64)));            /* packed rows of a */
  T sums[PK_GEMM_TILE_M * PK_GEMM_TILE_N] __attribute__((aligned(64)));
  T product[PK_GEMM_M * PK_GEMM_N] __attribute__((aligned(64)));
  T scale[PK_GEMM_N], zero[PK_GEMM_N], center[PK_GEMM_N]; /* of a group: w = (q - center) * scale + zero */
} PK_NAME(packed_t);

/* A product, and its operands. */
typedef struct {
  const pk_packed_t *s;
  const E *a, *scales, *zeros;
  const pk_u8 *weights;
} PK_NAME(packed_in_t);

/* Converts n contiguous elements. A constant number of them is converted in vectors as wide as those that read them:
 * a processor forwards a write only to a read that is not wider. */
PK_FN void PK_NAME(numbers)(T *to, const E *from, pk_i64 n) {
#ifdef PK_IS_F16
  pk_half_runs(PK_RUNS, 1)->widen(to, (const pk_u16 *)from, (pk_u64)n);
#else
  for (pk_i64 i = 0; i < n; i++) to[i] = PK_GET(from[i]);
#endif
}

/* Reads the numbers of a group for `width` columns from j on. */
PK_FN void PK_NAME(read_group)(const PK_NAME(packed_in_t) * in, pk_i64 group, pk_i64 j, pk_i64 width,
                               PK_NAME(packed_t) * own) {
  const pk_i64 at = group * in->s->n + j;
  /* Rows of numbers are pages apart, as those of weights. */
  for (int c = 0; c < PK_GEMM_N; c += 64 / (int)sizeof(E)) {
    __builtin_prefetch(in->scales + (in->s->form == PK_PACKED_PAIRS ? 2 : 1) * (at + 2 * in->s->n) + c);
    if (in->s->form == PK_PACKED_PAIRS) __builtin_prefetch(in->scales + 2 * (at + 2 * in->s->n) + PK_GEMM_N + c);
    if (in->s->form == PK_PACKED_ZEROS) __builtin_prefetch(in->zeros + at + 2 * in->s->n + c);
  }
  if (in->s->form == PK_PACKED_PAIRS) {
    T both[2 * PK_GEMM_N] __attribute__((aligned(64)));
    if (width == PK_GEMM_N) {
      PK_NAME(numbers)(both, in->scales + 2 * at, 2 * PK_GEMM_N);
    } else {
      memset(both, 0, sizeof both);
      PK_NAME(numbers)(both, in->scales + 2 * at, 2 * width);
    }
    for (int c = 0; c < PK_GEMM_N; c++) own->scale[c] = both[2 * c], own->zero[c] = both[2 * c + 1];
    return;
  }
  PK_NAME(numbers)(own->scale, in->scales + at, width);
  if (in->s->form == PK_PACKED_ZEROS) PK_NAME(numbers)(own->center, in->zeros + at, width);
}

/* Returns the number of weights from k0 + k on that are in this group and in a block of `depth` from k0 on. */
PK_FN pk_i64 PK_NAME(piece)(const pk_packed_t *s, pk_i64 group, pk_i64 k0, pk_i64 k, pk_i64 depth) {
  const pk_i64 end = (group + 1) * s->group - k0;
  return (end < depth ? end : depth) - k;
}

/* Sets the numbers that read_group does not. */
PK_FN void PK_NAME(begin_groups)(pk_i64 form, PK_NAME(packed_t) * own) {
  for (int c = 0; c < PK_GEMM_N; c++) {
    own->scale[c] = own->zero[c] = PK_C(0.0);
    own->center[c] = form == PK_PACKED_PAIRS ? PK_C(8.0) : PK_C(0.0);
  }
}

/* Defines for vectors of so many bytes:
 * unpack: converts field `j` of a row of words to weights.
 * strip: adds up x[k] * q[k] for `count` words of each column. */
#define PK_FIELD(bits, w, j, lanes, numbers)                                                                       \
  __builtin_convertvector((bits) == 4 ? (lanes)((w) >> (4 * (j)) & 15) : (lanes)((w) << (24 - 8 * ((j)&3))) >> 24, \
                          numbers)
#define PK_DEFINE_PACKED(bytes)                                                                                       \
  typedef pk_u32 PK_CAT(PK_NAME(word), bytes) __attribute__((vector_size(bytes), may_alias));                         \
  typedef pk_i32 PK_CAT(PK_NAME(lane), bytes) __attribute__((vector_size(bytes), may_alias));                         \
  PK_FN void PK_CAT(PK_NAME(unpack_), bytes)(const int bits, const pk_u32 *words, pk_i64 rows, pk_i64 flip,           \
                                             const PK_NAME(packed_t) * own, T * panel) {                              \
    enum { LANES = bytes / (int)sizeof(T) };                                                                          \
    const int fields = 32 / bits; /* of a word */                                                                     \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                                         \
    for (pk_i64 c = 0; c < PK_GEMM_N; c += LANES) {                                                                   \
      const vector scale = *(const vector *)(own->scale + c), zero = *(const vector *)(own->zero + c);                \
      const vector center = *(const vector *)(own->center + c);                                                       \
      for (pk_i64 r = 0; r < rows; r++) {                                                                             \
        const PK_CAT(PK_NAME(word), bytes) w = *(const PK_CAT(PK_NAME(word), bytes) *)(words + r * PK_GEMM_N + c);    \
        T *const to = panel + r * fields * PK_GEMM_N + c;                                                             \
        _Pragma("GCC unroll 8") for (int j = 0; j < fields; j++) * (vector *)(to + (j ^ flip) * PK_GEMM_N) =          \
            (PK_FIELD(bits, w, j, PK_CAT(PK_NAME(lane), bytes), vector) - center) * scale + zero;                     \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  PK_FN void PK_CAT(PK_NAME(strip_), bytes)(const int bits, const pk_u32 *words, pk_i64 count, const T *x, T *sums) { \
    enum { LANES = bytes / (int)sizeof(T), STEP = 2 * LANES };                                                        \
    const int fields = 32 / bits;                                                                                     \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                                         \
    typedef PK_CAT(PK_NAME(word), bytes) word;                                                                        \
    for (pk_i64 c = 0; c < PK_GEMM_N; c += STEP) {                                                                    \
      vector y[2][2] = {{{0}, {0}}, {{0}, {0}}};                                                                      \
      for (pk_i64 r = 0; r < count; r++) {                                                                            \
        const word *const w = (const word *)(words + r * PK_GEMM_N + c);                                              \
        const T *const factor = x + r * fields;                                                                       \
        _Pragma("GCC unroll 8") for (int j = 0; j < fields; j++) _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)  \
            y[j & 1][v] += factor[j] * PK_FIELD(bits, w[v], j, PK_CAT(PK_NAME(lane), bytes), vector);                 \
      }                                                                                                               \
      *(vector *)(sums + c) = y[0][0] + y[1][0];                                                                      \
      *(vector *)(sums + c + LANES) = y[0][1] + y[1][1];                                                              \
    }                                                                                                                 \
  }
PK_DEFINE_PACKED(64)
PK_DEFINE_PACKED(32)
PK_DEFINE_PACKED(16)
#undef PK_DEFINE_PACKED
#undef PK_FIELD

/* Calls the function for vectors of the entry's instruction set. */
#define PK_PACKED_CALL(isa, name, ...)      \
  if ((isa) == PK_ISA_AVX512)               \
    PK_CAT(PK_NAME(name), 64)(__VA_ARGS__); \
  else if ((isa) == PK_ISA_AVX2)            \
    PK_CAT(PK_NAME(name), 32)(__VA_ARGS__); \
  else                                      \
    PK_CAT(PK_NAME(name), 16)(__VA_ARGS__);

/* ---- one row ---- */

/* Sums of `depth` <= PK_STRIP_K elements of a, in pieces of a group: x has them in the order of the fields. */
PK_FN void PK_NAME(strip_block)(const int isa, const int bits, const PK_NAME(packed_in_t) * in, pk_i64 k0, pk_i64 depth,
                                pk_i64 column, pk_i64 width, const T *x, const T *x_sums, PK_NAME(packed_t) * own,
                                T *total) {
  const pk_packed_t *const s = in->s;
  const int fields = 32 / bits;
  T part[PK_GEMM_N] __attribute__((aligned(64)));
  pk_words_turn(in->weights + column * s->row_bytes + k0 * bits / 8, s->row_bytes, width, (depth * bits + 7) / 8,
                own->words);
  for (pk_i64 k = 0, piece, group = k0 / s->group; k < depth; k += piece, group++, x_sums++) {
    piece = PK_NAME(piece)(s, group, k0, k, depth);
    PK_NAME(read_group)(in, group, column, width, own);
    PK_PACKED_CALL(isa, strip_, bits, own->words + k / fields * PK_GEMM_N, (piece + fields - 1) / fields, x + k, part)
    for (int c = 0; c < PK_GEMM_N; c++)
      total[c] += own->scale[c] * (part[c] - own->center[c] * *x_sums) + own->zero[c] * *x_sums;
  }
}

/* Converts `depth` elements of a, exchanges those of a byte if `flip`, and adds up those of each piece of a group. */
PK_FN void PK_NAME(strip_row)(const PK_NAME(packed_in_t) * in, pk_i64 k0, pk_i64 depth, pk_i64 flip, T *x, T *x_sums) {
  PK_NAME(numbers)(x, in->a + k0, depth);
  for (pk_i64 k = depth; k < PK_STRIP_K && k % 8; k++) x[k] = PK_C(0.0);
  for (pk_i64 k = 0, piece, group = k0 / in->s->group; k < depth; k += piece, group++, x_sums++) {
    T lanes[8] = {0};
    piece = PK_NAME(piece)(in->s, group, k0, k, depth);
    pk_i64 i = 0;
    for (; i + 8 <= piece; i += 8)
      for (int l = 0; l < 8; l++) lanes[l] += x[k + i + l];
    for (; i < piece; i++) lanes[0] += x[k + i];
    *x_sums = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }
  for (pk_i64 k = 0; flip && k < depth; k += 2) {
    const T first = x[k];
    x[k] = x[k + 1], x[k + 1] = first;
  }
}

PK_FN void PK_NAME(strip)(const int isa, const int bits, const PK_NAME(packed_in_t) * in, pk_i64 column, pk_i64 columns,
                          PK_NAME(packed_t) * own, E *result) {
  const pk_i64 flip = in->s->form == PK_PACKED_PAIRS;
  T x[PK_STRIP_K] __attribute__((aligned(64))), x_sums[PK_STRIP_K / 4], *const total = own->sums;
  memset(total, 0, (size_t)(columns + PK_GEMM_N) * sizeof(T));
  for (pk_i64 k = 0; k < in->s->k; k += PK_STRIP_K) {
    const pk_i64 depth = in->s->k - k < PK_STRIP_K ? in->s->k - k : PK_STRIP_K;
    PK_NAME(strip_row)(in, k, depth, flip, x, x_sums);
    for (pk_i64 j = 0; j < columns; j += PK_GEMM_N) PK_NAME(strip_block)
    (isa, bits, in, k, depth, column + j, columns - j < PK_GEMM_N ? columns - j : PK_GEMM_N, x, x_sums, own, total + j);
  }
  for (pk_i64 j = 0; j < columns; j++) result[column + j] = PK_PUT(total[j]);
}

#ifdef PK_HAS_CLONES
#include <immintrin.h>

/* Defines for an instruction set with vectors of so many bytes the products of x and of PK_DOTS rows of weights of 8
 * bits, which are `row` apart. CONVERT reads weights as floats. The lanes of all sets are those of 64 bytes, so that
 * sums have one order. */
#define PK_DOTS 4
#define PK_DOTS_LANES 16
#define PK_DEFINE_DOTS(name, attribute, bytes, CONVERT)                                                               \
  attribute static __attribute__((noinline)) void PK_CAT(PK_NAME(dots_), name)(const pk_u8 *w, pk_i64 row,            \
                                                                               pk_i64 depth, const T *x, T *sums) {   \
    enum { LANES = bytes / (int)sizeof(T), PARTS = PK_DOTS_LANES / LANES };                                           \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                                         \
    vector y[PK_DOTS][PARTS];                                                                                         \
    _Pragma("GCC unroll 4") for (int c = 0; c < PK_DOTS; c++) _Pragma("GCC unroll 4") for (int p = 0; p < PARTS; p++) \
        y[c][p] = (vector){0};                                                                                        \
    for (pk_i64 k = 0; k < depth; k += PK_DOTS_LANES) _Pragma("GCC unroll 4") for (int p = 0; p < PARTS; p++) {       \
        const vector factor = *(const vector *)(x + k + p * LANES);                                                   \
        _Pragma("GCC unroll 4") for (int c = 0; c < PK_DOTS; c++) y[c][p] +=                                          \
            factor * (vector)CONVERT((const __m128i *)(w + c * row + k + p * LANES));                                 \
      }                                                                                                               \
    for (int c = 0; c < PK_DOTS; c++) {                                                                               \
      T lanes[PK_DOTS_LANES];                                                                                         \
      memcpy(lanes, y[c], sizeof lanes);                                                                              \
      for (int step = PK_DOTS_LANES / 2; step; step /= 2)                                                             \
        for (int l = 0; l < step; l++) lanes[l] += lanes[l + step];                                                   \
      sums[c] = lanes[0];                                                                                             \
    }                                                                                                                 \
  }
#define PK_CONVERT_64(from) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)))
#define PK_CONVERT_32(from) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from)))
PK_DEFINE_DOTS(avx512, PK_TARGET_AVX512, 64, PK_CONVERT_64)
PK_DEFINE_DOTS(avx2, PK_TARGET_AVX2, 32, PK_CONVERT_32)
#undef PK_DEFINE_DOTS
#undef PK_CONVERT_64
#undef PK_CONVERT_32
#define PK_DOTS_CALL(isa) ((isa) == PK_ISA_AVX2 ? PK_NAME(dots_avx2) : PK_NAME(dots_avx512))

/* Adds the products of `depth` elements and of up to PK_DOTS rows of weights: the last elements and rows are copied, so
 * that complete vectors are read. */
#define PK_DOTS_K 4096 /* depth of a block */
PK_FN void PK_NAME(dots_block)(const int isa, const pk_u8 *w, pk_i64 row, pk_i64 rows, pk_i64 depth, const T *x,
                               T *total) {
  const pk_i64 whole = rows == PK_DOTS ? depth & -PK_DOTS_LANES : 0;
  T part[PK_DOTS];
  if (whole) {
    PK_DOTS_CALL(isa)(w, row, whole, x, part);
    for (int c = 0; c < PK_DOTS; c++) total[c] += part[c];
  }
  for (pk_i64 k = whole; k < depth; k += 64) {
    pk_u8 edge[PK_DOTS * 64] = {0};
    const pk_i64 count = depth - k < 64 ? depth - k : 64;
    for (pk_i64 c = 0; c < rows; c++) memcpy(edge + 64 * c, w + c * row + k, (size_t)count);
    PK_DOTS_CALL(isa)(edge, 64, (count + PK_DOTS_LANES - 1) & -PK_DOTS_LANES, x + k, part);
    for (pk_i64 c = 0; c < rows; c++) total[c] += part[c];
  }
}

/* The product of one row and weights of 8 bits whose rows are one group each, which are read in the order of memory. */
PK_FN void PK_NAME(dots)(const int isa, const PK_NAME(packed_in_t) * in, pk_i64 column, pk_i64 columns, E *result) {
  const pk_packed_t *const s = in->s;
  T x[PK_DOTS_K + 64] __attribute__((aligned(64))), total[PK_GEMM_TILE_N], scale[PK_GEMM_TILE_N];
  memset(total, 0, sizeof total);
  for (pk_i64 k = 0; k < s->k; k += PK_DOTS_K) {
    const pk_i64 depth = s->k - k < PK_DOTS_K ? s->k - k : PK_DOTS_K;
    PK_NAME(numbers)(x, in->a + k, depth);
    memset(x + depth, 0, 64 * sizeof *x);
    for (pk_i64 j = 0; j < columns; j += PK_DOTS) PK_NAME(dots_block)
    (isa, in->weights + (column + j) * s->row_bytes + k, s->row_bytes, columns - j < PK_DOTS ? columns - j : PK_DOTS,
     depth, x, total + j);
  }
  PK_NAME(numbers)(scale, in->scales + column, columns);
  for (pk_i64 j = 0; j < columns; j++) result[column + j] = PK_PUT(total[j] * scale[j]);
}
#undef PK_DOTS
#undef PK_DOTS_LANES
#undef PK_DOTS_K
#undef PK_DOTS_CALL
#else
PK_FN void PK_NAME(dots)(const int isa, const PK_NAME(packed_in_t) * in, pk_i64 column, pk_i64 columns, E *result) {
  (void)isa, (void)in, (void)column, (void)columns, (void)result;
}
#endif

/* ---- more rows ---- */

/* Converts a block of weights to a panel. A piece of a group may begin within a word: what precedes it is kept. */
PK_FN void PK_NAME(panel)(const int isa, const int bits, const PK_NAME(packed_in_t) * in, pk_i64 k0, pk_i64 depth,
                          pk_i64 column, pk_i64 width, PK_NAME(packed_t) * own, T *panel) {
  const pk_packed_t *const s = in->s;
  const pk_i64 fields = 32 / bits, flip = s->form == PK_PACKED_PAIRS;
  T kept[8 * PK_GEMM_N];
  pk_words_turn(in->weights + column * s->row_bytes + k0 * bits / 8, s->row_bytes, width, (depth * bits + 7) / 8,
                own->words);
  for (pk_i64 k = 0, piece, group = k0 / s->group; k < depth; k += piece, group++) {
    const pk_i64 word = k / fields, first = k % fields;
    T *const to = panel + word * fields * PK_GEMM_N;
    const size_t bytes = (size_t)first * PK_GEMM_N * sizeof(T);
    piece = PK_NAME(piece)(s, group, k0, k, depth);
    PK_NAME(read_group)(in, group, column, width, own);
    if (first) memcpy(kept, to, bytes);
    PK_PACKED_CALL(isa, unpack_, bits, own->words + word * PK_GEMM_N, (first + piece + fields - 1) / fields, flip, own,
                   to)
    if (first) memcpy(to, kept, bytes);
  }
}

/* Multiplies a block of `depth` of `rows` rows and the columns of a tile; adds it to the sums, or starts them. */
PK_FN void PK_NAME(packed_block)(const int isa, const PK_NAME(packed_in_t) * in, pk_i64 row, pk_i64 rows, pk_i64 column,
                                 pk_i64 columns, pk_i64 k0, PK_NAME(packed_t) * own) {
  const pk_i64 k = in->s->k, depth = k - k0 < PK_GEMM_K ? k - k0 : PK_GEMM_K;
  for (pk_i64 j = 0; j < columns; j += PK_GEMM_N) {
    const pk_i64 width = columns - j < PK_GEMM_N ? columns - j : PK_GEMM_N;
    if (in->s->form == PK_PACKED_EIGHT)
      PK_NAME(panel)(isa, 8, in, k0, depth, column + j, width, own, own->panels + j * PK_GEMM_K);
    else
      PK_NAME(panel)(isa, 4, in, k0, depth, column + j, width, own, own->panels + j * PK_GEMM_K);
  }
  for (pk_i64 i = 0, step; i < rows; i += step) {
    step = PK_NAME(strip_rows)(isa, rows - i);
    PK_NAME(pack_a)(PK_GEMM_STRIP(isa), in->a + (row + i) * k + k0, k, 1, depth, step, own->rows);
    for (pk_i64 j = 0; j < columns; j += PK_GEMM_N) {
      T *const sums = own->sums + i * PK_GEMM_TILE_N + j;
      PK_NAME(micro)
      (isa, step, PK_GEMM_N, depth, own->rows, 0, own->panels + j * PK_GEMM_K, PK_GEMM_N, own->product);
      for (pk_i64 r = 0; r < step; r++)
        for (int c = 0; c < PK_GEMM_N; c++)
          sums[r * PK_GEMM_TILE_N + c] =
              k0 ? sums[r * PK_GEMM_TILE_N + c] + own->product[r * PK_GEMM_N + c] : own->product[r * PK_GEMM_N + c];
    }
  }
}

PK_KERNEL(PK_NAME(tiles), PACKED_GEMM_ARGS) {
  PK_NAME(packed_t) own;
  const PK_NAME(packed_in_t) in = {&s, a, scales, zeros, weights};
  /* A strip multiplies whole words of a group. */
  const int strips = s.m == 1 && (s.group % 8 == 0 || s.group == s.k);
  const int dots = pk_isa != PK_ISA_BASE && s.m == 1 && s.form == PK_PACKED_EIGHT && s.group >= s.k;
  PK_NAME(begin_groups)(s.form, &own);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 tile = (pk_i64)u / s.tiles.tiles_m, row = ((pk_i64)u - tile * s.tiles.tiles_m) * s.tiles.tile_m;
      const pk_i64 column = tile * s.tiles.tile_n;
      const pk_i64 rows = s.m - row < s.tiles.tile_m ? s.m - row : s.tiles.tile_m;
      const pk_i64 columns = s.n - column < s.tiles.tile_n ? s.n - column : s.tiles.tile_n;
      if (dots) {
        PK_NAME(dots)(pk_isa, &in, column, columns, result);
      } else if (strips && s.form == PK_PACKED_EIGHT) {
        PK_NAME(strip)(pk_isa, 8, &in, column, columns, &own, result);
      } else if (strips) {
        PK_NAME(strip)(pk_isa, 4, &in, column, columns, &own, result);
      } else {
        if (s.k == 0) memset(own.sums, 0, sizeof own.sums);
        for (pk_i64 k = 0; k < s.k; k += PK_GEMM_K)
          PK_NAME(packed_block)(pk_isa, &in, row, rows, column, columns, k, &own);
        for (pk_i64 i = 0; i < rows; i++)
          for (pk_i64 j = 0; j < columns; j++)
            result[(row + i) * s.n + column + j] = PK_PUT(own.sums[i * PK_GEMM_TILE_N + j]);
      }
    }
  }
}
#undef PK_PACKED_CALL
#undef PK_STRIP_K
