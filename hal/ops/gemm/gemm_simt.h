/* gemm_simt.h: gemm.pk on devices with many threads: a group computes a square of the result, of PK_GEMM_SMALL or, if
 * there are enough of these, PK_GEMM_LARGE rows and columns (kernels/gemm_device.h). If there are too few small
 * squares, the launcher divides the sum along k into `parts`, whose results it adds up: a unit of work is a square of a
 * part of a matrix. */
#include "gemm_device.h"

#define PK_LOAD_A(half, first) \
  PK_GEMM_LOAD(PK_EDGE, la, half, first, k_end, s.a_col == 1, rows, PK_GET(a0[at * s.a_row + k * s.a_col]))
#define PK_LOAD_B(half, first) \
  PK_GEMM_LOAD(PK_EDGE, lb, half, first, k_end, s.b_row == 1, columns, PK_GET(b0[k * s.b_row + at * s.b_col]))
#define PK_LOAD(half, first) PK_LOAD_A(half, first) PK_LOAD_B(half, first)
/* Parts are in the computing type. */
#if PK_WIDENED
#define PK_STORE(ELEMENT, PLACE)                                                                                 \
  if (s.parts > 1)                                                                                               \
    ((PK_GLOBAL T *)result)[matrix * s.result_batch + row0 * s.result_row + column0 * s.result_col + PLACE] = v; \
  else                                                                                                           \
    ELEMENT = PK_PUT(v);
#else
#define PK_STORE(ELEMENT, PLACE) ELEMENT = PK_PUT(v);
#endif
#define PK_GEMM_SQUARES(EDGE)                                                                                 \
  PK_GROUP(g) {                                                                                               \
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;                            \
    for (pk_u64 u = g * per_group; u < last; u++) {                                                           \
      const pk_i64 column_tile = (pk_i64)u / s.tiles.tiles_m,                                                 \
                   row0 = ((pk_i64)u - column_tile * s.tiles.tiles_m) * PK_SIDE(EDGE);                        \
      const pk_i64 matrix = column_tile / s.tiles.tiles_n,                                                    \
                   column0 = (column_tile - matrix * s.tiles.tiles_n) * PK_SIDE(EDGE);                        \
      const pk_i64 batch = matrix / s.parts, part = matrix - batch * s.parts, k_begin = part * s.part;        \
      const pk_i64 k_end = s.k - k_begin < s.part ? s.k : k_begin + s.part;                                   \
      const pk_i64 rows = s.m - row0, columns = s.n - column0; /* remaining */                                \
      PK_GLOBAL const E *a0 = a + batch * s.a_batch + row0 * s.a_row;                                         \
      PK_GLOBAL const E *b0 = b + batch * s.b_batch + column0 * s.b_col;                                      \
      PK_GLOBAL const E *self0 = self + batch * s.self_batch + row0 * s.self_row + column0 * s.self_col;      \
      PK_GLOBAL E *result0 = result + matrix * s.result_batch + row0 * s.result_row + column0 * s.result_col; \
      PK_GEMM_SUMS(EDGE, k_begin, k_end, PK_LOAD)                                                             \
      PK_GEMM_PUT(EDGE, rows, columns, {                                                                      \
        T v = alpha * x[e];                                                                                   \
        if (beta != PK_C(0.0) && part == 0) v += beta * PK_GET(self0[i * s.self_row + j * s.self_col]);       \
        PK_STORE(result0[i * s.result_row + j * s.result_col], i *s.result_row + j * s.result_col)            \
      })                                                                                                      \
      PK_SYNC();                                                                                              \
    }                                                                                                         \
  }

#define PK_EDGE (PK_GEMM_SMALL / 8)
PK_KERNEL(PK_NAME(tiles), GEMM_ARGS) {
  PK_GEMM_LOCAL(PK_EDGE)
  T x[PK_EDGE * PK_EDGE]; /* one item on devices: private */
  PK_GEMM_SQUARES(PK_EDGE)
}
#undef PK_EDGE
#define PK_EDGE (PK_GEMM_LARGE / 8)
PK_KERNEL(PK_NAME(large), GEMM_ARGS) {
  PK_GEMM_LOCAL(PK_EDGE)
  T x[PK_EDGE * PK_EDGE]; /* one item on devices: private */
  PK_GEMM_SQUARES(PK_EDGE)
}
#undef PK_EDGE
#undef PK_LOAD
#undef PK_LOAD_A
#undef PK_LOAD_B
#undef PK_GEMM_SQUARES
#undef PK_STORE
#include "gemm_device_end.h"
