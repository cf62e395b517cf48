/* args.c: reads and checks the arguments of an operator's call; every message contains the operator and the
 * argument. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "op/internal.h"
#include "op/iterator.h"
#include "op/parts.h"

hal_dtype_t hal_op_dtype_moved(hal_dtype_t dtype) {
  switch (hal_op_dtype_size(dtype)) {
    case 1:
      return HAL_UINT8;
    case 2:
      return HAL_INT16;
    case 4:
      return HAL_INT32;
    case 8:
      return HAL_INT64;
    default:
      return HAL_COMPLEX128;
  }
}

hal_status_t hal_op_invalid(const hal_op_context_t *context, const char *format, ...) {
  char message[512];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  return hal_error_set(HAL_INVALID_ARGUMENT, "%s: %s", hal_op_error_name(context->called), message);
}

hal_status_t hal_op_too_large(const hal_op_context_t *context, uint64_t units) {
  return hal_error_set(HAL_OUT_OF_RANGE,
                       "%s: a launch of %llu items or groups does not fit into 2^31 - 1 blocks; split the operand",
                       hal_op_error_name(context->called), (unsigned long long)units);
}

hal_status_t hal_op_check_tensor(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what) {
  if (!tensor) return hal_op_invalid(context, "%s is NULL", what);
  if (tensor->struct_size < HAL_STRUCT_SIZE(hal_tensor_t, flags))
    return hal_op_invalid(context, "%s has struct_size %llu, expected at least %llu", what,
                          (unsigned long long)tensor->struct_size,
                          (unsigned long long)HAL_STRUCT_SIZE(hal_tensor_t, flags));
  if (tensor->ndim < 0) return hal_op_invalid(context, "%s has %d dimensions", what, (int)tensor->ndim);
  if (tensor->ndim > HAL_OP_MAX_DIMS)
    return hal_error_set(HAL_UNIMPLEMENTED, "%s: %s has %d dimensions; kernels take up to %d",
                         hal_op_error_name(context->called), what, (int)tensor->ndim, HAL_OP_MAX_DIMS);
  if (tensor->ndim > 0 && (!tensor->sizes || !tensor->strides))
    return hal_op_invalid(context, "%s has no sizes or strides", what);
  int empty = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] < 0)
      return hal_op_invalid(context, "%s has size %lld in dimension %d", what, (long long)tensor->sizes[d], (int)d);
    empty |= tensor->sizes[d] == 0;
  }
  if (!tensor->data && !empty) return hal_op_invalid(context, "%s has elements but no data", what);
  return HAL_OK;
}

/* Returns argument `index`, or NULL with a message if the call lacks it. */
static const hal_value_t *argument(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index) {
  if (index < call->arg_count && index < context->info->argument_count) return &call->args[index];
  hal_op_invalid(context, "argument %u is missing; the call has %u", (unsigned)index, (unsigned)call->arg_count);
  return NULL;
}

static hal_status_t wrong_kind(const hal_op_context_t *context, uint32_t index, const hal_value_t *value,
                               const char *wanted) {
  return hal_op_invalid(context, "argument `%s` has the value tag %u; expected %s", context->info->arguments[index],
                        (unsigned)value->tag, wanted);
}

hal_status_t hal_op_tensor(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           const hal_tensor_t **out_tensor) {
  const hal_value_t *value = argument(context, call, index);
  if (!value) return HAL_INVALID_ARGUMENT;
  if (value->tag != HAL_VALUE_TENSOR) return wrong_kind(context, index, value, "a tensor");
  HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, value->u.t, context->info->arguments[index]));
  *out_tensor = value->u.t;
  return HAL_OK;
}

hal_status_t hal_op_result(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           const hal_tensor_t **out_tensor) {
  if (index >= call->result_count)
    return hal_op_invalid(context, "result %u is missing; the call has %u", (unsigned)index,
                          (unsigned)call->result_count);
  HAL_RETURN_IF_ERROR(hal_op_check_tensor(context, call->results[index], "the result"));
  *out_tensor = call->results[index];
  return HAL_OK;
}

