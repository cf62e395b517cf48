/* op_error_names.c: errors name PyTorch's operators, not the parts from which the device's operators are composed. */
#include "op/internal.h"
#include "op_numbers.h"

static const char *name_in_errors(uint32_t op) {
  return hal_op_infos[op].error_name ? hal_op_infos[op].error_name : hal_op_infos[op].name;
}

/* Makes a call fail by omitting operands or passing results that are not tensors. Returns the status. */
static hal_status_t call_without_operands(uint32_t op) {
  static const hal_value_t nothing[32] = {{0}};
  static const hal_tensor_t *const results[8] = {NULL};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = hal_op_infos[op].argument_count,
                        .result_count = 1,
                        .flags = HAL_RUN_PORTABLE,
                        .args = nothing,
                        .results = results};
  return hal_op_run(0, op, NULL, &call);
}

Test(op_error_names, an_operator_fails_by_the_name_that_torch_knows) {
  open_device();
  uint32_t failed = 0, parts = 0;
  for (uint32_t op = 0; op < hal_op_count(); op++) {
    if (call_without_operands(op) != HAL_INVALID_ARGUMENT) continue;
    const char *const expected = name_in_errors(op), *const text = hal_error_message();
    const size_t length = strlen(expected);
    cr_assert(!strncmp(text, expected, length) && !strncmp(text + length, ": ", 2), "%s: %s", hal_op_infos[op].name,
              text);
    failed++;
    parts += hal_op_infos[op].error_name != NULL;
  }
  cr_assert(failed > 200 && parts > 30, "%u operators failed, %u of them parts of others", failed, parts);
}

Test(op_error_names, the_operators_of_a_kernel_are_those_that_torch_knows) {
  char text[256];
  hal_op_names_of_kernel("take_i32_rows", text, sizeof text);
  cr_assert_str_eq(text, "gather, index_select, index");
  hal_op_names_of_kernel("nonzero_bool_count", text, sizeof text);
  cr_assert_str_eq(text, "nonzero");
  hal_op_names_of_kernel("no_kernel", text, sizeof text);
  cr_assert_str_eq(text, "");
}
