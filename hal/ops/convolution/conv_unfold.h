/* conv_unfold.h: blocks of the unfolded image that convolution.pk multiplies, computed on demand instead of stored in
 * memory. The unfolded image has a row per (channel, position in the window) and a column per window (batch, three
 * spatial dimensions). Included once per instance; host only. T, PK_NAME and pk_conv_t are the instance's. */

/* Maximum number of columns of a block. */
#define PK_CONV_COLUMNS 128

#ifndef PK_CONV_LINE_T_
#define PK_CONV_LINE_T_
/* Neighboring windows along the last dimension: columns [column, column + count) of the block begin at (batch, z, y,
 * x). */
typedef struct {
  pk_i64 column, count, batch, z, y, x;
} pk_conv_line_t;
#endif

/* Columns [column, column + count) of a row of the block, the first of which is *from. */
typedef struct {
  const T *from;
  pk_i64 column, count;
} PK_NAME(run_t);

/* The runs of a row of the block: those of the image, and zeros, which are written last. */
typedef struct {
  PK_NAME(run_t) copied[PK_CONV_COLUMNS], zeros[PK_CONV_COLUMNS + 2];
  pk_i32 copied_count, zeros_count;
} PK_NAME(runs_t);

/* Divides columns [first, first + count) into lines; returns their number. */
PK_FN pk_i32 PK_NAME(lines)(const pk_window_t *w, pk_i64 first, pk_i64 count, pk_conv_line_t *lines) {
  pk_u64 rest = (pk_u64)first;
  pk_i64 x = pk_window_digit(&rest, w->out[2]), y = pk_window_digit(&rest, w->out[1]),
         z = pk_window_digit(&rest, w->out[0]);
  pk_i64 batch = (pk_i64)rest;
  pk_i32 n = 0;
  for (pk_i64 j = 0; j < count; x = 0) {
    const pk_i64 left = w->out[2] - x, width = left < count - j ? left : count - j;
    lines[n++] = (pk_conv_line_t){j, width, batch, z, y, x};
    j += width;
    if (++y < w->out[1]) continue;
    y = 0;
    if (++z < w->out[0]) continue;
    z = 0;
    batch++;
  }
  return n;
}

PK_FN void PK_NAME(add_zeros)(PK_NAME(runs_t) * runs, pk_i64 column, pk_i64 count) {
  if (count <= 0) return;
  PK_NAME(run_t) *const last = runs->zeros_count ? runs->zeros + runs->zeros_count - 1 : NULL;
  if (last && last->column + last->count == column)
    last->count += count;
  else
    runs->zeros[runs->zeros_count++] = (PK_NAME(run_t)){NULL, column, count};
}

/* Adds a run of the image. Runs that have the same distance in the image and in the block are merged, including the
 * elements between them: usually the edges of adjacent rows, which are zeros in the block. */
PK_FN void PK_NAME(add_copied)(PK_NAME(runs_t) * runs, const T *from, pk_i64 column, pk_i64 count, pk_i64 step) {
  PK_NAME(run_t) *const last = runs->copied_count ? runs->copied + runs->copied_count - 1 : NULL;
  if (last && last->from + (column - last->column) * step == from)
    last->count = column + count - last->column;
  else
    runs->copied[runs->copied_count++] = (PK_NAME(run_t)){from, column, count};
}

/* Finds the runs of a position of the window in the channel at `image`: the windows of each line that contain it, zeros
 * before and after them, and zeros in columns [count, padded). */
PK_FN void PK_NAME(find_runs)(const pk_conv_t *s, const T *image, const pk_conv_line_t *lines, pk_i32 n, pk_i64 count,
                              pk_i64 padded, const pk_i64 *place, PK_NAME(runs_t) * runs) {
  const pk_window_t *const w = &s->window;
  const pk_i64 step = w->step[2] * s->image.space[2];
  pk_i64 begin, end, top[3];
  for (int d = 0; d < 3; d++) top[d] = place[d] * w->dilation[d] - w->pad[d]; /* of window 0 */
  pk_window_reach(w, 2, place[2], &begin, &end);
  runs->copied_count = runs->zeros_count = 0;
  for (const pk_conv_line_t *l = lines; l < lines + n; l++) {
    const pk_i64 z = l->z * w->step[0] + top[0], y = l->y * w->step[1] + top[1], last = l->x + l->count;
    const int inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
    const pk_i64 from = !inside || begin > last ? last : begin < l->x ? l->x : begin;
    const pk_i64 to = end > last ? last : end < from ? from : end;
    const pk_i64 column = l->column - l->x;
    PK_NAME(add_zeros)(runs, l->column, from - l->x);
    if (from < to) {
      const T *const p =
          image + pk_volume_at(&s->image, l->batch, 0, z, y) + (from * w->step[2] + top[2]) * s->image.space[2];
      PK_NAME(add_copied)(runs, p, column + from, to - from, step);
    }
    PK_NAME(add_zeros)(runs, column + to, last - to);
  }
  PK_NAME(add_zeros)(runs, count, padded - count);
}

/* Copies or clears a run for each of `channels` channels, which are `channel` apart, and whose rows of the block are
 * `row` apart. It uses pieces of constant size, the last of which may overlap the previous one: a loop or a call per
 * channel would be slower than the copy. */
