/* gemm_micro.h: the inner loops of gemm.pk on the host, included once per instance. They use the compiler's vector
 * extension, which compiles to the instruction set of the entry. v64, v32 and v16 are vectors of so many bytes; T and
 * PK_NAME are the instance's.
 *
 * A block of b is packed into panels of N columns, N = PK_GEMM_N or PK_GEMM_PANEL: element (k, j) of panel p is at
 * p * N * depth + k * N + j, with zeros after the last column. Rows of a are multiplied in strips of PK_GEMM_STRIP. The
 * micro-kernel holds rows x 2 vectors of sums in registers: 8 x 2 with AVX-512 (32 registers), up to 6 x 2 with AVX2,
 * 4 x 2 otherwise (16 registers). Eight sums hide the latency of 4 cycles of a fused multiply-add at two per cycle;
 * with twelve, the processor also reads fewer elements per sum. */
#include "pk_words.h"

#if defined(PK_CHECKED) && !defined(PK_PLAIN_FN)
/* The compiler inserts checks of each access (plugins/fake/sanitize/access.c), except in these functions. */
#define PK_PLAIN_FN static inline __attribute__((always_inline, unused, no_sanitize_address))
#define PK_PLAIN_ENTRY static __attribute__((noinline, unused, no_sanitize_address))
int pk_checked_has(const void *address); /* returns whether it is device memory */
#endif

#define PK_GEMM_M 12 /* maximum number of rows of a strip */
/* Rows of a strip, and columns of a panel of gemm.pk, for an instruction set. AVX2: half a panel would read every other
 * line of the cache, and so use half of its sets. */
#define PK_GEMM_STRIP(isa) ((isa) == PK_ISA_AVX2 ? 12 : 8)
#define PK_GEMM_PANEL(isa) ((isa) == PK_ISA_AVX2 ? PK_GEMM_N / 2 : PK_GEMM_N)
#define PK_GEMM_N (PK_GEMM_BYTES / (int)sizeof(T)) /* columns of a panel */
#define PK_GEMM_TILE_N \
  (512 / (int)sizeof(T)) /* maximum number of columns of a tile: 128 KiB of panels on the stack, half an L2 cache */
#define PK_GEMM_K 256    /* depth of a block */
/* What a micro-kernel does with its sums: stores them, starts from the existing values, adds them to these. */
#define PK_MICRO_ONLY 0
#define PK_MICRO_MORE 1
#define PK_MICRO_ADD 2

#define PK_GEMM_STRIPS 4 /* number of strips of a transposed a that are packed at once */

/* Returns the number of rows of the next strip, of `left` rows. */
PK_FN pk_i64 PK_NAME(strip_rows)(const int isa, pk_i64 left) {
  if (isa == PK_ISA_AVX2) return left < 12 ? left : 12;
  return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

typedef T PK_NAME(v64) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef T PK_NAME(v32) __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
typedef T PK_NAME(v16) __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));

#if PK_WIDENED /* half precision is converted during packing, once for all products that read it */
/* Packs a block of b into panels of PK_GEMM_N columns. */
PK_FN void PK_NAME(pack_b)(const E *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 columns, T *panels) {
  for (pk_i64 j0 = 0; j0 < columns; j0 += PK_GEMM_N) {
    const pk_i64 width = columns - j0 < PK_GEMM_N ? columns - j0 : PK_GEMM_N;
    const E *p = b + j0 * col;
    T *panel = panels + j0 * depth;
    if (col == 1) {
      for (pk_i64 k = 0; k < depth; k++)
        for (pk_i64 j = 0; j < width; j++) panel[k * PK_GEMM_N + j] = PK_GET(p[k * row + j]);
    } else {
      for (pk_i64 j = 0; j < width; j++)
        for (pk_i64 k = 0; k < depth; k++) panel[k * PK_GEMM_N + j] = PK_GET(p[k * row + j * col]);
    }
  }
}

/* Packs `rows` rows of a block of a: element (i, k) to i + k * strip. */
PK_FN void PK_NAME(pack_a)(const int strip, const E *a, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 rows, T *target) {
  for (pk_i64 i = 0; i < rows; i++)
    for (pk_i64 k = 0; k < depth; k++) target[i + k * strip] = PK_GET(a[i * row + k * col]);
}
#else
#define PK_TRANSPOSE (32 / (int)sizeof(T)) /* edge of the squares that are transposed in registers */
/* Interleaves the halves of two vectors. */
#ifndef PK_IS_F64
#define PK_ZIP_LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define PK_ZIP_HIGH(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#define PK_ZIP_ROUNDS 3
#else
#define PK_ZIP_LOW(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define PK_ZIP_HIGH(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)
#define PK_ZIP_ROUNDS 2
#endif

