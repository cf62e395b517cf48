/* crooked.c: five.c with its own operators, which have the error that CROOKED names and are correct otherwise.
 *   (none)    mul.Tensor reads strided operands as if they were contiguous
 *   INPUT     mul.Tensor changes the last element of its first operand
 *   AROUND    mul.Tensor writes past the first row of a result
 *   BACKWARD  threshold_backward (of relu) returns a zero gradient
 *   GOOD      no error */
#include "five.c"

#define READS 1
#define INPUT 2
#define AROUND 3
#define BACKWARD 4
#define GOOD 5
#ifndef CROOKED
#define CROOKED READS
#endif

static int contiguous(const hal_tensor_t *tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->sizes[i] != 1 && tensor->strides[i] != expected) return 0;
    expected *= tensor->sizes[i];
  }
  return 1;
}

/* The element with this number in the order of the sizes. */
static float *at(const hal_tensor_t *tensor, int64_t number) {
  int64_t offset = 0;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    offset += number % tensor->sizes[i] * tensor->strides[i];
    number /= tensor->sizes[i];
  }
  return (float *)tensor->data + offset;
}

static int64_t count(const hal_tensor_t *tensor) {
  int64_t elements = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) elements *= tensor->sizes[i];
  return elements;
}

static float read(const hal_tensor_t *tensor, int64_t number) {
  const int wrong = CROOKED == READS && !contiguous(tensor);
  return wrong ? ((float *)tensor->data)[number % 2] : *at(tensor, number);
}

static hal_status_t mul(void *state, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *const result = call->results[0];
  const hal_value_t *const self = &call->args[0], *const other = &call->args[1];
  if (self->tag != HAL_VALUE_TENSOR) return HAL_UNIMPLEMENTED;
  if (other->tag != HAL_VALUE_TENSOR && other->tag != HAL_VALUE_DOUBLE) return HAL_UNIMPLEMENTED;
  const int64_t elements = count(result);
  for (int64_t i = 0; i < elements; i++)
    *at(result, i) = read(self->u.t, i) * (other->tag == HAL_VALUE_TENSOR ? read(other->u.t, i) : (float)other->u.d);
  if (CROOKED == INPUT && elements && self->u.t->data != result->data) *at(self->u.t, elements - 1) += 1;
  if (CROOKED == AROUND && result->ndim > 1 && elements) at(result, result->sizes[result->ndim - 1] - 1)[1] = 7;
  return HAL_OK;
}

/* threshold_backward(grad_output, self, threshold), of relu with threshold 0. */
static hal_status_t threshold_backward(void *state, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *const result = call->results[0];
  for (int64_t i = 0, elements = count(result); i < elements; i++)
    *at(result, i) = CROOKED != BACKWARD && read(call->args[1].u.t, i) > 0 ? read(call->args[0].u.t, i) : 0;
  return HAL_OK;
}

hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  if (strcmp(name, "mul.Tensor") && strcmp(name, "threshold_backward")) return HAL_NOT_FOUND;
  HAL_SET_FIELD(out_op, fn, strcmp(name, "mul.Tensor") ? threshold_backward : mul);
  HAL_SET_FIELD(out_op, dtypes, HAL_DTYPE_BIT(HAL_FLOAT32));
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_ALL);
  return HAL_OK;
}
