/* elementwise.h: declarations that the element-wise launchers (fill, copy, unary, binary, ternary, where) share.
 * Private to hal/src.
 *
 * Their kernels have a contiguous form and a row form (elementwise_args.h). */
#ifndef HAL_SRC_OP_ELEMENTWISE_H_
#define HAL_SRC_OP_ELEMENTWISE_H_

#include <string.h>

#include "op/iterator.h"
#include "ops/elementwise/elementwise_args.h"

/* The operands of one call, checked. */
typedef struct hal_op_elementwise_s {
  const hal_tensor_t *tensors[HAL_OP_MAX_OPERANDS]; /* the result, then the tensor arguments */
  int32_t operands;                                 /* including the result */
  int32_t dense;                                    /* one run with stride 1; else `iterator` has the strides */
  int64_t numel;
  hal_op_iterator_t iterator; /* set only when the call was not flagged HAL_CALL_DENSE */
} hal_op_elementwise_t;

#define HAL_OP_ELEMENTWISE_NUMBERS PK_MOST_NUMBERS

/* The numbers of an operator as one argument of its kernel: one number (0 if it has none), or all of them. */
typedef struct hal_op_numbers_s {
  _Alignas(8) unsigned char bytes[HAL_OP_ELEMENTWISE_NUMBERS * sizeof(double)];
  uint32_t size;
} hal_op_numbers_t;
static inline pk_number_t hal_op_all_numbers(const hal_op_numbers_t *numbers) {
  return (pk_number_t){numbers->bytes, numbers->size};
}

/* Reads the numbers, which follow the operands. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_op_elementwise_numbers(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                        hal_op_numbers_t *out_numbers);

/* Reads result 0 and the first `inputs` arguments, all of one shape. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_op_elementwise_read(const hal_op_context_t *context, const hal_op_call_t *call, int32_t inputs,
                                     hal_op_elementwise_t *out_operands);

/* Checks that operand k has a dtype; k = 0 is the result. */
hal_status_t hal_op_elementwise_wrong_dtype(const hal_op_context_t *context, const hal_op_elementwise_t *operands,
                                            int32_t k, hal_dtype_t wanted);
static inline hal_status_t hal_op_elementwise_check(const hal_op_context_t *context,
                                                    const hal_op_elementwise_t *operands, int32_t k,
                                                    hal_dtype_t wanted) {
  if (HAL_LIKELY(operands->tensors[k]->dtype == wanted)) return HAL_OK;
  return hal_op_elementwise_wrong_dtype(context, operands, k, wanted);
}

/* Checks the dtypes of an operator whose operands have one dtype, which determines the kernel, and returns that
 * dtype. */
static inline hal_status_t hal_op_elementwise_dtype(const hal_op_context_t *context,
                                                    const hal_op_elementwise_t *operands, hal_dtype_t *out_dtype) {
  const hal_dtype_t dtype = operands->tensors[1]->dtype;
  for (int32_t k = 2; k < operands->operands; k++)
    HAL_RETURN_IF_ERROR(hal_op_elementwise_check(context, operands, k, dtype));
  *out_dtype = dtype;
  return hal_op_elementwise_check(context, operands, 0, hal_op_result_dtype(context->info, dtype));
}

/* The two forms of a family's kernel: numbers of their variants, and the functions that queue them. */
typedef struct hal_op_forms_s {
  uint32_t contig, rows;
  hal_op_line_fn_t queue_contig, queue_rows;
} hal_op_forms_t;

/* Queues the contiguous or the row form of a kernel; also the row form if the device has no other. `given` is for the
 * queueing functions. */
hal_status_t hal_op_elementwise_launch(hal_op_context_t *context, const hal_op_elementwise_t *operands,
                                       hal_dtype_t dtype, const hal_op_forms_t *forms, const void *given);

/* The fast path of a call flagged HAL_CALL_DENSE. Other calls take the general path, which also
 * reports invalid calls. */

/* Returns whether a descriptor can be used without further checks. */
static inline int hal_op_is_plain(const hal_tensor_t *tensor) {
  return tensor && tensor->struct_size >= HAL_STRUCT_SIZE(hal_tensor_t, flags) && tensor->data;
}