/* target[i * target_stride + j] = source[j * source_stride + i] for a square. */
PK_FN void PK_NAME(transpose)(const T *source, pk_i64 source_stride, T *target, pk_i64 target_stride) {
  PK_NAME(v32) x[PK_TRANSPOSE], y[PK_TRANSPOSE];
#pragma GCC unroll 8
  for (int r = 0; r < PK_TRANSPOSE; r++) x[r] = *(const PK_NAME(v32) *)(source + r * source_stride);
  PK_TURN(x, y, PK_TRANSPOSE, PK_ZIP_ROUNDS, PK_ZIP_LOW, PK_ZIP_HIGH)
#pragma GCC unroll 8
  for (int r = 0; r < PK_TRANSPOSE; r++) *(PK_NAME(v32) *)(target + r * target_stride) = x[r];
}

/* Packs `width` <= n columns whose elements are contiguous along k. */
PK_FN void PK_NAME(pack_columns)(const int n, const T *b, pk_i64 col, pk_i64 depth, pk_i64 width, T *panel) {
  pk_i64 j = 0;
  for (; j + PK_TRANSPOSE <= width; j += PK_TRANSPOSE) {
    pk_i64 k = 0;
    for (; k + PK_TRANSPOSE <= depth; k += PK_TRANSPOSE) PK_NAME(transpose)(b + j * col + k, col, panel + k * n + j, n);
    for (; k < depth; k++)
      for (pk_i64 c = j; c < j + PK_TRANSPOSE; c++) panel[k * n + c] = b[c * col + k];
  }
  for (; j < width; j++)
    for (pk_i64 k = 0; k < depth; k++) panel[k * n + j] = b[j * col + k];
}

/* Packs `width` < n columns whose rows are contiguous, in pieces of constant size: if a has few rows, a loop or a call
 * of memcpy per row is slower than the arithmetic. */
PK_FN void PK_NAME(pack_rows)(const int n, const T *b, pk_i64 row, pk_i64 depth, pk_i64 width, T *panel) {
#define PK_PIECE(size)                                                                         \
  if (width & (size)) {                                                                        \
    for (pk_i64 k = 0; k < depth; k++) memcpy(panel + k * n, b + k * row, (size) * sizeof(T)); \
    b += (size);                                                                               \
    panel += (size);                                                                           \
  }
  PK_PIECE(16) PK_PIECE(8) PK_PIECE(4) PK_PIECE(2) PK_PIECE(1)
#undef PK_PIECE
}

/* The processor does not recognize rows that are pages apart as a stream, so packing prefetches them: so many rows of
 * a, or of b, before they are read. */
#define PK_AHEAD_A 16
#define PK_AHEAD_B 8

/* Packs complete panels whose rows are contiguous, PK_AHEAD_B rows of all panels at a time. */
PK_FN void PK_NAME(pack_panels)(const int n, const T *b, pk_i64 row, pk_i64 depth, pk_i64 columns, T *panels) {
  for (pk_i64 k0 = 0; k0 < depth; k0 += PK_AHEAD_B) {
    const pk_i64 end = depth - k0 < PK_AHEAD_B ? depth : k0 + PK_AHEAD_B;
    for (pk_i64 j = 0; j < columns; j += n)
      for (pk_i64 k = k0; k < end; k++) {
        for (int i = 0; i < n; i += 64 / (int)sizeof(T)) __builtin_prefetch(b + (k + PK_AHEAD_B) * row + j + i);
        memcpy(panels + j * depth + k * n, b + k * row + j, (size_t)n * sizeof(T));
      }
  }
}

/* Packs a block of b into panels of n columns. */
PK_FN void PK_NAME(pack_into)(const int n, const T *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 columns,
                              T *panels) {
  pk_i64 j0 = 0;
  if (col == 1) {
    j0 = columns / n * n;
    PK_NAME(pack_panels)(n, b, row, depth, j0, panels);
  }
  for (; j0 < columns; j0 += n) {
    const pk_i64 width = columns - j0 < n ? columns - j0 : n;
    T *panel = panels + j0 * depth;
    const T *p = b + j0 * col;
    if (width < n) memset(panel, 0, (size_t)(depth * n) * sizeof(T));
    if (col == 1) {
      PK_NAME(pack_rows)(n, p, row, depth, width, panel);
    } else if (row == 1) {
      PK_NAME(pack_columns)(n, p, col, depth, width, panel);
    } else {
      for (pk_i64 k = 0; k < depth; k++)
        for (pk_i64 j = 0; j < width; j++) panel[k * n + j] = p[k * row + j * col];
    }
  }
}

