/* conv_spot.h: the position of an element of the unfolded image, on devices: the beginning of its window and its
 * position in the window, computed once for the many elements that share them. All divisions of 64 bits are here. */
#ifndef PK_CONV_SPOT_T_
#define PK_CONV_SPOT_T_
/* Coordinates, the offset in the image and, for a window, the offset in the grid, for a position, the offset in the
 * weight, from a group's first channel on. */
typedef struct {
  pk_i64 at, to;
  pk_i32 z, y, x;
} pk_conv_spot_t;

/* The window of a column. */
PK_FN pk_conv_spot_t pk_conv_window(const pk_conv_t *s, pk_i64 column) {
  const pk_window_t *const w = &s->window;
  pk_u64 rest = (pk_u64)column;
  const pk_i64 x = pk_window_digit(&rest, w->out[2]), y = pk_window_digit(&rest, w->out[1]);
  const pk_i64 z = pk_window_digit(&rest, w->out[0]);
  const pk_i64 top = z * w->step[0] - w->pad[0], row = y * w->step[1] - w->pad[1], left = x * w->step[2] - w->pad[2];
  pk_conv_spot_t spot;
  spot.at = pk_volume_at(&s->image, (pk_i64)rest, 0, top, row) + left * s->image.space[2];
  spot.to = pk_volume_at(&s->grid, (pk_i64)rest, 0, z, y) + x * s->grid.space[2];
  spot.z = (pk_i32)top, spot.y = (pk_i32)row, spot.x = (pk_i32)left;
  return spot;
}

/* The position (z, y, x) of a window in a channel, relative to the window's beginning. */
PK_FN pk_conv_spot_t pk_conv_place(const pk_conv_t *s, pk_i64 channel, pk_i64 z, pk_i64 y, pk_i64 x) {
  const pk_i64 *const dilation = s->window.dilation;
  pk_conv_spot_t spot;
  spot.at = pk_volume_at(&s->image, 0, channel, z * dilation[0], y * dilation[1]) + x * dilation[2] * s->image.space[2];
  spot.to = pk_volume_at(&s->weight, 0, channel, z, y) + x * s->weight.space[2];
  spot.z = (pk_i32)(z * dilation[0]), spot.y = (pk_i32)(y * dilation[1]), spot.x = (pk_i32)(x * dilation[2]);
  return spot;
}

/* The position of a row. */
PK_FN pk_conv_spot_t pk_conv_row(const pk_conv_t *s, pk_i64 row) {
  pk_u64 rest = (pk_u64)row;
  const pk_i64 first = s->by_place ? pk_window_digit(&rest, s->window.channels) : 0;
  const pk_i64 x = pk_window_digit(&rest, s->window.size[2]), y = pk_window_digit(&rest, s->window.size[1]);
  const pk_i64 z = pk_window_digit(&rest, s->window.size[0]);
  return pk_conv_place(s, s->by_place ? first : (pk_i64)rest, z, y, x);
}

/* Returns whether a position of a window is in the image. */
PK_FN int pk_conv_inside(const pk_window_t *w, pk_i32 z, pk_i32 y, pk_i32 x) {
  return (pk_u32)z < (pk_u32)w->in[0] && (pk_u32)y < (pk_u32)w->in[1] && (pk_u32)x < (pk_u32)w->in[2];
}
#define PK_CONV_SEEN(S, WINDOW, PLACE) \
  pk_conv_inside(&(S).window, (WINDOW).z + (PLACE).z, (WINDOW).y + (PLACE).y, (WINDOW).x + (PLACE).x)
#endif
