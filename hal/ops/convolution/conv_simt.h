/* conv_simt.h: tiles and slope of convolution.pk on devices with many threads: a group computes squares of
 * PK_GEMM_SMALL (kernels/gemm_device.h). An item always loads the same column of one operand, so it computes its
 * window, or position, once. Those along the sum are in a table in local memory, which is filled for the block after
 * the next one while that is loaded. */
#include "gemm_device.h"

#define PK_EDGE (PK_GEMM_SMALL / 8)
#define PK_CONV_TABLE PK_LOCAL_ARRAY(pk_conv_spot_t, table, 2 * PK_DEPTH);
/* Fills a half of the table with the spots of `first` and those after it. */
#define PK_CONV_FILL(half, first, last, FIND) \
  if (l < PK_DEPTH && (first) + l < (last)) table[(half)*PK_DEPTH + l] = FIND(&s, (first) + l);
#define PK_CONV_UNFOLDED(own, half, row)                                                                          \
  PK_CONV_SEEN(s, own, table[(half)*PK_DEPTH + (row)]) ? PK_GET(from[own.at + table[(half)*PK_DEPTH + (row)].at]) \
                                                       : PK_C(0.0)

#define PK_LOAD(half, first)                                                                     \
  PK_GEMM_LOAD(PK_EDGE, la, half, first, depth, 1, rows,                                         \
               PK_GET(a[at * s.weight.batch + table[(half)*PK_DEPTH + row].to]))                 \
  PK_GEMM_LOAD(PK_EDGE, lb, half, first, depth, 0, columns, PK_CONV_UNFOLDED(window, half, row)) \
  PK_CONV_FILL(((half) ^ 1), (first) + PK_DEPTH, depth, pk_conv_row)

PK_KERNEL(PK_NAME(tiles), CONV_TILES_ARGS) {
  PK_GEMM_LOCAL(PK_EDGE)
  PK_CONV_TABLE
  PK_LOCAL_ARRAY(pk_i64, places, PK_SIDE(PK_EDGE)); /* of the columns in the grid */
  T x[PK_EDGE * PK_EDGE];                           /* one item on devices: private */
  pk_conv_spot_t window;
  const pk_i64 all_columns = s.batches * pk_conv_windows(&s.window),
               depth = s.window.channels * pk_conv_places(&s.window);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 column_tile = (pk_i64)u / s.tiles.tiles_m,
                   row0 = ((pk_i64)u - column_tile * s.tiles.tiles_m) * s.tiles.tile_m;
      const pk_i64 group = column_tile / s.tiles.tiles_n,
                   column0 = (column_tile - group * s.tiles.tiles_n) * s.tiles.tile_n;
      const pk_i64 rows = s.rows - row0, columns = all_columns - column0; /* that are left */
      const pk_i64 channel0 = group * s.rows + row0;                      /* of the grid */
      PK_GLOBAL const E *a = weight + channel0 * s.weight.batch,
                        *from = image + group * s.window.channels * s.image.channel;
      PK_EACH(l) {
        const pk_i64 column = l % PK_SIDE(PK_EDGE);
        window = pk_conv_window(&s, column < columns ? column0 + column : column0);
        if (l < PK_SIDE(PK_EDGE)) places[l] = window.to;
        PK_CONV_FILL(0, 0, depth, pk_conv_row)
      }
      PK_SYNC();
      PK_GEMM_SUMS(PK_EDGE, 0, depth, PK_LOAD)
      PK_GEMM_PUT(PK_EDGE, rows, columns, {
        grid[(channel0 + i) * s.grid.channel + places[j]] =
            PK_PUT(x[e] + (has_bias ? PK_GET(bias[channel0 + i]) : PK_C(0.0)));
      })
      PK_SYNC();
    }
  }
}
#undef PK_LOAD

#define PK_LOAD(half, first)                                                               \
  PK_GEMM_LOAD(PK_EDGE, la, half, first, end, 0, rows, PK_CONV_UNFOLDED(place, half, row)) \
  PK_GEMM_LOAD(PK_EDGE, lb, half, first, end, 1, channels,                                 \
               PK_GET(places[at * s.grid.channel + table[(half)*PK_DEPTH + row].to]))      \
  PK_CONV_FILL(((half) ^ 1), (first) + PK_DEPTH, end, pk_conv_window)

PK_KERNEL(PK_NAME(slope), CONV_SLOPE_ARGS) {
  PK_GEMM_LOCAL(PK_EDGE)
  PK_CONV_TABLE
  T x[PK_EDGE * PK_EDGE]; /* one item on devices: private */
  pk_conv_spot_t place;
  const pk_i64 all_columns = s.batches * pk_conv_windows(&s.window),
               all_rows = s.window.channels * pk_conv_places(&s.window);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 channel_tile = (pk_i64)u / s.tiles.tiles_m,
                   row0 = ((pk_i64)u - channel_tile * s.tiles.tiles_m) * s.tiles.tile_m;
      const pk_i64 group_tile = channel_tile / s.tiles.tiles_n,
                   channel0 = (channel_tile - group_tile * s.tiles.tiles_n) * s.tiles.tile_n;
      const pk_i64 index = group_tile / s.groups, group = group_tile - index * s.groups, begin = index * part;
      const pk_i64 end = all_columns - begin < part ? all_columns : begin + part;
      const pk_i64 rows = all_rows - row0, channels = s.rows - channel0; /* that are left */
      PK_GLOBAL const E *from = image + group * s.window.channels * s.image.channel;
      PK_GLOBAL const E *places = grid + (group * s.rows + channel0) * s.grid.channel;
      const pk_i64 to = ((index * s.groups + group) * s.rows + channel0) * all_rows + row0;
      PK_EACH(l) {
        const pk_i64 row = l % PK_SIDE(PK_EDGE);
        place = pk_conv_row(&s, row < rows ? row0 + row : row0);
        PK_CONV_FILL(0, begin, end, pk_conv_window)
      }
      PK_SYNC();
      PK_GEMM_SUMS(PK_EDGE, begin, end, PK_LOAD)
      PK_GEMM_PUT(PK_EDGE, rows, channels, {PK_CONV_PUT_SLOPE(to + j * all_rows + i, x[e], part < all_columns)})
      PK_SYNC();
    }
  }
}
#undef PK_LOAD
#undef PK_EDGE
#undef PK_CONV_TABLE
#undef PK_CONV_FILL
#undef PK_CONV_UNFOLDED
#include "gemm_device_end.h"