#define PK_PIECES(size, statement)                               \
  if (count >= (size)) {                                         \
    for (pk_i64 i = 0; i < count; i += (size)) {                 \
      const pk_i64 j = i + (size) <= count ? i : count - (size); \
      for (pk_i64 c = 0; c < channels; c++) statement;           \
    }                                                            \
    return;                                                      \
  }
PK_FN void PK_NAME(copy_run)(const PK_NAME(run_t) * run, pk_i64 step, pk_i64 channel, pk_i64 channels, T *target,
                             pk_i64 row) {
  const T *const from = run->from;
  const pk_i64 count = run->count;
  target += run->column;
  if (step != 1) {
    for (pk_i64 c = 0; c < channels; c++)
      for (pk_i64 j = 0; j < count; j++) target[c * row + j] = from[c * channel + j * step];
    return;
  }
#define PK_COPY(size) memcpy(target + c * row + j, from + c * channel + j, (size) * sizeof(T))
  PK_PIECES(16, PK_COPY(16))
  PK_PIECES(8, PK_COPY(8))
  PK_PIECES(4, PK_COPY(4))
  PK_PIECES(2, PK_COPY(2))
  PK_PIECES(1, PK_COPY(1))
#undef PK_COPY
}
PK_FN void PK_NAME(clear_run)(const PK_NAME(run_t) * run, pk_i64 channels, T *target, pk_i64 row) {
  const pk_i64 count = run->count;
  target += run->column;
#define PK_CLEAR(size) memset(target + c * row + j, 0, (size) * sizeof(T))
  PK_PIECES(16, PK_CLEAR(16))
  PK_PIECES(8, PK_CLEAR(8))
  PK_PIECES(4, PK_CLEAR(4))
  PK_PIECES(2, PK_CLEAR(2))
  PK_PIECES(1, PK_CLEAR(1))
#undef PK_CLEAR
}
#undef PK_PIECES

/* Copies a row of PK_CONV_SHORT adjacent windows for each of `channels` channels, if all of them contain the position
 * in the image; returns whether they do. Most positions of most panels are of this kind. */
#define PK_CONV_SHORT 16
PK_FN int PK_NAME(copy_short)(const pk_conv_t *s, const T *image, const pk_conv_line_t *l, const pk_i64 *place,
                              pk_i64 channels, T *target, pk_i64 row) {
  const pk_window_t *const w = &s->window;
  pk_i64 at[3];
  for (int d = 0; d < 3; d++) at[d] = place[d] * w->dilation[d] - w->pad[d];
  const pk_i64 z = l->z * w->step[0] + at[0], y = l->y * w->step[1] + at[1], x = l->x + at[2];
  if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1] || x < 0 || x + PK_CONV_SHORT > w->in[2]) return 0;
  image += pk_volume_at(&s->image, l->batch, 0, z, y) + x;
  for (pk_i64 c = 0; c < channels; c++)
    memcpy(target + c * row, image + c * s->image.channel, PK_CONV_SHORT * sizeof(T));
  return 1;
}

/* Unfolds rows [row0, row1) of columns [first, first + count) to `target`, whose rows are `stride` apart, with zeros in
 * columns [count, padded); `image` is channel 0 of the group. */
PK_FN void PK_NAME(unfold)(const pk_conv_t *s, const T *image, pk_i64 first, pk_i64 count, pk_i64 padded, pk_i64 row0,
                           pk_i64 row1, T *target, pk_i64 stride) {
  pk_conv_line_t lines[PK_CONV_COLUMNS];
  PK_NAME(runs_t) runs;
  if (row0 == row1) return; /* a window may have no positions */
  const pk_window_t *const w = &s->window;
  const pk_i64 places = pk_conv_places(w), step = w->step[2] * s->image.space[2];
  const pk_i32 n = PK_NAME(lines)(w, first, count, lines);
  const pk_i64 channel0 = row0 / places, skipped = row0 - channel0 * places, all = row1 - channel0 * places;
  const int is_short = n == 1 && count == PK_CONV_SHORT && padded == count && step == 1;
  pk_i64 place[3] = {0, 0, 0};
  for (pk_i64 q = 0; q < places; q++) {
    /* rows c * positions + q, counted from channel0: those in [skipped, all) */
    const pk_i64 c0 = q < skipped ? 1 : 0, c1 = q < all ? (all - q + places - 1) / places : 0, channels = c1 - c0;
    T *const row = target + (c0 * places + q - skipped) * stride;
    if (channels > 0 && !(is_short && PK_NAME(copy_short)(s, image + (channel0 + c0) * s->image.channel, lines, place,
                                                          channels, row, places * stride))) {
      PK_NAME(find_runs)(s, image + (channel0 + c0) * s->image.channel, lines, n, count, padded, place, &runs);
      for (pk_i32 i = 0; i < runs.copied_count; i++)
        PK_NAME(copy_run)(runs.copied + i, step, s->image.channel, channels, row, places * stride);
      for (pk_i32 i = 0; i < runs.zeros_count; i++) PK_NAME(clear_run)(runs.zeros + i, channels, row, places * stride);
    }
    for (int d = 2; d >= 0 && ++place[d] == w->size[d] && d > 0; d--) place[d] = 0;
  }
}
#undef PK_CONV_SHORT
