/* own.h: a plugin's own operators, called as the host calls them, and compared with double precision. Private to
 * hal/cts. */
#ifndef HAL_CTS_OWN_H_
#define HAL_CTS_OWN_H_

#include "cts.h"

enum { CTS_OWN_OPS = 21, CTS_OWN_DTYPES = 10, CTS_OWN_DIMS = 5 };

/* An operator that the suite knows. Arguments as in the frozen list of codegen/operators: tensors, then the number if
 * there is one. */
typedef struct cts_own_op_s {
  const char *name;
  int tensors, number, takes, compares; /* compares: the result is bool */
  int signs;                            /* a result of zero has the sign that the standard defines */
  double (*value)(double a, double b);
  uint64_t (*whole)(int64_t a, int64_t b); /* in integers modulo 2^64 */
} cts_own_op_t;
extern const cts_own_op_t cts_own_ops[CTS_OWN_OPS];
extern const hal_dtype_t cts_own_dtypes[CTS_OWN_DTYPES];

/* The layout of an operand: sizes, strides in elements, and the first element's offset in its memory. */
typedef struct cts_layout_s {
  int64_t strides[CTS_OWN_DIMS], first;
} cts_layout_t;
typedef struct cts_shape_s {
  int32_t ndim;
  int64_t sizes[CTS_OWN_DIMS];
} cts_shape_t;
cts_layout_t cts_layout_dense(const cts_shape_t *shape, int64_t first); /* C order */

hal_status_t cts_own_find(cts_t *t, const char *name, hal_op_own_t *out_own);
/* Returns whether the descriptor accepts the dtype, and the suite knows the operator in it. */
int cts_own_takes(int which, const hal_op_own_t *own, hal_dtype_t dtype);
/* Sets the arguments of a call; returns their number. */
uint32_t cts_own_arguments(int which, const hal_tensor_t *a, const hal_tensor_t *b, hal_value_t args[3]);

enum {
  CTS_OWN_HELD = 1,     /* the stream writes the first operand once a gate is open */
  CTS_OWN_IN_PLACE = 2, /* the result is the first operand; `to` is not used */
  CTS_OWN_ENDS = 4      /* NaN, infinities, zeros with signs, large numbers */
};
/* Calls an operator and checks the whole memory of its result: the elements, and the memory between them. `flags`:
 * HAL_CALL_*, `how`: CTS_OWN_*. */
void cts_own_check(cts_t *t, int which, const hal_op_own_t *own, hal_dtype_t dtype, const cts_shape_t *shape,
                   cts_layout_t to, cts_layout_t from, cts_layout_t other, uint32_t flags, int how);

#endif /* HAL_CTS_OWN_H_ */
