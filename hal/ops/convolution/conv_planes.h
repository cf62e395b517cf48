/* conv_planes.h: convolutions with one or two products per position, mostly depthwise ones, in which a matrix product
 * has nothing to reuse. Included once per instance; T, PK_NAME and pk_conv_t are the instance's.
 *   planes        computes the result of `tiles`. An item computes a band of one plane of the grid
 *   planes_slope  computes the result of `slope`: an item sums the positions of one window over a part of the batches
 *
 * Host: the positions of the image that a band reads are copied, padded with zeros, to one plane per phase (the
 * remainder of a position by the step), so that every position of the window reads a whole band at one distance, in
 * vectors. */

/* Adjacent windows of a plane of the grid: the band from (y, x) on. It reads `high` x `wide` positions of a phase. */
#ifndef PK_CONV_BAND_T_
#define PK_CONV_BAND_T_
typedef struct {
  pk_i64 z, y, x, height, width, high, wide;
} pk_conv_band_t;

/* Returns the distance from the first position of a window to the last; a window may have no positions. */
PK_FN pk_i64 pk_conv_reach(const pk_window_t *w, int d) {
  return w->size[d] > 1 ? (w->size[d] - 1) * w->dilation[d] : 0;
}

/* Returns the phases of a dimension that positions of the window read. */
PK_FN pk_i64 pk_conv_phases(const pk_window_t *w, int d) {
  const pk_i64 reach = pk_conv_reach(w, d);
  return reach < w->step[d] ? reach + 1 : w->step[d];
}

/* Returns band `*rest` of a plane; *rest becomes the number of the plane. */
PK_FN pk_conv_band_t pk_conv_band(const pk_conv_t *s, pk_u64 *rest) {
  const pk_window_t *const w = &s->window;
  pk_conv_band_t b;
  b.x = pk_window_digit(rest, s->tiles.tiles_n) * s->tiles.tile_n;
  b.y = pk_window_digit(rest, s->tiles.tiles_m) * s->tiles.tile_m;
  b.z = pk_window_digit(rest, w->out[0]);
  b.width = w->out[2] - b.x < s->tiles.tile_n ? w->out[2] - b.x : s->tiles.tile_n;
  b.height = w->out[1] - b.y < s->tiles.tile_m ? w->out[1] - b.y : s->tiles.tile_m;
  b.wide = b.width + pk_window_down(pk_conv_reach(w, 2), w->step[2]);
  b.high = b.height + pk_window_down(pk_conv_reach(w, 1), w->step[1]);
  return b;
}
#endif

#ifdef PK_HOST
#define PK_CONV_LANES (64 / (int)sizeof(T))
#ifdef PK_IS_F64
#define PK_BITS pk_i64
#else
#define PK_BITS pk_i32
#endif
typedef PK_BITS PK_NAME(bits64) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef PK_BITS PK_NAME(bits32) __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
typedef PK_BITS PK_NAME(bits16) __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));
typedef PK_BITS PK_NAME(bit);
#undef PK_BITS

/* Copies `rows` rows of n elements in pieces of constant size, the last of which may overlap the one before: a call of
 * memcpy, or a choice of sizes for each row, takes longer than a row of a small image. */
PK_FN void PK_NAME(copy_rows)(T *to, pk_i64 to_row, const T *from, pk_i64 from_row, pk_i64 rows, pk_i64 n) {
#define PK_COPY(size, at) memcpy(to + (at), from + (at), (size) * sizeof(T))
#define PK_PIECES(size)                                                 \
  if (n >= (size)) {                                                    \
    for (pk_i64 y = 0; y < rows; y++, to += to_row, from += from_row) { \
      for (pk_i64 i = 0; i < n - (size); i += (size)) PK_COPY(size, i); \
      PK_COPY(size, n - (size));                                        \
    }                                                                   \
    return;                                                             \
  }
#define PK_TWO_PIECES(size)                                             \
  if (n >= (size)) {                                                    \
    for (pk_i64 y = 0; y < rows; y++, to += to_row, from += from_row) { \
      PK_COPY(size, 0);                                                 \
      PK_COPY(size, n - (size));                                        \
    }                                                                   \
    return;                                                             \
  }
  PK_PIECES(16) PK_TWO_PIECES(8) PK_TWO_PIECES(4) PK_TWO_PIECES(2) PK_TWO_PIECES(1)
#undef PK_TWO_PIECES
#undef PK_PIECES
#undef PK_COPY
}

