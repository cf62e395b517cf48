/* attention_product.h: the matrix products of attention_host.h, over the inner loops of gemm_micro.h. They are separate
 * functions for each instruction set, not inlined, because five products call them. */
#include "gemm_micro.h"

#define PK_HALF (64 / (int)sizeof(T)) /* widths are multiples of it: a vector of AVX-512 */

/* Returns the width of rows in buffers. */
PK_FN pk_i64 PK_NAME(padded)(pk_i64 size) { return (size + PK_HALF - 1) / PK_HALF * PK_HALF; }

/* Returns rows that can be read in complete vectors: the operand's own, or copies in `spare`; *step is the distance
 * between them. */
PK_FN const T *PK_NAME(whole_rows)(const T *rows, pk_i64 count, pk_i64 size, T *spare, pk_i64 *step) {
  const pk_i64 padded = PK_NAME(padded)(size), row = *step;
  if (padded == size) return rows;
  *step = padded;
  for (pk_i64 i = 0; i < count; i++) {
    for (pk_i64 d = 0; d < size; d++) spare[i * padded + d] = rows[i * row + d];
    for (pk_i64 d = size; d < padded; d++) spare[i * padded + d] = PK_C(0.0);
  }
  return spare;
}

/* c = a b, or c += a b with `more`: m x n of depth k. Element (i, k) of a is at i * a_row + k * a_col. */
PK_FN void PK_NAME(product)(const int isa, pk_i64 m, pk_i64 n, pk_i64 depth, const T *a, pk_i64 a_row, pk_i64 a_col,
                            const T *b, pk_i64 b_row, T *c, pk_i64 c_row, const int more) {
#define PK_PRODUCT(bytes, rows, vectors)                                                                  \
  PK_CAT(PK_NAME(micro_), bytes)                                                                          \
  (rows, vectors, more ? PK_MICRO_MORE : PK_MICRO_ONLY, depth, a + i * a_row, a_row, a_col, b + j, b_row, \
   c + i * c_row + j, c_row);                                                                             \
  break;
#define PK_PRODUCT_ROWS(bytes, vectors) \
  switch (rows) {                       \
    case 8:                             \
      PK_PRODUCT(bytes, 8, vectors)     \
    case 4:                             \
      PK_PRODUCT(bytes, 4, vectors)     \
    case 2:                             \
      PK_PRODUCT(bytes, 2, vectors)     \
    default:                            \
      PK_PRODUCT(bytes, 1, vectors)     \
  }
  const pk_i64 most = isa == PK_ISA_AVX512 ? 8 : 4;
  for (pk_i64 i = 0, rows; i < m; i += rows) {
    rows = m - i >= most ? most : m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
    if (isa == PK_ISA_AVX512) {
      pk_i64 j = 0;
      for (; j + PK_GEMM_N <= n; j += PK_GEMM_N) PK_PRODUCT_ROWS(64, 2)
      for (; j < n; j += PK_HALF) PK_PRODUCT_ROWS(64, 1)
    } else if (isa == PK_ISA_AVX2) {
      for (pk_i64 j = 0; j < n; j += PK_HALF) PK_PRODUCT_ROWS(32, 2)
    } else {
      for (pk_i64 j = 0; j < n; j += PK_HALF / 2) PK_PRODUCT_ROWS(16, 2)
    }
  }
#undef PK_PRODUCT_ROWS
#undef PK_PRODUCT
}

/* product_rows: rows of a are contiguous. product_columns: its columns are contiguous, PK_GEMM_N apart. pack: element
 * (k, j) of a panel from k * row + j * col, zeros after the last of `width` columns. */