/* Returns whether a floating number is an integer that fits in 64 bits; the limits are exact as doubles. */
static int is_int64(double value) { return value >= -0x1p63 && value < 0x1p63 && value == trunc(value); }

hal_status_t hal_op_int(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                        int64_t *out_value) {
  const hal_value_t *value = argument(context, call, index);
  if (!value) return HAL_INVALID_ARGUMENT;
  if (value->tag == HAL_VALUE_INT || value->tag == HAL_VALUE_BOOL) {
    *out_value = value->u.i;
    return HAL_OK;
  }
  if (value->tag != HAL_VALUE_DOUBLE || !is_int64(value->u.d)) return wrong_kind(context, index, value, "an integer");
  *out_value = (int64_t)value->u.d;
  return HAL_OK;
}

hal_status_t hal_op_double(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                           double *out_value) {
  const hal_value_t *value = argument(context, call, index);
  if (!value) return HAL_INVALID_ARGUMENT;
  if (value->tag == HAL_VALUE_DOUBLE)
    *out_value = value->u.d;
  else if (value->tag == HAL_VALUE_INT || value->tag == HAL_VALUE_BOOL)
    *out_value = (double)value->u.i;
  else
    return wrong_kind(context, index, value, "a number");
  return HAL_OK;
}

hal_status_t hal_op_int_list(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                             const int64_t **out_list, uint32_t *out_count) {
  const hal_value_t *value = argument(context, call, index);
  if (!value) return HAL_INVALID_ARGUMENT;
  if (value->tag == HAL_VALUE_INT) { /* a single integer counts as a list */
    *out_list = &value->u.i;
    *out_count = 1;
    return HAL_OK;
  }
  if (value->tag == HAL_VALUE_NONE) {
    *out_list = NULL;
    *out_count = 0;
    return HAL_OK;
  }
  if (value->tag != HAL_VALUE_INT_LIST || (value->count && !value->u.il))
    return wrong_kind(context, index, value, "a list of integers");
  *out_list = value->u.il;
  *out_count = value->count;
  return HAL_OK;
}

/* Stores an integer in an integer type, modulo its width. */
static void store_int(int64_t value, hal_dtype_t dtype, hal_op_scalar_t *out) {
  switch (dtype) {
    case HAL_INT64:
      out->u.i64 = value;
      break;
    case HAL_INT32:
      out->u.i32 = (int32_t)(uint32_t)(uint64_t)value;
      break;
    case HAL_INT16:
      out->u.i16 = (int16_t)(uint16_t)(uint64_t)value;
      break;
    case HAL_INT8:
      out->u.i8 = (int8_t)(uint8_t)(uint64_t)value;
      break;
    case HAL_BOOL:
      out->u.u8 = value != 0;
      break;
    default:
      out->u.u8 = (uint8_t)(uint64_t)value;
      break;
  }
}

/* Stores a number in the type that kernels of a floating or complex dtype compute in. Returns 1, or 0 for other
 * dtypes. */
static int store_floating(double re, double im, hal_dtype_t dtype, hal_op_scalar_t *out) {
  switch (dtype) {
    case HAL_FLOAT16:
    case HAL_BFLOAT16:
    case HAL_FLOAT32:
      out->size = sizeof(float);
      out->u.f32 = (float)re;
      return 1;
    case HAL_FLOAT64:
      out->size = sizeof(double);
      out->u.f64 = re;
      return 1;
    case HAL_COMPLEX64:
      out->size = 2 * sizeof(float);
      out->u.c64[0] = (float)re, out->u.c64[1] = (float)im;
      return 1;
    case HAL_COMPLEX128:
      out->size = 2 * sizeof(double);
      out->u.c128[0] = re, out->u.c128[1] = im;
      return 1;
    default:
      return 0;
  }
}