/* Returns the numbers in [0, count) of positions first + i * step that are in [0, extent). */
PK_FN void PK_NAME(inside)(pk_i64 first, pk_i64 step, pk_i64 extent, pk_i64 count, pk_i64 *begin, pk_i64 *end) {
  pk_i64 from = first < 0 ? -first : 0, to = first < extent ? extent - first : 0;
  if (step != 1) from = pk_window_up(from, step), to = pk_window_up(to, step);
  *end = to < count ? to : count;
  *begin = from < *end ? from : *end;
}

/* Copies phase (py, px) of the plane at `image`; its elements outside of the image are zeros already. */
PK_FN void PK_NAME(fill_phase)(const pk_conv_t *s, const T *image, const pk_conv_band_t *b, pk_i64 py, pk_i64 px,
                               T *phase) {
  const pk_window_t *const w = &s->window;
  const pk_i64 step = w->step[2], left = b->x * step - w->pad[2] + px; /* the position of column 0 */
  const pk_i64 top = b->y * w->step[1] - w->pad[1] + py;
  pk_i64 x0, x1, y0, y1;
  PK_NAME(inside)(left, step, w->in[2], b->wide, &x0, &x1);
  PK_NAME(inside)(top, w->step[1], w->in[1], b->high, &y0, &y1);
  const pk_i64 row = w->step[1] * s->image.space[1];
  const T *from = image + top * s->image.space[1] + y0 * row + left;
  phase += y0 * b->wide;
  if (step == 1) {
    PK_NAME(copy_rows)(phase + x0, b->wide, from + x0, row, y1 - y0, x1 - x0);
    return;
  }
  for (pk_i64 y = y0; y < y1; y++, phase += b->wide, from += row)
    for (pk_i64 x = x0; x < x1; x++) phase[x] = from[x * step];
}

/* Copies the phases that positions of the window read, one after the other. */
PK_FN void PK_NAME(fill_phases)(const pk_conv_t *s, const T *image, const pk_conv_band_t *b, T *phases) {
  const pk_i64 down = pk_conv_phases(&s->window, 1), right = pk_conv_phases(&s->window, 2);
  for (pk_i64 py = 0; py < down; py++)
    for (pk_i64 px = 0; px < right; px++)
      PK_NAME(fill_phase)(s, image, b, py, px, phases + (py * right + px) * b->high * b->wide);
}

/* Prepares a band: clears the phases, and computes the offset in them of each position (ky, kx) of the window over
 * position 0 of the band. Bands of the same position and size share both. */
PK_FN void PK_NAME(begin_band)(const pk_window_t *w, const pk_conv_band_t *b, T *cleared, pk_i64 *places) {
  const pk_i64 phases = pk_conv_phases(w, 2);
  memset(cleared, 0, (size_t)(pk_conv_phases(w, 1) * phases * b->high * b->wide) * sizeof(T));
  for (pk_i64 ky = 0; ky < w->size[1]; ky++) {
    const pk_i64 y = ky * w->dilation[1], down = pk_window_down(y, w->step[1]), py = y - down * w->step[1];
    for (pk_i64 kx = 0; kx < w->size[2]; kx++) {
      const pk_i64 x = kx * w->dilation[2], right = pk_window_down(x, w->step[2]), px = x - right * w->step[2];
      *places++ = ((py * phases + px) * b->high + down) * b->wide + right;
    }
  }
}

