/* layer_own_op.c: tests of the validate layer for the plugin's own operators. */
#include "layer_testing.h"

static const int64_t sizes[] = {4}, strides[] = {1};
static hal_tensor_t tensor;
static hal_value_t arg;
static const hal_tensor_t *results[1];
static hal_op_call_t call;
static hal_op_own_t own;

static void find(void) {
  make_all();
  tensor = (hal_tensor_t){.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                          .data = memory,
                          .sizes = sizes,
                          .strides = strides,
                          .ndim = 1,
                          .dtype = HAL_FLOAT32};
  arg = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &tensor};
  results[0] = &tensor;
  call = (hal_op_call_t){.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, offset),
                         .stream = stream,
                         .arg_count = 1,
                         .result_count = 1,
                         .args = &arg,
                         .results = results};
  own.struct_size = sizeof own;
  assert_ok(hal_call_op_find(plugin, 0, "add.Tensor", &own));
}

Test(layer_own_op, an_operator_that_the_plugin_lacks_is_not_found) {
  find();
  cr_assert_eq(hal_call_op_find(plugin, 0, "sub.Tensor", &own), HAL_NOT_FOUND);
  cr_assert_str_empty(lines);
}

Test(layer_own_op, the_plugins_own_operators_are_judged_too) {
  find();
  assert_ok(own.fn(own.state, &call));
  assert_ok(own.query(own.state, &call));
  cr_assert_str_empty(lines);
  tensor.data = host;
  assert_misuse(own.fn(own.state, &call), "op_find", "add.Tensor, 1 bytes at");
  tensor.data = memory;
  tensor.device = 1;
  assert_misuse(own.fn(own.state, &call), "op_find", "add.Tensor: a tensor is of device 1");
  tensor.device = 0;
  setenv("ROGUE", "op_fails_silently", 1);
  lines[0] = '\0';
  cr_assert_eq(own.fn(own.state, &call), HAL_INTERNAL);
  assert_found("op_find", "add.Tensor returned INTERNAL without a message");
}

Test(layer_own_op, a_state_of_random_numbers_outside_of_device_memory_is_misuse) {
  find();
  call.struct_size = sizeof call;
  call.random_state = memory;
  assert_ok(own.fn(own.state, &call));
  call.random_state = (const uint64_t *)(void *)((char *)memory + 4088);
  assert_misuse(own.fn(own.state, &call), "op_find", "add.Tensor, 16 bytes at");
}

Test(layer_own_op, the_yes_of_a_query_binds) {
  find();
  setenv("ROGUE", "breaks_its_word", 1);
  cr_assert_eq(own.fn(own.state, &call), HAL_INTERNAL);
  assert_found("op_find", "declined a call that its query had accepted");
}

Test(layer_own_op, a_query_returns_one_of_two_codes) {
  find();
  setenv("ROGUE", "query_fails", 1);
  cr_assert_eq(own.query(own.state, &call), HAL_INTERNAL);
  assert_found("op_find", "a query returns OK or UNIMPLEMENTED");
}
