/* gemm_vector.h: a row vector times a matrix, included by gemm.pk for dtypes that are not converted: result = beta *
 * self + alpha * a @ b with m = 1. A unit of work is a strip of tile_n columns of one matrix. Sums over k run in blocks
 * of PK_GEMM_K, which are added up one after the other, so results depend only on the sizes.
 *
 * Host, b with contiguous columns (b_row == 1, a contiguous too): inner products, four columns at a time. b with
 * contiguous rows: eight vectors of columns stay in registers while k runs. Devices: an item computes a column. */
#ifdef PK_HOST
/* Inner products of a with `columns` (4 or 1) columns that are `stride` apart: two accumulators each. */
#define PK_DEFINE_DOTS(bytes)                                                                                      \
  PK_FN void PK_CAT(PK_NAME(dots_), bytes)(const int columns, pk_i64 depth, const T *a, const T *b, pk_i64 stride, \
                                           T *x) {                                                                 \
    enum { LANES = bytes / (int)sizeof(T) };                                                                       \
    PK_CAT(PK_NAME(v), bytes) y[4][2];                                                                             \
    pk_i64 k = 0;                                                                                                  \
    _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++) y[c][0] = y[c][1] = (PK_CAT(PK_NAME(v), bytes)){0};  \
    for (; k + 2 * LANES <= depth; k += 2 * LANES) {                                                               \
      const PK_CAT(PK_NAME(v), bytes) a0 = *(const PK_CAT(PK_NAME(v), bytes) *)(a + k);                            \
      const PK_CAT(PK_NAME(v), bytes) a1 = *(const PK_CAT(PK_NAME(v), bytes) *)(a + k + LANES);                    \
      _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++) {                                                  \
        y[c][0] += a0 * *(const PK_CAT(PK_NAME(v), bytes) *)(b + c * stride + k);                                  \
        y[c][1] += a1 * *(const PK_CAT(PK_NAME(v), bytes) *)(b + c * stride + k + LANES);                          \
      }                                                                                                            \
    }                                                                                                              \
    _Pragma("GCC unroll 4") for (int c = 0; c < columns; c++) {                                                    \
      const PK_CAT(PK_NAME(v), bytes) both = y[c][0] + y[c][1];                                                    \
      T sum = 0;                                                                                                   \
      for (pk_i64 j = k; j < depth; j++) sum += a[j] * b[c * stride + j];                                          \
      for (int l = 0; l < LANES; l++) sum += both[l];                                                              \
      x[c] += sum;                                                                                                 \
    }                                                                                                              \
  }
PK_DEFINE_DOTS(64)
PK_DEFINE_DOTS(32)
PK_DEFINE_DOTS(16)
#undef PK_DEFINE_DOTS

PK_FN void PK_NAME(dots)(const int isa, const int columns, pk_i64 depth, const T *a, const T *b, pk_i64 stride, T *x) {
  if (isa == PK_ISA_AVX512)
    PK_CAT(PK_NAME(dots_), 64)(columns, depth, a, b, stride, x);
  else if (isa == PK_ISA_AVX2)
    PK_CAT(PK_NAME(dots_), 32)(columns, depth, a, b, stride, x);
  else
    PK_CAT(PK_NAME(dots_), 16)(columns, depth, a, b, stride, x);
}

/* Adds a[k] * row k of b to eight vectors of columns, for `depth` values of k. */
#define PK_DEFINE_ROWS(bytes)                                                                                        \
  PK_FN void PK_CAT(PK_NAME(rows_), bytes)(pk_i64 depth, const T *a, pk_i64 step, const T *b, pk_i64 stride, T *x) { \
    enum { LANES = bytes / (int)sizeof(T) };                                                                         \
    PK_CAT(PK_NAME(v), bytes) y[8];                                                                                  \
    _Pragma("GCC unroll 8") for (int v = 0; v < 8; v++) y[v] = (PK_CAT(PK_NAME(v), bytes)){0};                       \
    for (pk_i64 k = 0; k < depth; k++, b += stride)                                                                  \
      _Pragma("GCC unroll 8") for (int v = 0; v < 8; v++) y[v] +=                                                    \
          a[k * step] * *(const PK_CAT(PK_NAME(v), bytes) *)(b + v * LANES);                                         \
    _Pragma("GCC unroll 8") for (int v = 0; v < 8; v++) * (PK_CAT(PK_NAME(v), bytes) *)(x + v * LANES) += y[v];      \
  }
