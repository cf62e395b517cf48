/* fill_args.h: the arguments of fill.pk. */
#ifndef FILL_ARGS_H_
#define FILL_ARGS_H_

#include <pk_args.h>

#define FILL_SET_ARGS(X) X(OUT, E, y), X(VALUE, double, value), X(VALUE, pk_u64, n)

#endif /* FILL_ARGS_H_ */
