/* call.c: operator calls that outlive their caller: copied with everything that they point to, and described. */
#include <stdint.h>
#include <string.h>

#include "base/describe.h"
#include "base/text.h"
#include "capture/program.h"

/* A copy in progress; `failed` is set if there was no memory. */
typedef struct copying_s {
  hal_arena_t *arena;
  int failed;
} copying_t;

static void *copy(copying_t *copying, const void *data, size_t size) {
  void *const piece = data ? hal_arena_copy(copying->arena, data, size) : NULL;
  copying->failed |= data && !piece;
  return piece;
}

static const hal_tensor_t *copy_tensor(copying_t *copying, const hal_tensor_t *tensor) {
  hal_tensor_t *const own = tensor ? copy(copying, tensor, sizeof *tensor) : NULL;
  if (!own) return NULL;
  const size_t bytes = own->ndim > 0 ? (size_t)own->ndim * sizeof(int64_t) : 0;
  own->sizes = copy(copying, own->sizes, bytes);
  own->strides = copy(copying, own->strides, bytes);
  return own;
}

static const hal_tensor_t *const *copy_tensors(copying_t *copying, const hal_tensor_t *const *tensors, uint32_t count) {
  const hal_tensor_t **const own = copy(copying, tensors, count * sizeof *tensors);
  for (uint32_t i = 0; own && i < count; i++) own[i] = copy_tensor(copying, tensors[i]);
  return own;
}

static void copy_value(copying_t *copying, hal_value_t *value) {
  switch (value->tag) {
    case HAL_VALUE_STRING:
      value->u.s = copy(copying, value->u.s, value->u.s ? strlen(value->u.s) + 1 : 0);
      break;
    case HAL_VALUE_TENSOR:
      value->u.t = copy_tensor(copying, value->u.t);
      break;
    case HAL_VALUE_TENSOR_LIST:
      value->u.tl = copy_tensors(copying, value->u.tl, value->count);
      break;
    case HAL_VALUE_INT_LIST:
    case HAL_VALUE_DOUBLE_LIST: /* both of 8 bytes */
      value->u.il = copy(copying, value->u.il, value->count * sizeof(int64_t));
      break;
    case HAL_VALUE_COMPLEX:
      value->u.dl = copy(copying, value->u.dl, 2 * sizeof(double));
      break;
    case HAL_VALUE_BOOL_LIST:
      value->u.bl = copy(copying, value->u.bl, value->count);
      break;
    case HAL_VALUE_SCALAR_LIST: {
      hal_value_t *const list = copy(copying, value->u.vl, value->count * sizeof *list);
      for (uint32_t i = 0; list && i < value->count; i++) copy_value(copying, &list[i]);
      value->u.vl = list;
      break;
    }
    default: /* the value itself */
      break;
  }
}

hal_op_call_t *hal_program_copy_call(hal_arena_t *arena, const hal_op_call_t *call) {
  copying_t copying = {.arena = arena};
  hal_op_call_t *const own = hal_arena_take(arena, sizeof *own);
  if (!own) return NULL;
  *own = (hal_op_call_t){.struct_size = 0};
  memcpy(own, call, call->struct_size < sizeof *own ? call->struct_size : sizeof *own);
  own->struct_size = sizeof *own; /* fields that the caller's struct lacks are zero */
  hal_value_t *const args = copy(&copying, call->args, call->arg_count * sizeof *args);
  for (uint32_t i = 0; args && i < call->arg_count; i++) copy_value(&copying, &args[i]);
  own->args = args;
  own->results = copy_tensors(&copying, call->results, call->result_count);
  own->host = NULL;
  own->stream = NULL;
  return copying.failed ? NULL : own;
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

const char *hal_program_describe(hal_arena_t *arena, const hal_op_call_t *call) {
  char text[1024] = "(";
  if (!call) return NULL;
  hal_describe_arguments(text, sizeof text, call);
  hal_text_append(text, sizeof text, ") -> ");
  hal_describe_results(text, sizeof text, call);
  return hal_arena_copy(arena, text, strlen(text) + 1);
}