/* Adds the contributions of `count` positions of the window to `n` elements of `sums`, which are `start` if that is not
 * NULL, and to those that pad the last block of `vectors` vectors. */
#define PK_DEFINE_PLACES(bytes, vectors)                                                                               \
  PK_FN void PK_CAT(PK_NAME(add_places_), bytes)(const T *phases, const pk_i64 *places, pk_i64 count, const T *weight, \
                                                 pk_i64 n, const T *start, T *sums) {                                  \
    enum { LANES = bytes / (int)sizeof(T) };                                                                           \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                                          \
    for (pk_i64 i = 0; i < n; i += vectors * LANES) {                                                                  \
      vector x[vectors];                                                                                               \
      _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) x[v] =                                                 \
          start ? (vector){0} + *start : (vector){0} + *(const vector *)(sums + i + v * LANES);                        \
      for (pk_i64 k = 0; k < count; k++) {                                                                             \
        const T *const p = phases + places[k] + i;                                                                     \
        _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) x[v] +=                                              \
            weight[k] * *(const vector *)(p + v * LANES);                                                              \
      }                                                                                                                \
      _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) * (vector *)(sums + i + v * LANES) = x[v];             \
    }                                                                                                                  \
  }
PK_DEFINE_PLACES(64, 4)
PK_DEFINE_PLACES(32, 8)
PK_DEFINE_PLACES(16, 8)
#undef PK_DEFINE_PLACES

PK_FN void PK_NAME(add_places)(const int isa, const T *phases, const pk_i64 *places, pk_i64 count, const T *weight,
                               pk_i64 n, const T *start, T *sums) {
  if (isa == PK_ISA_AVX512)
    PK_CAT(PK_NAME(add_places_), 64)(phases, places, count, weight, n, start, sums);
  else if (isa == PK_ISA_AVX2)
    PK_CAT(PK_NAME(add_places_), 32)(phases, places, count, weight, n, start, sums);
  else
    PK_CAT(PK_NAME(add_places_), 16)(phases, places, count, weight, n, start, sums);
}

PK_KERNEL(PK_NAME(planes), CONV_PLANES_ARGS) {
  T phases[PK_CONV_ROOM + 4 * PK_CONV_LANES], sums[PK_CONV_ROOM + 4 * PK_CONV_LANES];
  pk_i64 places[PK_CONV_PLACES];
  const pk_window_t *const w = &s.window;
  const pk_i64 in_plane = w->size[1] * w->size[2], step = s.grid.space[2];
  const int alike = s.tiles.tiles_m * s.tiles.tiles_n == 1; /* all bands are */
  int begun = 0;
  PK_ITEM(r, n) {
    pk_u64 rest = r;
    const pk_conv_band_t b = pk_conv_band(&s, &rest);
    const pk_i64 channel = pk_window_digit(&rest, s.groups * s.rows), batch = (pk_i64)rest;
    const pk_i64 first = (s.rows == 1 ? channel : channel / s.rows) * w->channels; /* of the image */
    const pk_i64 end = (b.height - 1) * b.wide + b.width; /* rows of the sums are as wide as those of a phase */
    const T bias_of = has_bias ? bias[channel] : 0, *start = &bias_of;
    if (!begun) PK_NAME(begin_band)(w, &b, phases, places);
    begun = alike;
    for (pk_i64 c = 0; c < w->channels; c++) {
      for (pk_i64 kz = 0; kz < w->size[0]; kz++) {
        const pk_i64 z = b.z * w->step[0] - w->pad[0] + kz * w->dilation[0];
        if (z < 0 || z >= w->in[0]) continue;
        PK_NAME(fill_phases)(&s, image + pk_volume_at(&s.image, batch, first + c, z, 0), &b, phases);
        PK_NAME(add_places)
        (pk_isa, phases, places, in_plane, weight + ((channel * w->channels + c) * w->size[0] + kz) * in_plane, end,
         start, sums);
        start = NULL;
      }
    }
    if (start) /* a window that has no position in the image */
      for (pk_i64 i = 0; i < end; i++) sums[i] = *start;
    T *to = grid + pk_volume_at(&s.grid, batch, channel, b.z, b.y) + b.x * step;
    if (step == 1) {
      PK_NAME(copy_rows)(to, s.grid.space[1], sums, b.wide, b.height, b.width);
      continue;
    }
    for (pk_i64 y = 0; y < b.height; y++, to += s.grid.space[1])
      for (pk_i64 x = 0; x < b.width; x++) to[x * step] = sums[y * b.wide + x];
  }
}