PK_FN void PK_NAME(pack_b)(const T *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 columns, T *panels) {
  PK_NAME(pack_into)(PK_GEMM_N, b, row, col, depth, columns, panels);
}

/* Packs `rows` <= strip rows of a block of a: element (i, k) to i + k * strip. */
PK_FN void PK_NAME(pack_a)(const int strip, const T *a, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 rows, T *target) {
  if (row == 1 && rows == strip) {
    for (pk_i64 k = 0; k < depth; k++) memcpy(target + k * strip, a + k * col, (size_t)strip * sizeof(T));
    return;
  }
  for (pk_i64 k = 0; k < depth; k++)
    for (pk_i64 i = 0; i < rows; i++) target[i + k * strip] = a[i * row + k * col];
}

/* Packs `strips` complete strips of rows that are adjacent in memory, each PK_GEMM_K * strip after the one before. */
PK_FN void PK_NAME(pack_strips)(const int strip, const int strips, const T *a, pk_i64 col, pk_i64 depth, T *target) {
  for (pk_i64 k = 0; k < depth; k++, a += col, target += strip) {
    for (int i = 0; i < strips * strip; i += 64 / (int)sizeof(T)) __builtin_prefetch(a + PK_AHEAD_A * col + i);
    for (int i = 0; i < strips; i++) memcpy(target + i * PK_GEMM_K * strip, a + i * strip, (size_t)strip * sizeof(T));
  }
}

#undef PK_ZIP_LOW
#undef PK_ZIP_HIGH
#undef PK_ZIP_ROUNDS
#undef PK_TRANSPOSE
#endif

/* Sums of `rows` x `vectors` vectors. The existing values of the product are their start (PK_MICRO_MORE), or are added
 * to them (PK_MICRO_ADD). rows, vectors and `mode` are constant when this is inlined. Element (i, k) of a is at i * row
 * + k * col; rows of the panel are `step` apart, those of the product `target`. */
#define PK_DEFINE_MICRO(function, name, bytes)                                                                         \
  function void PK_CAT(PK_NAME(name), bytes)(const int rows, const int vectors, const int mode, pk_i64 depth,          \
                                             const T *a, pk_i64 row, pk_i64 col, const T *panel, pk_i64 step,          \
                                             T *product, pk_i64 target) {                                              \
    enum { LANES = bytes / (int)sizeof(T) };                                                                           \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                                          \
    vector x[8][2];                                                                                                    \
    _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++)   \
        x[i][v] = mode == PK_MICRO_MORE ? *(const vector *)(product + i * target + v * LANES) : (vector){0};           \
    for (pk_i64 k = 0; k < depth; k++, panel += step) {                                                                \
      vector y[2];                                                                                                     \
      _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) y[v] = *(const vector *)(panel + v * LANES);           \
      _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) \
          x[i][v] += a[i * row + k * col] * y[v];                                                                      \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 2") for (int v = 0; v < vectors; v++) { \
      vector *const to = (vector *)(product + i * target + v * LANES);                                                 \
      if (mode == PK_MICRO_ADD) x[i][v] += *to;                                                                        \
      *to = x[i][v];                                                                                                   \
    }                                                                                                                  \
  }
PK_DEFINE_MICRO(PK_FN, micro_, 64)
PK_DEFINE_MICRO(PK_FN, micro_, 32)
PK_DEFINE_MICRO(PK_FN, micro_, 16)
#ifdef PK_CHECKED /* the loops below run without checks, after the ranges of their operands were checked */
PK_DEFINE_MICRO(PK_PLAIN_FN, plain_, 64)
PK_DEFINE_MICRO(PK_PLAIN_FN, plain_, 32)
PK_DEFINE_MICRO(PK_PLAIN_FN, plain_, 16)
#define PK_MICRO_OF(bytes) PK_CAT(PK_NAME(plain_), bytes)
#define PK_MICRO_ENTRY(name) PK_PLAIN_ENTRY void PK_NAME(plain_##name)
#else
#define PK_MICRO_OF(bytes) PK_CAT(PK_NAME(micro_), bytes)
#define PK_MICRO_ENTRY(name) PK_FN void PK_NAME(name)
#endif
#undef PK_DEFINE_MICRO

