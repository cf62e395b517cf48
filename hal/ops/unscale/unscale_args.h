/* unscale_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef UNSCALE_ARGS_H_
#define UNSCALE_ARGS_H_

#include "kernels/pk_types.h"

#define UNSCALE_ROWS_ARGS(X)                                                                                \
  X(BOTH, E, x), X(BOTH, float, found), X(IN, float, factor), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), \
      X(STRUCT, pk_rows_t, rows)

#endif /* UNSCALE_ARGS_H_ */
