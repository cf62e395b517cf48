/* parts.h: complex tensors as tensors of real numbers, for launchers that need no kernels of complex numbers: copies,
 * sums and matrix products. Private to hal/src. */
#ifndef HAL_SRC_OP_PARTS_H_
#define HAL_SRC_OP_PARTS_H_

#include "op/iterator.h"

static inline int hal_op_is_complex(hal_dtype_t dtype) { return dtype == HAL_COMPLEX64 || dtype == HAL_COMPLEX128; }

/* The real numbers of a complex tensor; `tensor` borrows from this struct. */
typedef struct hal_op_parts_s {
  hal_tensor_t tensor;
  int64_t sizes[HAL_OP_MAX_DIMS], strides[HAL_OP_MAX_DIMS];
} hal_op_parts_t;

enum { HAL_OP_REAL_PART = 0, HAL_OP_IMAGINARY_PART = 1, HAL_OP_BOTH_PARTS = 2 };

/* Returns the real parts, the imaginary parts, or both along an additional last dimension, for which the caller has
 * reserved space. */
static inline void hal_op_parts(const hal_tensor_t *tensor, int part, hal_op_parts_t *out) {
  const int32_t ndim = tensor->ndim, both = part == HAL_OP_BOTH_PARTS;
  const size_t real = tensor->dtype == HAL_COMPLEX64 ? sizeof(float) : sizeof(double);
  out->tensor = *tensor;
  for (int32_t d = 0; d < ndim; d++) out->sizes[d] = tensor->sizes[d], out->strides[d] = 2 * tensor->strides[d];
  if (both) out->sizes[ndim] = 2, out->strides[ndim] = 1;
  if (tensor->data && part == HAL_OP_IMAGINARY_PART) out->tensor.data = (char *)tensor->data + real;
  out->tensor.ndim = ndim + both;
  out->tensor.sizes = out->sizes;
  out->tensor.strides = out->strides;
  out->tensor.dtype = real == sizeof(float) ? HAL_FLOAT32 : HAL_FLOAT64;
}

#endif /* HAL_SRC_OP_PARTS_H_ */