/* Copies a band of the grid, with rows as wide as those of a phase; the elements between them are zeros already. */
PK_FN void PK_NAME(fill_band)(const pk_conv_t *s, const T *grid, const pk_conv_band_t *b, T *band) {
  const pk_i64 step = s->grid.space[2];
  if (step == 1) {
    PK_NAME(copy_rows)(band, b->wide, grid, s->grid.space[1], b->height, b->width);
    return;
  }
  for (pk_i64 y = 0; y < b->height; y++, band += b->wide, grid += s->grid.space[1])
    for (pk_i64 x = 0; x < b->width; x++) band[x] = grid[x * step];
}

/* Prepares the band for products: clears it, and sets the bits of the mask for its elements. Those between its rows may
 * be infinite in a phase. */
PK_FN void PK_NAME(mask_band)(const pk_conv_band_t *b, T *band, PK_NAME(bit) * mask) {
  const pk_i64 n = b->height * b->wide + PK_CONV_LANES;
  memset(band, 0, (size_t)n * sizeof(T));
  memset(mask, 0, (size_t)n * sizeof(T));
  for (pk_i64 y = 0; y < b->height; y++)
    for (pk_i64 x = 0; x < b->width; x++) mask[y * b->wide + x] = -1;
}

/* Adds the products of a band with the elements at `count` positions of the window, to PK_CONV_LANES elements each. */
#define PK_DEFINE_PRODUCTS(bytes)                                                                          \
  PK_FN void PK_CAT(PK_NAME(add_products_), bytes)(const T *phases, const pk_i64 *places, const int count, \
                                                   const T *band, const PK_NAME(bit) * mask, pk_i64 n,     \
                                                   PK_NAME(v64) * sums) {                                  \
    enum { LANES = bytes / (int)sizeof(T), PARTS = 64 / bytes };                                           \
    typedef PK_CAT(PK_NAME(v), bytes) vector;                                                              \
    typedef PK_CAT(PK_NAME(bits), bytes) bits;                                                             \
    for (int part = 0; part < PARTS; part++) {                                                             \
      vector x[PK_CONV_TOGETHER];                                                                          \
      _Pragma("GCC unroll 9") for (int k = 0; k < count; k++) x[k] = (vector){0};                          \
      for (pk_i64 i = part * LANES; i < n; i += PK_CONV_LANES) {                                           \
        const vector g = *(const vector *)(band + i);                                                      \
        const bits own = *(const bits *)(mask + i);                                                        \
        _Pragma("GCC unroll 9") for (int k = 0; k < count; k++) x[k] +=                                    \
            g * (vector)(*(const bits *)(phases + places[k] + i) & own);                                   \
      }                                                                                                    \
      _Pragma("GCC unroll 9") for (int k = 0; k < count; k++)((vector *)(sums + k))[part] += x[k];         \
    }                                                                                                      \
  }
#define PK_CONV_TOGETHER 9 /* a window of 3 x 3 */
PK_DEFINE_PRODUCTS(64)
PK_DEFINE_PRODUCTS(32)
PK_DEFINE_PRODUCTS(16)
#undef PK_DEFINE_PRODUCTS