/* Returns 1 and the number of elements of a plain tensor if it is at least one and fits into 63 bits, else 0. A
 * negative size is a huge unsigned one. */
static inline int hal_op_dense_numel(const hal_tensor_t *tensor, uint64_t *out_numel) {
  uint64_t numel = 1;
  if (HAL_UNLIKELY((uint32_t)tensor->ndim > HAL_OP_MAX_DIMS)) return 0;
  for (const int64_t *size = tensor->sizes, *end = size + tensor->ndim; size != end; size++)
    if (HAL_UNLIKELY(__builtin_mul_overflow(numel, (uint64_t)*size, &numel))) return 0;
  *out_numel = numel;
  return numel - 1 < (uint64_t)INT64_MAX;
}

/* Items of the contiguous form, of operands of these two dtypes. */
static inline uint64_t hal_op_dense_items(const hal_op_context_t *context, uint64_t n, hal_dtype_t x, hal_dtype_t y) {
  if (HAL_LIKELY(context->few_loops == 0)) return n;
  const uint32_t of_x = (uint32_t)hal_op_dtype_size(x), of_y = (uint32_t)hal_op_dtype_size(y);
  return hal_op_run_items(context, n, of_x > of_y ? of_x : of_y);
}

/* Returns the cached kernel of a dtype; NULL if it is not known (yet). */
static inline hal_plugin_kernel_t *hal_op_kernel_cached(const hal_op_context_t *context, hal_dtype_t dtype,
                                                        uint32_t variant) {
  const uint32_t slot = (uint32_t)dtype < 32u ? hal_op_dtype_slots[dtype] : 0xffu;
  if (HAL_UNLIKELY(slot >= HAL_OP_DTYPE_SLOTS)) return NULL;
  hal_plugin_kernel_t *kernel =
      atomic_load_explicit(&context->handles[slot * context->info->variant_count + variant], memory_order_acquire);
  return (void *)kernel == (void *)&hal_op_no_kernel ? NULL : kernel;
}

/* Converts an integer or floating number to float32, for kernels that compute in it. Returns 1, or 0 for other
 * values. */
static inline int hal_op_dense_single(const hal_value_t *value, hal_dtype_t dtype, float *out_number) {
  const int single = dtype == HAL_FLOAT32 || dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16;
  if (HAL_UNLIKELY(!single || (value->tag != HAL_VALUE_INT && value->tag != HAL_VALUE_DOUBLE))) return 0;
  *out_number = value->tag == HAL_VALUE_INT ? (float)value->u.i : (float)value->u.d;
  return 1;
}

/* Converts a number, for float32 without a call. Returns whether it fits the dtype. */
static inline int hal_op_dense_scalar(const hal_op_context_t *context, const hal_value_t *value, hal_dtype_t dtype,
                                      hal_op_scalar_t *out_scalar) {
  out_scalar->size = sizeof(float);
  if (HAL_LIKELY(hal_op_dense_single(value, dtype, &out_scalar->u.f32))) return 1;
  return hal_op_scalar(context, value, dtype, "", out_scalar) == HAL_OK;
}

/* Reads the numbers, without a call if there is at most one. Returns whether they fit the dtype. A float32 is written
 * where the kernel reads it, because copying a union of which a part was just written stalls the processor. */
static inline int hal_op_dense_numbers(const hal_op_context_t *context, const hal_op_call_t *call, hal_dtype_t dtype,
                                       hal_op_numbers_t *out_numbers) {
  static const hal_value_t zero = {.tag = HAL_VALUE_INT};
  const hal_op_info_t *info = context->info;
  const hal_value_t *const value = info->scalars ? &call->args[info->operands] : &zero;
  float number;
  if (HAL_UNLIKELY(info->scalars > 1 || !hal_op_dense_single(value, dtype, &number)))
    return hal_op_elementwise_numbers(context, call, dtype, out_numbers) == HAL_OK;
  memcpy(out_numbers->bytes, &number, sizeof number);
  out_numbers->size = sizeof number;
  return 1;
}

#endif /* HAL_SRC_OP_ELEMENTWISE_H_ */
