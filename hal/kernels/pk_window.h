/* pk_window.h: windows that slide over three spatial dimensions: pooling and convolution. For kernels and launchers. */
#ifndef PK_WINDOW_H_
#define PK_WINDOW_H_

#include "pk_types.h"

/* Sizes of the input and of the result, and the positions of windows: window o begins at o * step - pad and has `size`
 * positions that are `dilation` apart. Adaptive windows begin at floor(o * in / out) and end before ceil((o + 1) * in /
 * out). */
typedef struct {
  pk_i64 channels;
  pk_i64 in[3], out[3], size[3], step[3], pad[3], dilation[3];
  pk_i64 adaptive;
} pk_window_t;

/* Strides of a tensor in elements: batch, channel, three spatial dimensions. */
typedef struct {
  pk_i64 batch, channel, space[3];
} pk_volume_t;

PK_FN pk_i64 pk_volume_at(const pk_volume_t *s, pk_i64 batch, pk_i64 channel, pk_i64 z, pk_i64 y) {
  return batch * s->batch + channel * s->channel + z * s->space[0] + y * s->space[1];
}

/* x / y rounded up or down for x >= 0, y > 0. Steps and dilations are usually 1, and a division of 64 bits takes as
 * long as a vector loop over a short row. */
PK_FN pk_i64 pk_window_up(pk_i64 x, pk_i64 y) { return y == 1 ? x : (x + y - 1) / y; }
PK_FN pk_i64 pk_window_down(pk_i64 x, pk_i64 y) { return y == 1 ? x : x / y; }

/* Removes the lowest digit of *x in base `n`: unused dimensions of an image are 1. */
PK_FN pk_i64 pk_window_digit(pk_u64 *x, pk_i64 n) {
  if (n == 1) return 0;
  const pk_u64 rest = *x / (pk_u64)n;
  const pk_i64 digit = (pk_i64)(*x - rest * (pk_u64)n);
  *x = rest;
  return digit;
}

/* First and one past the last existing input position of window o; positions are `dilation` apart. */
PK_FN void pk_window_places(const pk_window_t *w, int d, pk_i64 o, pk_i64 *out_begin, pk_i64 *out_end) {
  if (w->adaptive) {
    *out_begin = o * w->in[d] / w->out[d];
    *out_end = ((o + 1) * w->in[d] + w->out[d] - 1) / w->out[d];
    return;
  }
  const pk_i64 begin = o * w->step[d] - w->pad[d], end = begin + (w->size[d] - 1) * w->dilation[d] + 1;
  *out_begin = begin >= 0 ? begin : begin + pk_window_up(-begin, w->dilation[d]) * w->dilation[d];
  *out_end = end < w->in[d] ? end : w->in[d];
}

/* First and one past the last window that may contain input position i. */
PK_FN void pk_window_owners(const pk_window_t *w, int d, pk_i64 i, pk_i64 *out_begin, pk_i64 *out_end) {
  pk_i64 begin, end;
  if (w->adaptive) {
    begin = i * w->out[d] / w->in[d];
    end = ((i + 1) * w->out[d] + w->in[d] - 1) / w->in[d];
  } else {
    const pk_i64 reach = i + w->pad[d] - (w->size[d] - 1) * w->dilation[d];
    begin = reach <= 0 ? 0 : pk_window_up(reach, w->step[d]);
    end = pk_window_down(i + w->pad[d], w->step[d]) + 1;
  }
  *out_begin = begin;
  *out_end = end < w->out[d] ? end : w->out[d];
}

/* First and one past the last window along dimension d whose position k exists. */
PK_FN void pk_window_reach(const pk_window_t *w, int d, pk_i64 k, pk_i64 *out_begin, pk_i64 *out_end) {
  const pk_i64 shift = k * w->dilation[d] - w->pad[d]; /* of window 0 */
  const pk_i64 begin = shift >= 0 ? 0 : pk_window_up(-shift, w->step[d]);
  const pk_i64 end = shift >= w->in[d] ? 0 : pk_window_down(w->in[d] - 1 - shift, w->step[d]) + 1;
  *out_end = end < w->out[d] ? end : w->out[d];
  *out_begin = begin < *out_end ? begin : *out_end;
}

#endif /* PK_WINDOW_H_ */
