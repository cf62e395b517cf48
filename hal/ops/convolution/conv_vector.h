/* conv_vector.h: tiles and slope of convolution.pk in the dialect's form for devices with few wide cores. An item
 * computes a unit of work. It unfolds the operand into its own memory, in consecutive panels of PK_CPU_N windows, and
 * multiplies with kernels/pk_tile_vector.h. What it computes for a panel and a position of the window is used for all
 * channels. The order of the sum, by_place, is that of the weight's memory, independent of the images' layout; half
 * precision is converted when it is copied. */
#include "kernels/pk_tile_vector.h"

#define PK_CONV_DEPTH 256 /* rows of a block of tiles */
#if PK_WIDENED            /* the weight of a block as numbers, for all columns of a tile */
#define PK_CONV_WEIGHT PK_CONV_LINES(kept, PK_VECTOR_TILE_M *PK_CONV_DEPTH);
#define PK_CONV_KEEP(from, rows, block) \
  PK_NAME(fetch_rows)(from, depth, rows, block, (T *)kept, (block + PK_CPU_N - 1) / PK_CPU_N * PK_CPU_N);
#define PK_CONV_MULTIPLY(from, rows, block, b, c)                                                     \
  PK_NAME(multiply)                                                                                   \
  (rows, PK_CPU_N, block, (T *)kept, (block + PK_CPU_N - 1) / PK_CPU_N * PK_CPU_N, 1, b, PK_CPU_N, c, \
   PK_VECTOR_TILE_N, 1)
#else
#define PK_CONV_WEIGHT
#define PK_CONV_KEEP(from, rows, block)
#define PK_CONV_MULTIPLY(from, rows, block, b, c) \
  PK_NAME(multiply_global)(rows, PK_CPU_N, block, from, depth, 1, b, PK_CPU_N, c, PK_VECTOR_TILE_N, 1)
#endif
#define PK_CONV_WIDTH 64 /* columns of a block of slope */
#define PK_CONV_LINES(name, n) PK_LOCAL_ARRAY(PK_NAME(v), name, (n) / PK_CPU_N)

#ifndef PK_CONV_PANEL_T_
#define PK_CONV_PANEL_T_
/* The beginnings of the windows of a panel, and the offsets of their positions in the image and in the grid, from a
 * group's first channel on. Those after the last one begin far outside. */
typedef struct {
  pk_i32 z[PK_CPU_N], y[PK_CPU_N], x[PK_CPU_N];
  pk_i64 at[PK_CPU_N], to[PK_CPU_N];
  pk_i64 count;
  pk_i32 at_even, to_even; /* they follow one another there */
} pk_conv_panel_t;

PK_FN void pk_conv_find_panel(const pk_conv_t *s, pk_i64 first, pk_i64 count, pk_conv_panel_t *out) {
  const pk_window_t *const w = &s->window;
  pk_u64 rest = (pk_u64)first;
  pk_i64 x = pk_window_digit(&rest, w->out[2]), y = pk_window_digit(&rest, w->out[1]),
         z = pk_window_digit(&rest, w->out[0]), batch = (pk_i64)rest;
  out->count = count < PK_CPU_N ? count : PK_CPU_N, out->at_even = out->to_even = 1;
  for (pk_i64 e = 0; e < PK_CPU_N; e++) {
    if (e >= count) {
      out->z[e] = -(1 << 30), out->y[e] = out->x[e] = 0;
      out->at[e] = out->at[e - 1] + 1, out->to[e] = out->to[e - 1] + 1;
      continue;
    }
    const pk_i64 top = z * w->step[0] - w->pad[0], row = y * w->step[1] - w->pad[1], left = x * w->step[2] - w->pad[2];
    out->z[e] = (pk_i32)top, out->y[e] = (pk_i32)row, out->x[e] = (pk_i32)left;
    out->at[e] = pk_volume_at(&s->image, batch, 0, top, row) + left * s->image.space[2];
    out->to[e] = pk_volume_at(&s->grid, batch, 0, z, y) + x * s->grid.space[2];
    out->at_even &= out->at[e] == out->at[0] + e, out->to_even &= out->to[e] == out->to[0] + e;
    if (++x < w->out[2]) continue;
    x = 0;
    if (++y < w->out[1]) continue;
    y = 0;
    if (++z < w->out[0]) continue;
    z = 0, batch++;
  }
}
#endif

