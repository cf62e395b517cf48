/* pad_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h), and
 * the mapping of padding. */
#ifndef PAD_ARGS_H_
#define PAD_ARGS_H_

#include "kernels/pk_window.h"

/* Three spatial dimensions of an image, and of the padded one, each with its strides. `columns` of a kept dimension
 * that is contiguous in both are computed together; if that is 0, the last spatial dimension is. `lanes` positions of a
 * kept dimension that is contiguous in the operand alone are adjacent items of the backward: they read the same lines
 * of the cache. */
typedef struct {
  pk_i64 reflects; /* 0 = the edge is replicated */
  pk_i64 in[3], out[3], before[3];
  pk_i64 of_in[3], of_out[3];
  pk_i64 columns, column_in, column_out;
  pk_i64 lanes; /* 1 = none */
} pk_pad_t;

#define PAD_ROWS_ARGS(X)                                                                                 \
  X(OUT, E, out), X(IN, E, a), X(VALUE, pk_u64, n), X(VALUE, pk_i64, share), X(STRUCT, pk_rows_t, kept), \
      X(STRUCT, pk_pad_t, p)

#define PAD_BACKWARD_ROWS_ARGS(X)                                                                         \
  X(OUT, E, out), X(IN, E, grad), X(VALUE, pk_u64, n), X(VALUE, pk_i64, share), X(VALUE, pk_i64, places), \
      X(STRUCT, pk_rows_t, kept), X(STRUCT, pk_pad_t, p)

/* Returns the position of the image that position `o` of the padded one copies. */
PK_FN pk_i64 pk_pad_source(const pk_pad_t *p, int d, pk_i64 o) {
  const pk_i64 place = o - p->before[d], last = p->in[d] - 1;
  if (!p->reflects) return place < 0 ? 0 : place < last ? place : last;
  const pk_i64 inward = place < 0 ? -place : place;
  return inward <= last ? inward : 2 * last - inward;
}

/* Returns the positions of the padded image that copy position i: three runs, of which some are empty. */
PK_FN void pk_pad_owners(const pk_pad_t *p, int d, pk_i64 i, pk_i64 begin[3], pk_i64 end[3]) {
  const pk_i64 last = p->in[d] - 1, at = i + p->before[d];
  begin[0] = !p->reflects && i == 0 ? 0 : at;
  end[0] = !p->reflects && i == last ? p->out[d] : at + 1;
  begin[1] = p->before[d] - i;
  end[1] = begin[1] + (p->reflects && i > 0);
  begin[2] = 2 * last - i + p->before[d];
  end[2] = begin[2] + (p->reflects && i < last);
  for (int k = 0; k < 3; k++) {
    if (begin[k] < 0) begin[k] = 0;
    if (end[k] > p->out[d]) end[k] = p->out[d];
  }
}

#endif /* PAD_ARGS_H_ */
