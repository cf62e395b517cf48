/* span.h: the memory of tensors and of operators' operands. Private to hal/src. */
#ifndef HAL_SRC_CAPTURE_SPAN_H_
#define HAL_SRC_CAPTURE_SPAN_H_

#include "capture/program.h"

/* Computes the bytes of the elements from `below` to `above`, counted from an address. Returns 0 if they exceed the
 * address space. */
int hal_span_of_elements(const void *address, int64_t below, int64_t above, uint64_t size, uint64_t *low,
                         uint64_t *high);

/* Computes the bytes that a tensor accesses. Returns 1; 0 = none; -1 = its sizes and strides exceed the address space,
 * so it may be any memory. */
int hal_span_of_tensor(const hal_tensor_t *tensor, uint64_t *low, uint64_t *high);

/* Lists the memory of a call's tensors, in the arena. There is no list, and the operator has unknown memory effects, if
 * the host has no memory for it, a library defined the operator, or a tensor exceeds the address space. */
void hal_span_note(hal_arena_t *arena, hal_program_op_t *op, const hal_op_call_t *call);

#endif /* HAL_SRC_CAPTURE_SPAN_H_ */
