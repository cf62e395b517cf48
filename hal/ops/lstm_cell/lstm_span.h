/* lstm_span.h: division of the columns of a step of an LSTM among items. */
#ifndef LSTM_SPAN_H_
#define LSTM_SPAN_H_

#include "kernels/pk_types.h"

/* A span is up to `block` columns of a sample; `blocks` of them cover it; an item computes `per_item` of all
 * `spans`. */
typedef struct {
  pk_u64 width, spans, per_item, block, blocks;
} pk_lstm_t;

/* The position of a span: in matrices of `width` columns, in those of four times as many, in a row; its columns. */
typedef struct {
  pk_u64 at, at4, column, n;
} pk_lstm_span_t;

PK_FN pk_lstm_span_t pk_lstm_span(const pk_lstm_t *how, pk_u64 span) {
  const pk_u64 row = span / how->blocks, left = how->width - (span - row * how->blocks) * how->block;
  pk_lstm_span_t out;
  out.column = how->width - left;
  out.n = left < how->block ? left : how->block;
  out.at = row * how->width + out.column;
  out.at4 = 4 * row * how->width + out.column;
  return out;
}

#endif /* LSTM_SPAN_H_ */
