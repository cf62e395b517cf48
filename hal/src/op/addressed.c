/* addressed.c: copies of calls for implementations that use another device number. */
#include "op/addressed.h"

#include <string.h>

#include "base/host_malloc.h"
#include "base/likely.h"
#include "hal/status.h"

static int names(const hal_tensor_t *tensor, int32_t device) { return !tensor || tensor->device == device; }

static uint32_t list_length(const hal_value_t *value) { return value->tag == HAL_VALUE_TENSOR_LIST ? value->count : 0; }

static int names_device(const hal_op_call_t *call, int32_t device) {
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *const value = &call->args[i];
    if (value->tag == HAL_VALUE_TENSOR && !names(value->u.t, device)) return 0;
    for (uint32_t j = 0; j < list_length(value); j++)
      if (!names(value->u.tl[j], device)) return 0;
  }
  for (uint32_t i = 0; i < call->result_count; i++)
    if (!names(call->results[i], device)) return 0;
  return 1;
}

/* Positions in a copy for the next parts: tensors, arguments, pointers to tensors. */
typedef struct parts_s {
  int32_t device;
  hal_tensor_t *tensors;
  hal_value_t *values;
  const hal_tensor_t **pointers;
} parts_t;

static const hal_tensor_t *copy_tensor(parts_t *parts, const hal_tensor_t *tensor) {
  if (!tensor) return NULL;
  hal_tensor_t *const copy = parts->tensors++;
  *copy = (hal_tensor_t){.struct_size = 0};
  memcpy(copy, tensor, tensor->struct_size < sizeof *copy ? tensor->struct_size : sizeof *copy);
  copy->device = parts->device;
  return copy;
}

static const hal_tensor_t *const *copy_list(parts_t *parts, const hal_tensor_t *const *list, uint32_t count) {
  const hal_tensor_t **const copy = parts->pointers;
  parts->pointers += count;
  for (uint32_t i = 0; i < count; i++) copy[i] = copy_tensor(parts, list[i]);
  return copy;
}

static void copy_values(parts_t *parts, const hal_value_t *values, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    hal_value_t *const copy = &parts->values[i];
    *copy = values[i];
    if (copy->tag == HAL_VALUE_TENSOR) copy->u.t = copy_tensor(parts, copy->u.t);
    if (copy->tag == HAL_VALUE_TENSOR_LIST) copy->u.tl = copy_list(parts, copy->u.tl, copy->count);
  }
}

static hal_status_t copy_call(const hal_op_call_t *call, int32_t device, hal_op_addressed_t *out_addressed) {
  size_t tensors = call->result_count, pointers = call->result_count;
  for (uint32_t i = 0; i < call->arg_count; i++) {
    tensors += (call->args[i].tag == HAL_VALUE_TENSOR) + list_length(&call->args[i]);
    pointers += list_length(&call->args[i]);
  }
  const size_t bytes =
      tensors * sizeof(hal_tensor_t) + call->arg_count * sizeof(hal_value_t) + pointers * sizeof(void *);
  out_addressed->heap = bytes > sizeof out_addressed->room ? hal_malloc(bytes) : NULL;
  if (bytes > sizeof out_addressed->room && !out_addressed->heap)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the %zu tensors of a call", tensors);
  parts_t parts = {.device = device, .tensors = out_addressed->heap ? out_addressed->heap : out_addressed->room};
  parts.values = (hal_value_t *)(void *)(parts.tensors + tensors);
  parts.pointers = (const hal_tensor_t **)(void *)(parts.values + call->arg_count);
  hal_op_call_t *const copy = &out_addressed->call;
  *copy = (hal_op_call_t){.struct_size = 0};
  memcpy(copy, call, call->struct_size < sizeof *copy ? call->struct_size : sizeof *copy);
  copy->args = parts.values;
  copy_values(&parts, call->args, call->arg_count);
  copy->results = copy_list(&parts, call->results, call->result_count);
  return HAL_OK;
}

hal_status_t hal_op_address(const hal_op_call_t *call, int32_t device, hal_op_addressed_t *room,
                            const hal_op_call_t **out_call) {
  room->heap = NULL;
  *out_call = call;
  if (HAL_LIKELY(names_device(call, device))) return HAL_OK;
  *out_call = &room->call;
  return copy_call(call, device, room);
}

void hal_op_addressed_release(hal_op_addressed_t *room) {
  if (HAL_UNLIKELY(room->heap != NULL)) hal_free(room->heap);
}
