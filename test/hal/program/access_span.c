/* access_span.c: the bytes that tensors access, with sizes and strides that exceed any memory. */
#include <criterion/criterion.h>
#include <string.h>

#include "capture/span.h"

static char memory[64];
static int64_t sizes[2], strides[2];
static hal_tensor_t tensor;
static uint64_t low, high;

static int span(void *data, int64_t size0, int64_t stride0, int64_t size1, int64_t stride1) {
  sizes[0] = size0, sizes[1] = size1;
  strides[0] = stride0, strides[1] = stride1;
  tensor = (hal_tensor_t){
      .struct_size = sizeof tensor, .data = data, .sizes = sizes, .strides = strides, .ndim = 2, .dtype = HAL_FLOAT32};
  return hal_span_of_tensor(&tensor, &low, &high);
}

Test(access_span, strides_of_both_signs_reach_before_and_after_the_first_element) {
  cr_assert_eq(span(memory + 32, 3, -2, 2, 5), 1);
  cr_assert_eq(low, (uint64_t)(uintptr_t)memory + 32 - 16);
  cr_assert_eq(high, (uint64_t)(uintptr_t)memory + 32 + 24);
  cr_assert_eq(span(memory, 0, INT64_MAX, 4, INT64_MIN), 0, "no elements, whatever the strides");
  cr_assert_eq(span(memory, INT64_MAX, INT64_MAX, 0, 1), 0);
  cr_assert_eq(span(NULL, 2, 1, 2, 1), 0);
}

Test(access_span, what_leaves_the_address_space_may_be_any_memory) {
  const int64_t large = INT64_C(1) << 32;
  cr_assert_lt(span(memory, large + 1, large, 1, 1), 0, "the reach wraps to 0");
  cr_assert_lt(span(memory, 2, INT64_MAX, 2, INT64_MAX), 0, "the sum wraps");
  cr_assert_lt(span(memory, 2, INT64_MIN, 2, INT64_MIN), 0);
  cr_assert_lt(span(memory, 2, INT64_C(1) << 62, 1, 1), 0, "the bytes wrap");
  cr_assert_lt(span(memory, 2, -(INT64_C(1) << 60), 1, 1), 0, "before address 0");
  cr_assert_lt(span(memory, large, 0, large, 0), 0, "more elements than numbers");
  cr_assert_lt(span(memory, -3, 1, 1, 1), 0, "a negative size");
}

/* A command in between may be moved past neither: the accesses of the operator are unknown. */
Test(access_span, an_operator_with_such_a_tensor_has_unknown_accesses) {
  hal_arena_t arena = {.chunks = NULL};
  hal_program_op_t op = {.op = 0};
  const hal_tensor_t *const results[] = {&tensor};
  const hal_op_call_t call = {.struct_size = sizeof call, .result_count = 1, .results = results};
  cr_assert_eq(span(memory, 2, 4, 4, 1), 1);
  hal_span_note(&arena, &op, &call);
  cr_assert_eq(op.span_count, 1);
  cr_assert(op.spans[0].dense && op.spans[0].writes);
  cr_assert_lt(span(memory, 2, INT64_MAX, 2, INT64_MAX), 0);
  op = (hal_program_op_t){.op = 0};
  hal_span_note(&arena, &op, &call);
  cr_assert(!op.spans && !op.span_count);
  hal_arena_destroy(&arena);
}
