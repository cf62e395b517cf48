/* gemm_cpu.h: products of matrices in the dialect's form for devices with few wide cores. An item keeps PK_CPU_M x
 * PK_CPU_N elements of the result in vector registers; each step reads one row of a panel of b and one element of each
 * of its rows of a. There is no local memory and no barrier, which are slow on such devices. A group computes a tile of
 * such blocks, so that its panels stay in the cache.
 *
 * Operands of half precision, and those that cannot be read 16 columns at a time, are packed first (gemm_pack.h). Every
 * element is summed over k in order. */
#include "kernels/pk_tile_vector.h"

/* Stores a row of a block: result = beta * self + alpha * x, of `columns` elements. */
PK_FN void PK_NAME(put)(const pk_gemm_t *s, PK_NAME(v) x, pk_i64 columns, T alpha, T beta, PK_GLOBAL const E *self,
                        PK_GLOBAL E *result) {
  T y[PK_CPU_N];
#if !PK_WIDENED
  if (columns == PK_CPU_N && s->result_col == 1 && beta == PK_C(0.0)) {
    vstore16(x * alpha, 0, result);
    return;
  }
#endif
  vstore16(x * alpha, 0, y);
  for (pk_i64 j = 0; j < columns; j++)
    result[j * s->result_col] = PK_PUT(beta == PK_C(0.0) ? y[j] : beta * PK_GET(self[j * s->self_col]) + y[j]);
}

#define PK_CPU_ROW(r) PK_GLOBAL const T *a##r = block + (r < rows ? r : rows - 1) * s.a_row;
#define PK_CPU_A(r) a##r[k * s.a_col]
#define PK_CPU_PUT(r) \
  if (r < rows) PK_NAME(put)(&s, x##r, columns, alpha, beta, self0 + r * s.self_row, result0 + r * s.result_row);
PK_KERNEL(PK_NAME(tiles), GEMM_ARGS) {
  PK_GROUP(g) {
    const pk_i64 line = (pk_i64)(g / (pk_u64)s.tiles.tiles_n), batch = line / s.tiles.tiles_m;
    const pk_i64 row0 = (line - batch * s.tiles.tiles_m) * s.tiles.tile_m;
    const pk_i64 column0 = ((pk_i64)g - line * s.tiles.tiles_n) * s.tiles.tile_n;
    const pk_i64 row_end = s.m - row0 < s.tiles.tile_m ? s.m : row0 + s.tiles.tile_m;
    const pk_i64 column_end = s.n - column0 < s.tiles.tile_n ? s.n : column0 + s.tiles.tile_n;
    for (pk_i64 j = column0; j < column_end; j += PK_CPU_N) {
      PK_GLOBAL const T *panel = (PK_GLOBAL const T *)b + batch * s.b_batch + j / PK_CPU_N * s.b_panel;
      const pk_i64 columns = column_end - j < PK_CPU_N ? column_end - j : PK_CPU_N;
      for (pk_i64 i = row0; i < row_end; i += PK_CPU_M) {
        const pk_i64 rows = row_end - i < PK_CPU_M ? row_end - i : PK_CPU_M;
        PK_GLOBAL const T *block = (PK_GLOBAL const T *)a + batch * s.a_batch + i / PK_CPU_M * s.a_block;
        PK_GLOBAL const E *self0 = self + batch * s.self_batch + i * s.self_row + j * s.self_col;
        PK_GLOBAL E *result0 = result + batch * s.result_batch + i * s.result_row + j * s.result_col;
        PK_TILE_ROWS(PK_CPU_ROW)
        PK_TILE_ROWS(PK_TILE_CLEAR)
        PK_TILE_SUMS(s.k, PK_CPU_A, vload16(0, panel + k * s.b_row))
        PK_TILE_ROWS(PK_CPU_PUT)
      }
    }
  }
}
#undef PK_CPU_ROW
#undef PK_CPU_A
#undef PK_CPU_PUT
