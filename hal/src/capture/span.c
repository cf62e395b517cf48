/* span.c: see span.h. */
#include "capture/span.h"

#include "base/dtype.h"
#include "hal_op_ids.h"

int hal_span_of_elements(const void *address, int64_t below, int64_t above, uint64_t size, uint64_t *low,
                         uint64_t *high) {
  int64_t first, end;
  if (__builtin_mul_overflow(below, size, &first) || __builtin_add_overflow(above, 1, &end) ||
      __builtin_mul_overflow(end, size, &end))
    return 0;
  return !__builtin_add_overflow((uint64_t)(uintptr_t)address, first, low) &&
         !__builtin_add_overflow((uint64_t)(uintptr_t)address, end, high);
}

/* Returns the memory of a tensor, and whether there are no gaps between its elements. Returns as hal_span_of_tensor. */
static inline int span_tensor(const hal_tensor_t *tensor, hal_span_t *span) {
  int64_t below = 0, above = 0, elements = 1, reach, length;
  int overflow = 0;
  for (int32_t d = 0; d < tensor->ndim; d++) {
    const int64_t count = tensor->sizes[d];
    if (count == 0) return 0;
    overflow |= __builtin_mul_overflow(count - (count > 0), tensor->strides[d], &reach);
    int64_t *const end = reach < 0 ? &below : &above;
    overflow |= __builtin_add_overflow(*end, reach, end);
    overflow |= __builtin_mul_overflow(elements, count, &elements);
  }
  if (!tensor->data) return 0;
  const uint64_t size = hal_dtype_size(tensor->dtype);
  if (HAL_UNLIKELY(overflow || elements < 0 || __builtin_sub_overflow(above, below, &length) ||
                   !hal_span_of_elements(tensor->data, below, above, size, &span->low, &span->high)))
    return -1;
  span->dense = length == elements - 1;
  return 1;
}

int hal_span_of_tensor(const hal_tensor_t *tensor, uint64_t *low, uint64_t *high) {
  hal_span_t span;
  const int has_memory = span_tensor(tensor, &span);
  if (has_memory > 0) {
    *low = span.low;
    *high = span.high;
  }
  return has_memory;
}

static uint32_t tensors_of(const hal_value_t *value) {
  return value->tag == HAL_VALUE_TENSOR ? value->u.t != NULL : value->tag == HAL_VALUE_TENSOR_LIST ? value->count : 0;
}

/* Returns 0 if the tensor may be in any memory. */
static int note_tensor(hal_span_t *spans, uint32_t *count, const hal_tensor_t *tensor, uint32_t writes) {
  hal_span_t *const span = &spans[*count];
  const int has_memory = tensor ? span_tensor(tensor, span) : 0;
  span->writes = writes;
  *count += has_memory > 0;
  return has_memory >= 0;
}

void hal_span_note(hal_arena_t *arena, hal_program_op_t *op, const hal_op_call_t *call) {
  uint32_t count = call->result_count;
  if (op->op >= HAL_OP_ID_COUNT) return; /* a library's function has unknown effects */
  for (uint32_t i = 0; i < call->arg_count; i++) count += tensors_of(&call->args[i]);
  hal_span_t *const spans =
      hal_arena_take(arena, (count + 1) * sizeof *spans); /* the last one is for a tensor without memory */
  uint32_t noted = 0;
  int all = 1;
  if (!spans) return;
  for (uint32_t i = 0; i < call->arg_count; i++) {
    const hal_value_t *const value = &call->args[i];
    for (uint32_t k = 0; k < tensors_of(value); k++)
      all &= note_tensor(spans, &noted, value->tag == HAL_VALUE_TENSOR ? value->u.t : value->u.tl[k], 0);
  }
  for (uint32_t i = 0; i < call->result_count; i++) all &= note_tensor(spans, &noted, call->results[i], 1);
  if (!all) return;
  op->spans = spans;
  op->span_count = noted;
}
