/* pk_tile_vector.h: the tile engine for devices with few wide cores (PK_CPU_VECTOR): products of matrices, with a tile
 * of PK_CPU_M x PK_CPU_N elements in vector registers, one row each. Included once per instance. */
typedef PK_CAT(pk_vector_, PK_TOKEN) PK_NAME(v);

/* Load and store PK_CPU_N elements in memory, as numbers. Half precision uses a loop that fills vectors, because its
 * conversions have no vector form. */
#if PK_WIDENED
PK_FN PK_NAME(v) PK_NAME(load)(PK_GLOBAL const E *from) {
  T x[PK_CPU_N];
  PK_VECTOR_LOOP(e, PK_CPU_N) { x[e] = PK_GET(from[e]); }
  return vload16(0, x);
}
PK_FN void PK_NAME(store)(PK_NAME(v) x, PK_GLOBAL E *to) {
  T y[PK_CPU_N];
  vstore16(x, 0, y);
  PK_VECTOR_LOOP(e, PK_CPU_N) { to[e] = PK_PUT(y[e]); }
}
#else
PK_FN PK_NAME(v) PK_NAME(load)(PK_GLOBAL const E *from) { return vload16(0, from); }
PK_FN void PK_NAME(store)(PK_NAME(v) x, PK_GLOBAL E *to) { vstore16(x, 0, to); }
#endif

/* The rows of a tile, x0 to x7. */
#define PK_TILE_ROWS(ROW) ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)
#define PK_TILE_CLEAR(r) PK_NAME(v) x##r = 0;
/* Adds the products of row k of b, PK_CPU_N elements, and element (r, k) of a to each row. */
#define PK_TILE_SUMS(DEPTH, A, B)                                   \
  for (pk_i64 k = 0; k < (DEPTH); k++) {                            \
    const PK_NAME(v) y = (B);                                       \
    x0 += A(0) * y, x1 += A(1) * y, x2 += A(2) * y, x3 += A(3) * y; \
    x4 += A(4) * y, x5 += A(5) * y, x6 += A(6) * y, x7 += A(7) * y; \
  }

/* multiply: c = a b, or c += a b with `more`, in an item's own memory; multiply_global: with an a in device memory. m x
 * n of depth k, n a multiple of PK_CPU_N; c has a multiple of PK_CPU_M rows. Element (i, k) of a is at i * a_row + k *
 * a_col; rows of b and c are contiguous. */
#define PK_TILE_A(r) a##r[k * a_col]
#define PK_TILE_FIRST(r) a##r = a + (i + r < m ? i + r : m - 1) * a_row
#define PK_TILE_START(r) PK_NAME(v) x##r = more ? vload16(0, to + (r)*c_row) : (PK_NAME(v))0;
#define PK_TILE_STORE(r) vstore16(x##r, 0, to + (r)*c_row);
#define PK_DEFINE_MULTIPLY(name, SPACE)                                                                              \
  PK_FN void name(pk_i64 m, pk_i64 n, pk_i64 depth, SPACE const T *a, pk_i64 a_row, pk_i64 a_col, const T *b,        \
                  pk_i64 b_row, T *c, pk_i64 c_row, int more) {                                                      \
    for (pk_i64 j = 0; j < n; j += PK_CPU_N) {                                                                       \
      for (pk_i64 i = 0; i < m; i += PK_CPU_M) {                                                                     \
        SPACE const T *PK_TILE_FIRST(0), *PK_TILE_FIRST(1), *PK_TILE_FIRST(2), *PK_TILE_FIRST(3), *PK_TILE_FIRST(4), \
            *PK_TILE_FIRST(5), *PK_TILE_FIRST(6), *PK_TILE_FIRST(7);                                                 \
        T *const to = c + i * c_row + j;                                                                             \
        PK_TILE_ROWS(PK_TILE_START)                                                                                  \
        PK_TILE_SUMS(depth, PK_TILE_A, vload16(0, b + k * b_row + j))                                                \
        PK_TILE_ROWS(PK_TILE_STORE)                                                                                  \
      }                                                                                                              \
    }                                                                                                                \
  }
PK_DEFINE_MULTIPLY(PK_NAME(multiply), __private)
PK_DEFINE_MULTIPLY(PK_NAME(multiply_global), PK_GLOBAL)
#undef PK_DEFINE_MULTIPLY
#undef PK_TILE_A
#undef PK_TILE_FIRST
#undef PK_TILE_START
#undef PK_TILE_STORE

/* Transposes a square of PK_CPU_N x PK_CPU_N elements: to[d * to_row + i] = x[i][d]. Each round interleaves row r with
 * row r + PK_CPU_N / 2, a perfect shuffle of the bits of an element's position. */
#define PK_ZIP(x, y, h)                                                                                                \
  (PK_NAME(v))(x.h.s0, y.h.s0, x.h.s1, y.h.s1, x.h.s2, y.h.s2, x.h.s3, y.h.s3, x.h.s4, y.h.s4, x.h.s5, y.h.s5, x.h.s6, \
               y.h.s6, x.h.s7, y.h.s7)
PK_FN void PK_NAME(turn_square)(PK_NAME(v) * x, T *to, pk_i64 to_row) {
  PK_NAME(v) y[PK_CPU_N];
#pragma unroll
  for (int round = 0; round < 4; round++) {
#pragma unroll
    for (int r = 0; r < PK_CPU_N / 2; r++) {
      y[2 * r] = PK_ZIP(x[r], x[r + PK_CPU_N / 2], lo);
      y[2 * r + 1] = PK_ZIP(x[r], x[r + PK_CPU_N / 2], hi);
    }
#pragma unroll
    for (int r = 0; r < PK_CPU_N; r++) x[r] = y[r];
  }
#pragma unroll
  for (int r = 0; r < PK_CPU_N; r++) vstore16(x[r], 0, to + r * to_row);
}
/* Transposes rows in memory that are `row` apart. */
PK_FN void PK_NAME(fetch_square)(PK_GLOBAL const E *from, pk_i64 row, T *to, pk_i64 to_row) {
  PK_NAME(v) x[PK_CPU_N];
#pragma unroll
  for (int r = 0; r < PK_CPU_N; r++) x[r] = PK_NAME(load)(from + r * row);
  PK_NAME(turn_square)(x, to, to_row);
}
#undef PK_ZIP

/* Copies `count` rows of `size` elements to rows of `columns`, a multiple of PK_CPU_N, padded with zeros. */
PK_FN void PK_NAME(fetch_rows)(PK_GLOBAL const E *from, pk_i64 row, pk_i64 count, pk_i64 size, T *to, pk_i64 columns) {
  for (pk_i64 i = 0; i < count; i++, from += row, to += columns) {
    pk_i64 d = 0;
    for (; d + PK_CPU_N <= size; d += PK_CPU_N) vstore16(PK_NAME(load)(from + d), 0, to + d);
    for (; d < size; d++) to[d] = PK_GET(from[d]);
    for (; d < columns; d++) to[d] = PK_C(0.0);
  }
}

/* Copies them transposed, times `factor`: element d of row i goes to d * columns + i. */
PK_FN void PK_NAME(fetch_columns)(PK_GLOBAL const E *from, pk_i64 row, pk_i64 count, pk_i64 size, T factor, T *to,
                                  pk_i64 columns) {
  for (pk_i64 d = 0; d < size; d++, to += columns) {
    for (pk_i64 i = 0; i < count; i++) to[i] = PK_GET(from[i * row + d]) * factor;
    for (pk_i64 i = count; i < columns; i++) to[i] = PK_C(0.0);
  }
}