#ifdef PK_IS_F64
#define PK_CONV_MASK(mask) convert_long16(mask)
#else
#define PK_CONV_MASK(mask) (mask)
#endif

/* The windows of a panel that contain a position of the window in the image, its distance from their beginnings, and
 * the channels whose rows are unfolded. */
#ifndef PK_CONV_SIGHT_T_
#define PK_CONV_SIGHT_T_
typedef struct {
  int16 inside;
  pk_i64 place, first, last;
} pk_conv_sight_t;
#endif

/* Unfolds the channels of a position if they are contiguous in the image and those of a window adjacent: squares of
 * windows and channels are transposed in registers. Row of channel 0 at `to`, the next one `step` after it. */
PK_FN void PK_NAME(unfold_sides)(const pk_conv_panel_t *p, PK_GLOBAL const E *image, const pk_conv_sight_t *sight,
                                 T *to, pk_i64 step) {
  PK_NAME(v) x[PK_CPU_N];
  pk_i32 seen[PK_CPU_N];
  vstore16(sight->inside, 0, seen);
  pk_i64 c = sight->first;
  for (; c + PK_CPU_N <= sight->last; c += PK_CPU_N) {
    for (int e = 0; e < PK_CPU_N; e++)
      x[e] = seen[e] ? PK_NAME(load)(image + p->at[e] + sight->place + c) : (PK_NAME(v))0;
    PK_NAME(turn_square)(x, to + c * step, step);
  }
  for (; c < sight->last; c++)
    for (int e = 0; e < PK_CPU_N; e++)
      to[c * step + e] = seen[e] ? PK_GET(image[p->at[e] + sight->place + c]) : PK_C(0.0);
}

/* Unfolds them if the positions of a channel are contiguous. Elements from `begin` to `end`, counted from `image`, are
 * valid memory. */
PK_FN void PK_NAME(unfold_planes)(const pk_conv_panel_t *p, PK_GLOBAL const E *image, pk_i64 channel, pk_i64 begin,
                                  pk_i64 end, const pk_conv_sight_t *sight, T *to, pk_i64 step) {
  for (pk_i64 c = sight->first; c < sight->last; c++) {
    T *const row = to + c * step;
    PK_GLOBAL const E *const from = image + c * channel + sight->place;
    const pk_i64 at = c * channel + sight->place + p->at[0];
    if (p->at_even && at >= begin && at + PK_CPU_N <= end) {
      vstore16(PK_CONV_MASK(sight->inside) ? PK_NAME(load)(from + p->at[0]) : (PK_NAME(v))0, 0, row);
    } else {
      pk_i32 seen[PK_CPU_N];
      vstore16(sight->inside, 0, seen);
      for (int e = 0; e < PK_CPU_N; e++) row[e] = seen[e] ? PK_GET(from[p->at[e]]) : PK_C(0.0);
    }
  }
}

/* Unfolds rows [k0, k1) of a panel to rows that are `to_row` apart. `image` is a group's first channel. */
PK_FN void PK_NAME(unfold)(const pk_conv_t *s, const pk_conv_panel_t *p, PK_GLOBAL const E *image, pk_i64 begin,
                           pk_i64 end, pk_i64 k0, pk_i64 k1, T *to, pk_i64 to_row) {
  const pk_window_t *const w = &s->window;
  /* row = c * by_channel + q * by_window of channel c and position q */
  const pk_i64 by_channel = s->by_place ? 1 : pk_conv_places(w), by_window = s->by_place ? w->channels : 1;
  pk_i64 q = 0;
  for (pk_i64 kz = 0; kz < w->size[0]; kz++) {
    for (pk_i64 ky = 0; ky < w->size[1]; ky++) {
      for (pk_i64 kx = 0; kx < w->size[2]; kx++, q++) {
        const pk_i64 dz = kz * w->dilation[0], dy = ky * w->dilation[1], dx = kx * w->dilation[2];
        const pk_i64 row = q * by_window, before = k0 > row ? k0 - row : 0, all = k1 - row;
        pk_conv_sight_t sight = {.place = dz * s->image.space[0] + dy * s->image.space[1] + dx * s->image.space[2],
                                 .first = (before + by_channel - 1) / by_channel,
                                 .last = all > 0 ? (all + by_channel - 1) / by_channel : 0};
        sight.last = sight.last < w->channels ? sight.last : w->channels;
        if (sight.first >= sight.last) continue;
        sight.inside = (as_uint16(vload16(0, p->z) + (int)dz) < (uint)w->in[0]) &
                       (as_uint16(vload16(0, p->y) + (int)dy) < (uint)w->in[1]) &
                       (as_uint16(vload16(0, p->x) + (int)dx) < (uint)w->in[2]);
        T *const target = to + (row - k0) * to_row;
        if (s->image.channel == 1)
          PK_NAME(unfold_sides)(p, image, &sight, target, by_channel * to_row);
        else
          PK_NAME(unfold_planes)(p, image, s->image.channel, begin, end, &sight, target, by_channel * to_row);
      }
    }
  }
}