#define PK_DEFINE_PRODUCTS(suffix, attribute, isa)                                                                    \
  attribute static void PK_CAT(PK_NAME(product_rows), suffix)(pk_i64 m, pk_i64 n, pk_i64 depth, const T *a,           \
                                                              pk_i64 a_row, const T *b, pk_i64 b_row, T *c,           \
                                                              pk_i64 c_row, int more) {                               \
    if (more)                                                                                                         \
      PK_NAME(product)(isa, m, n, depth, a, a_row, 1, b, b_row, c, c_row, 1);                                         \
    else                                                                                                              \
      PK_NAME(product)(isa, m, n, depth, a, a_row, 1, b, b_row, c, c_row, 0);                                         \
  }                                                                                                                   \
  attribute static void PK_CAT(PK_NAME(product_columns), suffix)(                                                     \
      pk_i64 m, pk_i64 n, pk_i64 depth, const T *a, const T *b, pk_i64 b_row, T *c, pk_i64 c_row, int more) {         \
    if (more)                                                                                                         \
      PK_NAME(product)(isa, m, n, depth, a, 1, PK_GEMM_N, b, b_row, c, c_row, 1);                                     \
    else                                                                                                              \
      PK_NAME(product)(isa, m, n, depth, a, 1, PK_GEMM_N, b, b_row, c, c_row, 0);                                     \
  }                                                                                                                   \
  attribute static void PK_CAT(PK_NAME(pack), suffix)(const T *b, pk_i64 row, pk_i64 col, pk_i64 depth, pk_i64 width, \
                                                      T *panel) {                                                     \
    PK_NAME(pack_b)(b, row, col, depth, width, panel);                                                                \
  }
#define PK_APART __attribute__((noinline))
PK_DEFINE_PRODUCTS(_base, PK_APART, PK_ISA_BASE)
#ifdef PK_HAS_CLONES
PK_DEFINE_PRODUCTS(_avx2, PK_APART PK_TARGET_AVX2, PK_ISA_AVX2)
PK_DEFINE_PRODUCTS(_avx512, PK_APART PK_TARGET_AVX512, PK_ISA_AVX512)
/* The function for the instruction set pk_isa, which is a constant. */
#define PK_OF_ISA(name)                                     \
  (pk_isa == PK_ISA_AVX512 ? PK_CAT(PK_NAME(name), _avx512) \
   : pk_isa == PK_ISA_AVX2 ? PK_CAT(PK_NAME(name), _avx2)   \
                           : PK_CAT(PK_NAME(name), _base))
#else
#define PK_OF_ISA(name) ((void)pk_isa, PK_CAT(PK_NAME(name), _base))
#endif
#undef PK_DEFINE_PRODUCTS
#undef PK_APART

/* c = or += the first n columns of m rows of x. */
PK_FN void PK_NAME(add_part)(const T *x, pk_i64 m, pk_i64 n, T *c, pk_i64 c_row, int more) {
  const pk_i64 padded = PK_NAME(padded)(n);
  for (pk_i64 i = 0; i < m; i++)
    for (pk_i64 j = 0; j < n; j++) c[i * c_row + j] = (more ? c[i * c_row + j] : PK_C(0.0)) + x[i * padded + j];
}

/* As product_rows, with rows of a that are PK_GEMM_N apart, and any n: b has rows of padded(n), c does not. */
PK_FN void PK_NAME(add_rows)(const int pk_isa, pk_i64 m, pk_i64 n, pk_i64 depth, const T *a, const T *b, pk_i64 b_row,
                             T *c, pk_i64 c_row, int more, T *spare) {
  const pk_i64 padded = PK_NAME(padded)(n);
  const int whole = padded == n;
  PK_OF_ISA(product_rows)
  (m, padded, depth, a, PK_GEMM_N, b, b_row, whole ? c : spare, whole ? c_row : padded, whole && more);
  if (!whole) PK_NAME(add_part)(spare, m, n, c, c_row, more);
}

/* As product_columns, with the same changes. */
PK_FN void PK_NAME(add_columns)(const int pk_isa, pk_i64 m, pk_i64 n, pk_i64 depth, const T *a, const T *b,
                                pk_i64 b_row, T *c, pk_i64 c_row, int more, T *spare) {
  const pk_i64 padded = PK_NAME(padded)(n);
  const int whole = padded == n;
  PK_OF_ISA(product_columns)(m, padded, depth, a, b, b_row, whole ? c : spare, whole ? c_row : padded, whole && more);
  if (!whole) PK_NAME(add_part)(spare, m, n, c, c_row, more);
}

PK_FN void PK_NAME(clear)(T *rows, pk_i64 row, pk_i64 count, pk_i64 size) {
  for (pk_i64 i = 0; i < count; i++)
    for (pk_i64 d = 0; d < size; d++) rows[i * row + d] = PK_C(0.0);
}
