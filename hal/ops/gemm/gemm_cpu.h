/* gemm_cpu.h: products of matrices in the dialect's form for devices with few wide cores. An item keeps PK_CPU_M x PK_CPU_N elements of the
 * result in vector registers and takes one row of a panel of b and one element of each of its rows of a per step; there is no local
 * memory and no barrier, which cost such devices dearly. A group takes 8 x 8 such blocks, so that its panels stay in the cache.
 *
 * Operands of half precision, and those that cannot be read 16 columns at a time, are packed before (gemm_pack.h). Every element is
 * summed over k in order. */
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
  const pk_i64 wide = (s.tiles.tiles_n + PK_CPU_SIDE - 1) / PK_CPU_SIDE,
               high = (s.tiles.tiles_m + PK_CPU_SIDE - 1) / PK_CPU_SIDE;
  PK_GROUP(g) {
    PK_EACH(l) {
      const pk_i64 line = (pk_i64)(g / (pk_u64)wide), batch = line / high;
      const pk_i64 tile_m = (line - batch * high) * PK_CPU_SIDE + l % PK_CPU_SIDE;
      const pk_i64 tile_n = ((pk_i64)g - line * wide) * PK_CPU_SIDE + l / PK_CPU_SIDE;
      if (tile_m < s.tiles.tiles_m && tile_n < s.tiles.tiles_n) {
        const pk_i64 i = tile_m * PK_CPU_M, j = tile_n * PK_CPU_N;
        const pk_i64 rows = s.m - i < PK_CPU_M ? s.m - i : PK_CPU_M, columns = s.n - j < PK_CPU_N ? s.n - j : PK_CPU_N;
        PK_GLOBAL const T *block = (PK_GLOBAL const T *)a + batch * s.a_batch + tile_m * s.a_block;
        PK_GLOBAL const T *panel = (PK_GLOBAL const T *)b + batch * s.b_batch + tile_n * s.b_panel;
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