/* Writes a row of sums to the grid. */
PK_FN void PK_NAME(put_row)(const pk_conv_panel_t *p, PK_NAME(v) x, PK_GLOBAL E *grid) {
  if (p->to_even && p->count == PK_CPU_N) {
    PK_NAME(store)(x, grid + p->to[0]);
    return;
  }
  T y[PK_CPU_N];
  vstore16(x, 0, y);
  for (pk_i64 e = 0; e < p->count; e++) grid[p->to[e]] = PK_PUT(y[e]);
}

PK_KERNEL(PK_NAME(tiles), CONV_TILES_ARGS) {
  PK_CONV_LINES(unfolded, PK_CONV_DEPTH * PK_CPU_N);
  PK_CONV_LINES(sums, PK_VECTOR_TILE_M * PK_VECTOR_TILE_N);
  PK_CONV_WEIGHT
  pk_conv_panel_t panels[PK_VECTOR_TILE_N / PK_CPU_N];
  const pk_i64 all_columns = s.batches * pk_conv_windows(&s.window),
               depth = s.window.channels * pk_conv_places(&s.window);
  PK_GROUP(g) {
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_i64 column_tile = (pk_i64)u / s.tiles.tiles_m,
                   row0 = ((pk_i64)u - column_tile * s.tiles.tiles_m) * s.tiles.tile_m;
      const pk_i64 group = column_tile / s.tiles.tiles_n,
                   column0 = (column_tile - group * s.tiles.tiles_n) * s.tiles.tile_n;
      const pk_i64 rows = s.rows - row0 < s.tiles.tile_m ? s.rows - row0 : s.tiles.tile_m;
      const pk_i64 columns = all_columns - column0 < s.tiles.tile_n ? all_columns - column0 : s.tiles.tile_n;
      const pk_i64 channel = group * s.rows + row0; /* of the grid */
      const pk_i64 before = group * s.window.channels * s.image.channel, behind = s.image_elements - before;
      for (pk_i64 j = 0; j < columns; j += PK_CPU_N)
        pk_conv_find_panel(&s, column0 + j, columns - j, panels + j / PK_CPU_N);
      for (pk_i64 i = 0; i < rows; i++) {
        const T start = has_bias ? PK_GET(bias[channel + i]) : PK_C(0.0);
        for (pk_i64 j = 0; j < PK_VECTOR_TILE_N / PK_CPU_N; j++) sums[i * (PK_VECTOR_TILE_N / PK_CPU_N) + j] = start;
      }
      for (pk_i64 k = 0; k < depth; k += PK_CONV_DEPTH) {
        const pk_i64 block = depth - k < PK_CONV_DEPTH ? depth - k : PK_CONV_DEPTH;
        PK_CONV_KEEP(weight + channel * depth + k, rows, block)
        for (pk_i64 j = 0; j < columns; j += PK_CPU_N) {
          PK_NAME(unfold)
          (&s, panels + j / PK_CPU_N, image + before, -before, behind, k, k + block, (T *)unfolded, PK_CPU_N);
          PK_CONV_MULTIPLY(weight + channel * depth + k, rows, block, (T *)unfolded, (T *)sums + j);
        }
      }
      for (pk_i64 i = 0; i < rows; i++)
        for (pk_i64 j = 0; j < columns; j += PK_CPU_N) PK_NAME(put_row)
      (panels + j / PK_CPU_N, sums[(i * PK_VECTOR_TILE_N + j) / PK_CPU_N], grid + (channel + i) * s.grid.channel);
    }
  }
}

