/* op.c: one operator of the plugin, as a vendor's library has many: add.Tensor of dense float32. The host runs declined
 * calls in another way. */
#include <string.h>

#include "threads.h"

/* The queued data: addresses and numbers, without pointers that were borrowed for the call. */
typedef struct add_s {
  float *result;
  const float *a, *b; /* b NULL: use `number` */
  int64_t count;
  float number, alpha;
} add_t;

static hal_status_t run_add(const void *arguments) {
  const add_t *const add = arguments;
  float *const result = threads_translate(add->result);
  const float *const a = threads_translate(add->a), *const b = add->b ? threads_translate(add->b) : NULL;
  if (!result || !a || (add->b && !b))
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "threads: an operand of add.Tensor is not in a segment");
  for (int64_t i = 0; i < add->count; i++) result[i] = a[i] + add->alpha * (b ? b[i] : add->number);
  return HAL_OK;
}

/* A number is HAL_VALUE_INT or HAL_VALUE_DOUBLE, as in the user's program. */
static int read_number(const hal_value_t *value, float *out_number) {
  if (value->tag == HAL_VALUE_INT) *out_number = (float)value->u.i;
  if (value->tag == HAL_VALUE_DOUBLE) *out_number = (float)value->u.d;
  return value->tag == HAL_VALUE_INT || value->tag == HAL_VALUE_DOUBLE;
}

/* Arguments are in the order of codegen/operators: self, other (a tensor or a number), alpha. */
static hal_status_t add_tensor(void *state, const hal_op_call_t *call) {
  (void)state;
  const hal_tensor_t *const result = call->results[0];
  const hal_value_t *const self = &call->args[0], *const other = &call->args[1];
  add_t add = {.result = result->data, .count = 1};
  if (self->tag != HAL_VALUE_TENSOR || !read_number(&call->args[2], &add.alpha)) return HAL_UNIMPLEMENTED;
  if (other->tag != HAL_VALUE_TENSOR && !read_number(other, &add.number)) return HAL_UNIMPLEMENTED;
  add.a = self->u.t->data;
  if (other->tag == HAL_VALUE_TENSOR) add.b = other->u.t->data;
  for (int32_t i = 0; i < result->ndim; i++) add.count *= result->sizes[i];
  return add.count ? threads_submit(call->stream, "add.Tensor", run_add, &add, sizeof add) : HAL_OK;
}

/* The descriptor excludes the calls that add_tensor would otherwise have to check: other dtypes, and operands that are
 * not dense (one that is broadcast to the result's shape has strides of 0). */
hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  if (strcmp(name, "add.Tensor")) return HAL_NOT_FOUND;
  HAL_SET_FIELD(out_op, fn, add_tensor);
  HAL_SET_FIELD(out_op, dtypes, HAL_DTYPE_BIT(HAL_FLOAT32));
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_CONTIGUOUS);
  return HAL_OK;
}
