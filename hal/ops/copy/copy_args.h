/* copy_args.h: the arguments of this folder's kernels, for the kernels and for their launchers (kernels/pk_args.h). */
#ifndef COPY_ARGS_H_
#define COPY_ARGS_H_

#include "kernels/pk_types.h"

#define COPY_CONTIG_ARGS(X) X(OUT, R, out), X(IN, A, a), X(VALUE, pk_u64, n)

#define COPY_ROWS_ARGS(X) \
  X(OUT, R, out), X(IN, A, a), X(VALUE, pk_u64, n), X(VALUE, pk_u64, block), X(STRUCT, pk_rows_t, rows)

#endif /* COPY_ARGS_H_ */