/* Packs the columns of a panel of the grid as rows of PK_CPU_N of its channels, `channel` apart. */
PK_FN void PK_NAME(pack_grid)(const pk_conv_panel_t *p, PK_GLOBAL const E *grid, pk_i64 channel, pk_i64 channels,
                              T *to) {
  if (p->to_even && p->count == PK_CPU_N && channels >= PK_CPU_N && channel != 1) {
    PK_NAME(fetch_square)(grid + p->to[0], channel, to, PK_CPU_N);
    return;
  }
  for (pk_i64 j = 0; j < p->count; j++, to += PK_CPU_N) {
    if (channel == 1 && channels >= PK_CPU_N) {
      vstore16(PK_NAME(load)(grid + p->to[j]), 0, to);
      continue;
    }
    for (pk_i64 e = 0; e < PK_CPU_N; e++) to[e] = e < channels ? PK_GET(grid[e * channel + p->to[j]]) : PK_C(0.0);
  }
}

PK_KERNEL(PK_NAME(slope), CONV_SLOPE_ARGS) {
  PK_CONV_LINES(unfolded,
                PK_CONV_VECTOR_ROWS * (PK_CONV_WIDTH + PK_CPU_N)); /* rows that do not share sets of a cache */
  PK_CONV_LINES(packed, PK_CONV_WIDTH * PK_VECTOR_TILE_N);
  PK_CONV_LINES(sums, PK_CONV_VECTOR_ROWS * PK_VECTOR_TILE_N);
  pk_conv_panel_t panel;
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
      const pk_i64 rows = all_rows - row0 < s.tiles.tile_m ? all_rows - row0 : s.tiles.tile_m;
      const pk_i64 width = s.rows - channel0 < s.tiles.tile_n ? s.rows - channel0 : s.tiles.tile_n;
      const pk_i64 channel = group * s.rows + channel0; /* of the grid */
      const pk_i64 before = group * s.window.channels * s.image.channel, behind = s.image_elements - before;
      PK_GLOBAL const E *places = grid + channel * s.grid.channel;
      for (pk_i64 i = 0; i < rows * (PK_VECTOR_TILE_N / PK_CPU_N); i++) sums[i] = 0;
      for (pk_i64 k = begin; k < end; k += PK_CONV_WIDTH) {
        const pk_i64 block = end - k < PK_CONV_WIDTH ? end - k : PK_CONV_WIDTH;
        for (pk_i64 j = 0; j < block; j += PK_CPU_N) {
          pk_conv_find_panel(&s, k + j, block - j, &panel);
          PK_NAME(unfold)
          (&s, &panel, image + before, -before, behind, row0, row0 + rows, (T *)unfolded + j, PK_CONV_WIDTH + PK_CPU_N);
          for (pk_i64 c = 0; c < width; c += PK_CPU_N) PK_NAME(pack_grid)
          (&panel, places + c * s.grid.channel, s.grid.channel, width - c,
           (T *)packed + c * PK_CONV_WIDTH + j * PK_CPU_N);
        }
        for (pk_i64 c = 0; c < width; c += PK_CPU_N) PK_NAME(multiply)
        (rows, PK_CPU_N, block, (T *)unfolded, PK_CONV_WIDTH + PK_CPU_N, 1, (T *)packed + c * PK_CONV_WIDTH, PK_CPU_N,
         (T *)sums + c, PK_VECTOR_TILE_N, 1);
      }
      const pk_i64 to = (index * s.groups * s.rows + channel) * all_rows + row0;
      for (pk_i64 c = 0; c < width; c++)
        for (pk_i64 i = 0; i < rows; i++) {
          PK_CONV_PUT_SLOPE(to + c * all_rows + i, ((T *)sums)[i * PK_VECTOR_TILE_N + c], part < all_columns)
        }
    }
  }
}
#undef PK_CONV_DEPTH
#undef PK_CONV_WIDTH
#undef PK_CONV_LINES
#undef PK_CONV_WEIGHT
#undef PK_CONV_KEEP
#undef PK_CONV_MULTIPLY
#undef PK_CONV_MASK