hal_status_t hal_op_scalar(const hal_op_context_t *context, const hal_value_t *value, hal_dtype_t dtype,
                           const char *what, hal_op_scalar_t *out_scalar) {
  out_scalar->size = hal_op_dtype_size(dtype);
  if (HAL_UNLIKELY(!hal_op_has_slot(dtype)))
    return hal_op_invalid(context, "`%s` cannot be converted to %s", what, hal_op_dtype_name(dtype));
  switch (value->tag) {
    case HAL_VALUE_INT:
    case HAL_VALUE_BOOL:
      if (dtype == HAL_FLOAT32) /* rounded once */
        out_scalar->u.f32 = (float)value->u.i;
      else if (!store_floating((double)value->u.i, 0, dtype, out_scalar))
        store_int(value->u.i, dtype, out_scalar);
      return HAL_OK;
    case HAL_VALUE_COMPLEX:
      if (value->u.dl && hal_op_is_complex(dtype)) {
        store_floating(value->u.dl[0], value->u.dl[1], dtype, out_scalar);
        return HAL_OK;
      }
      return hal_op_invalid(context, "argument `%s` is a complex number; the operands have dtype %s", what,
                            hal_op_dtype_name(dtype));
    case HAL_VALUE_DOUBLE:
      break;
    default:
      return hal_op_invalid(context, "argument `%s` has the value tag %u; expected a number", what,
                            (unsigned)value->tag);
  }
  if (store_floating(value->u.d, 0, dtype, out_scalar)) return HAL_OK;
  if (dtype == HAL_BOOL) {
    out_scalar->u.u8 = value->u.d != 0;
    return HAL_OK;
  }
  if (!is_int64(value->u.d))
    return hal_op_invalid(context,
                          "argument `%s` is %g, which %s cannot represent; cast the operands to a floating dtype first",
                          what, value->u.d, hal_op_dtype_name(dtype));
  store_int((int64_t)value->u.d, dtype, out_scalar);
  return HAL_OK;
}

hal_status_t hal_op_numel(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                          int64_t *out_numel) {
  int64_t numel = 1;
  int overflow = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    if (tensor->sizes[d] == 0) { /* the tensor is empty, however large its other sizes are */
      *out_numel = 0;
      return HAL_OK;
    }
    overflow |= __builtin_mul_overflow(numel, tensor->sizes[d], &numel);
  }
  if (overflow) return hal_op_invalid(context, "%s has more than 2^63 - 1 elements", what);
  *out_numel = numel;
  return HAL_OK;
}

int hal_op_is_contiguous(const hal_tensor_t *tensor) {
  for (int32_t d = 0; d < tensor->ndim; d++)
    if (tensor->sizes[d] == 0) return 1;  // regardless of its strides
  int64_t expected = 1;
  for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
    if (tensor->sizes[d] != 1 && tensor->strides[d] != expected) return 0;
    if (__builtin_mul_overflow(expected, tensor->sizes[d], &expected)) return 0;
  }
  return 1;
}

hal_status_t hal_op_check_dense(const hal_op_context_t *context, const hal_tensor_t *tensor, const char *what,
                                int64_t count, hal_dtype_t dtype) {
  int64_t numel;
  HAL_RETURN_IF_ERROR(hal_op_numel(context, tensor, what, &numel));
  if (numel != count || !hal_op_is_contiguous(tensor) || tensor->dtype != dtype)
    return hal_op_invalid(context, "%s has %lld elements of dtype %s; expected %lld contiguous ones of %s", what,
                          (long long)numel, hal_op_dtype_name(tensor->dtype), (long long)count,
                          hal_op_dtype_name(dtype));
  return HAL_OK;
}

hal_status_t hal_op_optional_dense(const hal_op_context_t *context, const hal_op_call_t *call, uint32_t index,
                                   int64_t count, hal_dtype_t dtype, const hal_tensor_t **out_tensor) {
  *out_tensor = NULL;
  if (call->args[index].tag == HAL_VALUE_NONE) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_op_tensor(context, call, index, out_tensor));
  return hal_op_check_dense(context, *out_tensor, context->info->arguments[index], count, dtype);
}
