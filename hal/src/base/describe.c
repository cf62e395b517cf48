/* describe.c: see describe.h. */
#include "base/describe.h"

#include "base/dtype.h"
#include "base/text.h"

enum { MOST_SHOWN = 8 };

#define PUT(...) hal_text_append(text, size, __VA_ARGS__)

static void put_numbers(char *text, size_t size, const int64_t *numbers, int64_t count) {
  PUT("[");
  for (int64_t i = 0; i < count && i < MOST_SHOWN; i++) PUT("%s%lld", i ? "," : "", (long long)numbers[i]);
  PUT(count > MOST_SHOWN ? ",...]" : "]");
}

static int is_contiguous(const hal_tensor_t *tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->sizes[i] != 1 && tensor->strides[i] != expected) return 0;
    if (__builtin_mul_overflow(expected, tensor->sizes[i], &expected)) return 0;
  }
  return 1;
}

void hal_describe_tensor(char *text, size_t size, const hal_tensor_t *tensor) {
  if (!tensor) {
    PUT("none");
    return;
  }
  PUT("%s", hal_dtype_name(tensor->dtype));
  put_numbers(text, size, tensor->sizes, tensor->ndim);
  if (is_contiguous(tensor)) return;
  PUT(" strides ");
  put_numbers(text, size, tensor->strides, tensor->ndim);
}

void hal_describe_value(char *text, size_t size, const hal_value_t *value) {
  switch (value->tag) {
    case HAL_VALUE_NONE:
      PUT("none");
      return;
    case HAL_VALUE_DOUBLE:
      PUT("%g", value->u.d);
      return;
    case HAL_VALUE_STRING:
      PUT("\"%.80s\"", value->u.s);
      return;
    case HAL_VALUE_TENSOR:
      hal_describe_tensor(text, size, value->u.t);
      return;
    case HAL_VALUE_INT_LIST:
      put_numbers(text, size, value->u.il, value->count);
      return;
    case HAL_VALUE_DTYPE:
      PUT("%s", hal_dtype_name((hal_dtype_t)value->u.i));
      return;
    case HAL_VALUE_COMPLEX:
      PUT("%g%+gi", value->u.dl[0], value->u.dl[1]);
      return;
    case HAL_VALUE_TENSOR_LIST:
      PUT("{");
      for (uint32_t i = 0; i < value->count && i < MOST_SHOWN; i++) {
        if (i) PUT(", ");
        hal_describe_tensor(text, size, value->u.tl[i]);
      }
      PUT(value->count > MOST_SHOWN ? ", ... %u in all}" : "}", (unsigned)value->count);
      return;
    case HAL_VALUE_DOUBLE_LIST:
    case HAL_VALUE_BOOL_LIST:
    case HAL_VALUE_SCALAR_LIST:
      PUT("list of %u", (unsigned)value->count);
      return;
    default:
      PUT("%lld", (long long)value->u.i);
  }
}

void hal_describe_arguments(char *text, size_t size, const hal_op_call_t *call) {
  for (uint32_t i = 0; i < call->arg_count; i++) {
    if (i) PUT(", ");
    hal_describe_value(text, size, &call->args[i]);
  }
}

void hal_describe_results(char *text, size_t size, const hal_op_call_t *call) {
  for (uint32_t i = 0; i < call->result_count; i++) {
    if (i) PUT(", ");
    hal_describe_tensor(text, size, call->results[i]);
  }
}