PK_DEFINE_ROWS(64)
PK_DEFINE_ROWS(32)
PK_DEFINE_ROWS(16)
#undef PK_DEFINE_ROWS

/* The products of a strip of columns, added to x. */
PK_FN void PK_NAME(strip)(const int isa, const pk_gemm_t *s, pk_i64 depth, pk_i64 columns, const T *a, const T *b,
                          T *x) {
  const pk_i64 block = 8 * (isa == PK_ISA_AVX512 ? 64 : isa == PK_ISA_AVX2 ? 32 : 16) / (pk_i64)sizeof(T);
  pk_i64 j = 0;
  if (s->b_row == 1 && s->b_col != 1) {
    for (; j + 4 <= columns; j += 4) PK_NAME(dots)(isa, 4, depth, a, b + j * s->b_col, s->b_col, x + j);
    for (; j < columns; j++) PK_NAME(dots)(isa, 1, depth, a, b + j * s->b_col, s->b_col, x + j);
    return;
  }
  for (; j + block <= columns; j += block) {
    if (isa == PK_ISA_AVX512)
      PK_CAT(PK_NAME(rows_), 64)(depth, a, s->a_col, b + j, s->b_row, x + j);
    else if (isa == PK_ISA_AVX2)
      PK_CAT(PK_NAME(rows_), 32)(depth, a, s->a_col, b + j, s->b_row, x + j);
    else
      PK_CAT(PK_NAME(rows_), 16)(depth, a, s->a_col, b + j, s->b_row, x + j);
  }
  if (j == columns) return;
  for (pk_i64 k = 0; k < depth; k++)
    for (pk_i64 c = j; c < columns; c++) x[c] += a[k * s->a_col] * b[k * s->b_row + c];
}

PK_KERNEL(PK_NAME(vector), GEMM_ARGS) {
  T product[PK_GEMM_TILE_N] __attribute__((aligned(64)));
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 batch = (pk_i64)(u / (pk_u64)s.tiles.tiles_n),
                   column0 = ((pk_i64)u - batch * s.tiles.tiles_n) * s.tiles.tile_n;
      const pk_i64 columns = s.n - column0 < s.tiles.tile_n ? s.n - column0 : s.tiles.tile_n;
      const T *a0 = a + batch * s.a_batch, *b0 = b + batch * s.b_batch + column0 * s.b_col;
      memset(product, 0, sizeof product);
      for (pk_i64 k0 = 0; k0 < s.k; k0 += 16 * PK_GEMM_K) {
        const pk_i64 depth = s.k - k0 < 16 * PK_GEMM_K ? s.k - k0 : 16 * PK_GEMM_K;
        PK_NAME(strip)(pk_isa, &s, depth, columns, a0 + k0 * s.a_col, b0 + k0 * s.b_row, product);
      }
      PK_NAME(store)
      (&s, product, 1, columns, alpha, beta, 1, self + batch * s.self_batch + column0 * s.self_col,
       result + batch * s.result_batch + column0 * s.result_col);
    }
  }
}
#else
PK_KERNEL(PK_NAME(vector), GEMM_ARGS) {
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 batch = (pk_i64)(u / (pk_u64)s.tiles.tiles_n),
                   column0 = ((pk_i64)u - batch * s.tiles.tiles_n) * s.tiles.tile_n;
      const pk_i64 end = s.n - column0 < s.tiles.tile_n ? s.n : column0 + s.tiles.tile_n;
      PK_EACH(l) {
        for (pk_i64 j = column0 + l; j < end; j += PK_LSIZE) {
          T sum = PK_C(0.0);
          for (pk_i64 k = 0; k < s.k; k++)
            sum += a[batch * s.a_batch + k * s.a_col] * b[batch * s.b_batch + k * s.b_row + j * s.b_col];
          T v = alpha * sum;
          if (beta != PK_C(0.0)) v += beta * self[batch * s.self_batch + j * s.self_col];
          result[batch * s.result_batch + j * s.result_col] = v;
        }
      }
    }
  }
}
#endif
