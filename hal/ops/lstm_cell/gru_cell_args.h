/* gru_cell_args.h: the arguments of the GRU's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef GRU_CELL_ARGS_H_
#define GRU_CELL_ARGS_H_

#include "ops/lstm_cell/lstm_span.h"

#define GRU_CELL_FORWARD_ARGS(X)                                                                              \
  X(OUT, E, hy), X(OUT, E, work), X(IN, E, a), X(IN, E, b), X(IN, E, hx), X(IN, E, bias_a), X(IN, E, bias_b), \
      X(VALUE, pk_u64, items), X(STRUCT, pk_lstm_t, how), X(VALUE, pk_i32, with_bias)

#define GRU_CELL_BACKWARD_ARGS(X)                                                                                  \
  X(OUT, E, input), X(OUT, E, hidden), X(OUT, E, before), X(IN, E, grad), X(IN, E, work), X(VALUE, pk_u64, items), \
      X(STRUCT, pk_lstm_t, how)

#endif /* GRU_CELL_ARGS_H_ */