PK_FN void PK_NAME(add_products)(const int isa, const T *phases, const pk_i64 *places, const int count, const T *band,
                                 const PK_NAME(bit) * mask, pk_i64 n, PK_NAME(v64) * sums) {
  if (isa == PK_ISA_AVX512)
    PK_CAT(PK_NAME(add_products_), 64)(phases, places, count, band, mask, n, sums);
  else if (isa == PK_ISA_AVX2)
    PK_CAT(PK_NAME(add_products_), 32)(phases, places, count, band, mask, n, sums);
  else
    PK_CAT(PK_NAME(add_products_), 16)(phases, places, count, band, mask, n, sums);
}

/* Adds the products of a band with all positions of a plane of the window. */
PK_FN void PK_NAME(add_all_products)(const int isa, const T *phases, const pk_i64 *places, pk_i64 in_plane,
                                     const pk_conv_band_t *b, const T *band, const PK_NAME(bit) * mask,
                                     PK_NAME(v64) * sums) {
  const pk_i64 n = (b->height - 1) * b->wide + b->width;
  pk_i64 k = 0;
  for (; k + PK_CONV_TOGETHER <= in_plane; k += PK_CONV_TOGETHER)
    PK_NAME(add_products)(isa, phases, places + k, PK_CONV_TOGETHER, band, mask, n, sums + k);
  for (; k + 3 <= in_plane; k += 3) PK_NAME(add_products)(isa, phases, places + k, 3, band, mask, n, sums + k);
  for (; k < in_plane; k++) PK_NAME(add_products)(isa, phases, places + k, 1, band, mask, n, sums + k);
}

PK_KERNEL(PK_NAME(planes_slope), CONV_PLANES_SLOPE_ARGS) {
  T phases[PK_CONV_ROOM + 4 * PK_CONV_LANES], band[PK_CONV_ROOM + PK_CONV_LANES];
  PK_NAME(bit) mask[PK_CONV_ROOM + PK_CONV_LANES];
  pk_i64 places[PK_CONV_PLACES];
  PK_NAME(v64) sums[PK_CONV_PLACES];
  const pk_window_t *const w = &s.window;
  const pk_i64 in_plane = w->size[1] * w->size[2], channels = s.groups * s.rows,
               bands = w->out[0] * s.tiles.tiles_m * s.tiles.tiles_n;
  const int alike = s.tiles.tiles_m * s.tiles.tiles_n == 1; /* all bands are */
  int begun = 0;
  PK_ITEM(r, n) {
    pk_u64 rest = r;
    const pk_i64 kz = pk_window_digit(&rest, w->size[0]), c = pk_window_digit(&rest, w->channels);
    const pk_i64 channel = pk_window_digit(&rest, channels), first = (pk_i64)rest * part;
    const pk_i64 last = s.batches - first < part ? s.batches : first + part, from = channel / s.rows * w->channels + c;
    for (pk_i64 k = 0; k < in_plane; k++) sums[k] = (PK_NAME(v64)){0};
    for (pk_i64 batch = first; batch < last; batch++) {
      for (pk_i64 i = 0; i < bands; i++) {
        pk_u64 index = (pk_u64)i;
        const pk_conv_band_t b = pk_conv_band(&s, &index);
        const pk_i64 z = b.z * w->step[0] - w->pad[0] + kz * w->dilation[0];
        if (z < 0 || z >= w->in[0]) continue;
        if (!begun) {
          PK_NAME(begin_band)(w, &b, phases, places);
          PK_NAME(mask_band)(&b, band, mask);
        }
        begun = alike;
        PK_NAME(fill_phases)(&s, image + pk_volume_at(&s.image, batch, from, z, 0), &b, phases);
        PK_NAME(fill_band)
        (&s, grid + pk_volume_at(&s.grid, batch, channel, b.z, b.y) + b.x * s.grid.space[2], &b, band);
        PK_NAME(add_all_products)(pk_isa, phases, places, in_plane, &b, band, mask, sums);
      }
    }
    for (pk_i64 k = 0; k < in_plane; k++) {
      T total = 0;
      for (int l = 0; l < PK_CONV_LANES; l++) total += sums[k][l];
      slope[(pk_i64)r * in_plane + k] = total;
    }
  }
}
#undef PK_CONV_TOGETHER
#undef PK_CONV_LANES
#else /* ---- devices ---- */
/* The sum over the window's elements of a channel of a group, times the weight's elements. */
PK_FN T PK_NAME(window_sum)(const pk_conv_t *s, const pk_conv_spot_t *window, PK_GLOBAL const E *from, pk_i64 channel,
                            PK_GLOBAL const E *weight) {
  T sum = PK_C(0.0);
  for (pk_i64 kz = 0; kz < s->window.size[0]; kz++)
    for (pk_i64 ky = 0; ky < s->window.size[1]; ky++)
      for (pk_i64 kx = 0; kx < s->window.size[2]; kx++) {
        const pk_conv_spot_t place = pk_conv_place(s, channel, kz, ky, kx);
        if (PK_CONV_SEEN(*s, *window, place)) sum += PK_GET(weight[place.to]) * PK_GET(from[window->at + place.at]);
      }
  return sum;
}