/* AVX2: the rows of the next micro-kernel, of `left` <= 12 rows. One of few rows takes as long as one of four, so seven
 * rows are four and three. */
#define PK_MICRO_PART(left) ((left) >= 12 ? 6 : (left) > 6 ? ((left) + 1) / 2 : (left))
#define PK_MICRO_PARTS(mode, part, a, row, col, panel, step, product, target)        \
  switch (part) {                                                                    \
    case 6:                                                                          \
      PK_MICRO_OF(32)(6, 2, mode, depth, a, row, col, panel, step, product, target); \
      break;                                                                         \
    case 5:                                                                          \
      PK_MICRO_OF(32)(5, 2, mode, depth, a, row, col, panel, step, product, target); \
      break;                                                                         \
    case 4:                                                                          \
      PK_MICRO_OF(32)(4, 2, mode, depth, a, row, col, panel, step, product, target); \
      break;                                                                         \
    case 3:                                                                          \
      PK_MICRO_OF(32)(3, 2, mode, depth, a, row, col, panel, step, product, target); \
      break;                                                                         \
    case 2:                                                                          \
      PK_MICRO_OF(32)(2, 2, mode, depth, a, row, col, panel, step, product, target); \
      break;                                                                         \
    default:                                                                         \
      PK_MICRO_OF(32)(1, 2, mode, depth, a, row, col, panel, step, product, target); \
  }

/* Computes a product of `rows` x `width` elements for the instruction set of the entry, which is a constant. Rows: up
 * to 12 with AVX2, otherwise 8, 4, 2 or 1. row = 0: a is packed. */
PK_MICRO_ENTRY(micro)
(const int isa, pk_i64 rows, pk_i64 width, pk_i64 depth, const T *a, pk_i64 row, const T *panel, pk_i64 step,
 T *product) {
#define PK_MICRO_ROWS(bytes, r, vectors, column)                                                                       \
  if (row == 0) PK_MICRO_OF(bytes)                                                                                     \
  (r, vectors, PK_MICRO_ONLY, depth, a, 1, PK_GEMM_STRIP(isa), panel + (column), step, product + (column), PK_GEMM_N); \
  else PK_MICRO_OF(bytes)(r, vectors, PK_MICRO_ONLY, depth, a, row, 1, panel + (column), step, product + (column),     \
                          PK_GEMM_N);
#define PK_MICRO(bytes, vectors, column)              \
  switch (rows) {                                     \
    case 8:                                           \
      PK_MICRO_ROWS(bytes, 8, vectors, column) break; \
    case 4:                                           \
      PK_MICRO_ROWS(bytes, 4, vectors, column) break; \
    case 2:                                           \
      PK_MICRO_ROWS(bytes, 2, vectors, column) break; \
    default:                                          \
      PK_MICRO_ROWS(bytes, 1, vectors, column) break; \
  }
  if (isa == PK_ISA_AVX512) {
    if (width * (pk_i64)sizeof(T) > 64) {
      PK_MICRO(64, 2, 0)
    } else {
      PK_MICRO(64, 1, 0)
    }
    return;
  }
  if (isa == PK_ISA_AVX2) {
    for (pk_i64 j = 0; j < width; j += 64 / (int)sizeof(T))
      for (pk_i64 i = 0, part; i < rows; i += part) {
        part = PK_MICRO_PART(rows - i);
        if (row == 0) {
          PK_MICRO_PARTS(PK_MICRO_ONLY, part, a + i, 1, 12, panel + j, step, product + i * PK_GEMM_N + j, PK_GEMM_N)
        } else {
          PK_MICRO_PARTS(PK_MICRO_ONLY, part, a + i * row, row, 1, panel + j, step, product + i * PK_GEMM_N + j,
                         PK_GEMM_N)
        }
      }
    return;
  }
  const pk_i64 all = rows;
  rows = rows == 8 ? 4 : rows; /* 16 registers hold the sums of four rows */
  for (pk_i64 i = 0; i < all; i += rows, a += row ? rows * row : rows, product += rows * PK_GEMM_N)
    for (pk_i64 j = 0; j < width; j += 32 / (int)sizeof(T)) PK_MICRO(16, 2, j)
#undef PK_MICRO
#undef PK_MICRO_ROWS
}

/* Computes a product of a complete strip (AVX2: of any number of its rows) x a panel of PK_GEMM_PANEL(isa) columns
 * directly into a result whose rows are `target` apart: adds to it or overwrites it. Element (i, k) of a is at
 * i * row + k * col; row or col is 1. */
