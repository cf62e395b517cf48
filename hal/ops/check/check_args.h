/* check_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef CHECK_ARGS_H_
#define CHECK_ARGS_H_

#include "kernels/pk_types.h"

#define CHECK_ROWS_ARGS(X)                                                                                       \
  X(IN, E, x), X(VALUE, pk_i64, site), X(BOTH, pk_error_t, error), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#endif /* CHECK_ARGS_H_ */
