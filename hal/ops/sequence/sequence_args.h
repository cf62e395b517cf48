/* sequence_args.h: the arguments of this folder's kernels, for the kernels and for their launchers
 * (kernels/pk_args.h). */
#ifndef SEQUENCE_ARGS_H_
#define SEQUENCE_ARGS_H_

#include "kernels/pk_types.h"

#define SEQUENCE_CONTIG_ARGS(X)                                                                                       \
  X(OUT, E, out), X(NUMBER, PK_SUM, start), X(NUMBER, PK_SUM, step), X(NUMBER, PK_SUM, end), X(NUMBER, PK_SUM, base), \
      X(VALUE, pk_u64, middle), X(VALUE, pk_u64, n)

#endif /* SEQUENCE_ARGS_H_ */