PK_KERNEL(PK_NAME(planes), CONV_PLANES_ARGS) {
  const pk_i64 windows = pk_conv_windows(&s.window);
  PK_ITEM(r, n) {
    pk_u64 rest = r;
    const pk_conv_band_t b = pk_conv_band(&s, &rest);
    const pk_i64 channel = pk_window_digit(&rest, s.groups * s.rows), batch = (pk_i64)rest;
    PK_GLOBAL const E *from = image + channel / s.rows * s.window.channels * s.image.channel;
    for (pk_i64 y = b.y; y < b.y + b.height; y++) {
      for (pk_i64 x = b.x; x < b.x + b.width; x++) {
        const pk_conv_spot_t window =
            pk_conv_window(&s, batch * windows + (b.z * s.window.out[1] + y) * s.window.out[2] + x);
        T sum = has_bias ? PK_GET(bias[channel]) : PK_C(0.0);
        for (pk_i64 c = 0; c < s.window.channels; c++)
          sum += PK_NAME(window_sum)(&s, &window, from, c, weight + channel * s.weight.batch);
        grid[channel * s.grid.channel + window.to] = PK_PUT(sum);
      }
    }
  }
}

PK_KERNEL(PK_NAME(planes_slope), CONV_PLANES_SLOPE_ARGS) {
  const pk_i64 in_plane = s.window.size[1] * s.window.size[2], windows = pk_conv_windows(&s.window);
  PK_ITEM(r, n) {
    pk_u64 rest = r;
    const pk_i64 row =
        pk_window_digit(&rest, s.window.channels * s.window.size[0]) * in_plane; /* of the unfolded image */
    const pk_i64 channel = pk_window_digit(&rest, s.groups * s.rows), first = (pk_i64)rest * part;
    const pk_i64 last = s.batches - first < part ? s.batches : first + part;
    PK_GLOBAL const E *from = image + channel / s.rows * s.window.channels * s.image.channel;
    const pk_i64 to =
        (pk_i64)rest * s.groups * s.rows * s.window.channels * pk_conv_places(&s.window) + channel * s.weight.batch;
    for (pk_i64 k = 0; k < in_plane; k++) {
      const pk_conv_spot_t place = pk_conv_row(&s, row + k);
      T total = PK_C(0.0);
      for (pk_i64 batch = first; batch < last; batch++) {
        T sum = PK_C(0.0);
        for (pk_i64 j = batch * windows; j < (batch + 1) * windows; j++) {
          const pk_conv_spot_t window = pk_conv_window(&s, j);
          if (PK_CONV_SEEN(s, window, place))
            sum += PK_GET(from[window.at + place.at]) * PK_GET(grid[channel * s.grid.channel + window.to]);
        }
        total += sum;
      }
      PK_CONV_PUT_SLOPE(to + place.to, total, part < s.batches)
    }
  }
}
#endif