PK_MICRO_ENTRY(micro_full)
(const int isa, pk_i64 rows, pk_i64 depth, const T *a, pk_i64 row, pk_i64 col, const T *panel, pk_i64 step, int add,
 T *result, pk_i64 target) {
#define PK_MICRO_MODE(bytes, r, row, col, i, j)                                                                 \
  if (add) PK_MICRO_OF(bytes)                                                                                   \
  (r, 2, PK_MICRO_ADD, depth, a + (i) * (row), row, col, panel + (j), step, result + (i)*target + (j), target); \
  else PK_MICRO_OF(bytes)(r, 2, PK_MICRO_ONLY, depth, a + (i) * (row), row, col, panel + (j), step,             \
                          result + (i)*target + (j), target);
#define PK_MICRO_FULL(bytes, r)                                            \
  for (pk_i64 i = 0; i < rows; i += (r)) {                                 \
    for (pk_i64 j = 0; j < PK_GEMM_N; j += 2 * (bytes) / (int)sizeof(T)) { \
      if (row == 1 && col == 8) {                                          \
        PK_MICRO_MODE(bytes, r, 1, 8, i, j)                                \
      } else if (row == 1) {                                               \
        PK_MICRO_MODE(bytes, r, 1, col, i, j)                              \
      } else {                                                             \
        PK_MICRO_MODE(bytes, r, row, 1, i, j)                              \
      }                                                                    \
    }                                                                      \
  }
#define PK_MICRO_STRIP(mode)                                                                  \
  if (row == 1) {                                                                             \
    PK_MICRO_PARTS(mode, part, a + i, 1, col, panel, step, result + i * target, target)       \
  } else {                                                                                    \
    PK_MICRO_PARTS(mode, part, a + i * row, row, 1, panel, step, result + i * target, target) \
  }
  if (isa == PK_ISA_AVX512) {
    PK_MICRO_FULL(64, 8)
  } else if (isa == PK_ISA_AVX2) {
    for (pk_i64 i = 0, part; i < rows; i += part) {
      part = PK_MICRO_PART(rows - i);
      if (add) {
        PK_MICRO_STRIP(PK_MICRO_ADD)
      } else {
        PK_MICRO_STRIP(PK_MICRO_ONLY)
      }
    }
  } else {
    PK_MICRO_FULL(16, 4)
  }
#undef PK_MICRO_STRIP
#undef PK_MICRO_FULL
#undef PK_MICRO_MODE
}
#undef PK_MICRO_ENTRY
#undef PK_MICRO_OF

#ifdef PK_CHECKED
/* Checks the operands of a product: element (i, k) of a is at i * row + k * col, and row or col is 1. */
PK_FN void PK_NAME(check_operands)(pk_i64 rows, pk_i64 width, pk_i64 depth, const T *a, pk_i64 row, pk_i64 col,
                                   const T *panel, pk_i64 step) {
  const int along = col == 1;
  if (pk_checked_has(a))
    for (pk_i64 i = 0; i < (along ? rows : depth); i++)
      pk_checked_read(a + i * (along ? row : col), (along ? depth : rows) * (pk_i64)sizeof(T), sizeof(T));
  if (pk_checked_has(panel))
    for (pk_i64 k = 0; k < depth; k++) pk_checked_read(panel + k * step, width * (pk_i64)sizeof(T), sizeof(T));
}

/* The product is not device memory, nor is a packed a (row 0). */
PK_FN void PK_NAME(micro)(const int isa, pk_i64 rows, pk_i64 width, pk_i64 depth, const T *a, pk_i64 row,
                          const T *panel, pk_i64 step, T *product) {
  PK_NAME(check_operands)(rows, width, depth, a, row, 1, panel, step);
  PK_NAME(plain_micro)(isa, rows, width, depth, a, row, panel, step, product);
}

PK_FN void PK_NAME(micro_full)(const int isa, pk_i64 rows, pk_i64 depth, const T *a, pk_i64 row, pk_i64 col,
                               const T *panel, pk_i64 step, int add, T *result, pk_i64 target) {
  PK_NAME(check_operands)(rows, PK_GEMM_N, depth, a, row, col, panel, step);
  for (pk_i64 i = 0; i < rows; i++) {
    if (add) pk_checked_read(result + i * target, PK_GEMM_N * sizeof(T), sizeof(T));
    pk_checked_write(result + i * target, PK_GEMM_N * sizeof(T), sizeof(T));
  }
  PK_NAME(plain_micro_full)(isa, rows, depth, a, row, col, panel, step, add, result, target);
}
#endif
