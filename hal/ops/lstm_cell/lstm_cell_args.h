/* lstm_cell_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef LSTM_CELL_ARGS_H_
#define LSTM_CELL_ARGS_H_

#include "ops/lstm_cell/lstm_span.h"

#define LSTM_CELL_FORWARD_ARGS(X)                                                                          \
  X(OUT, E, hy), X(OUT, E, cy), X(OUT, E, work), X(IN, E, a), X(IN, E, b), X(IN, E, cx), X(IN, E, bias_a), \
      X(IN, E, bias_b), X(VALUE, pk_u64, items), X(STRUCT, pk_lstm_t, how), X(VALUE, pk_i32, with_bias)

#define LSTM_CELL_BACKWARD_ARGS(X)                                                                       \
  X(OUT, E, gates), X(OUT, E, before), X(IN, E, grad_hy), X(IN, E, grad_cy), X(IN, E, cx), X(IN, E, cy), \
      X(IN, E, work), X(VALUE, pk_u64, items), X(STRUCT, pk_lstm_t, how), X(VALUE, pk_i32, with_hy),     \
      X(VALUE, pk_i32, with_cy)

#endif /* LSTM_CELL_ARGS_H_ */
