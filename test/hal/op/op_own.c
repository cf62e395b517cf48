/* Tests of a plugin's own operators: the calls that match their descriptors, queries, scratch memory, and states of
 * random numbers in device memory. The plugin is the fixture takes_ops. If the plugin does not match, the function
 * of a library runs and returns -1. */
#include "support.h"

static int64_t sizes[5] = {2, 3, 4, 5}, strides[5] = {60, 20, 5, 1};
static hal_tensor_t tensor;
static hal_value_t args[2];
static hal_op_call_t call;
static const hal_tensor_t *results[1];
static float *memory;

/* The library's function. */
static hal_status_t answer(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *run) {
  (void)state, (void)device, (void)stream;
  *(float *)run->results[0]->data = -1;
  return HAL_OK;
}

static void setup(void) {
  hal_block_t *block = NULL;
  open_fixture("takes_ops");
  assert_ok(hal_memory_allocate(0, NULL, 4096, &block));
  memory = hal_memory_block_address(block);
  tensor = (hal_tensor_t){.struct_size = sizeof tensor,
                          .data = memory,
                          .sizes = sizes,
                          .strides = strides,
                          .ndim = 4,
                          .dtype = HAL_FLOAT32};
  args[0] = (hal_value_t){.tag = HAL_VALUE_TENSOR, .u.t = &tensor};
  args[1] = (hal_value_t){.tag = HAL_VALUE_NONE};
  results[0] = &tensor;
  call =
      (hal_op_call_t){.struct_size = sizeof call, .arg_count = 2, .result_count = 1, .args = args, .results = results};
}

TestSuite(op_own, .init = setup);

static uint32_t op_of(const char *name) {
  uint32_t op = 0;
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = name, .argument_count = 2, .fn = answer};
  if (hal_op_id(name, &op)) assert_ok(hal_op_define(&desc, &op));
  return op;
}

/* Runs the operator; returns 1 if the plugin ran the call. */
static int taken(const char *name) {
  *memory = 0;
  assert_ok(hal_op_run(0, op_of(name), NULL, &call));
  return *memory > 0;
}

static int32_t verdict(const char *name) {
  int32_t told = 9;
  *memory = 7;
  assert_ok(hal_op_query(0, op_of(name), &call, &told));
  cr_assert_eq(*memory, 7, "a query runs nothing");
  return told;
}

/* Strides of torch.channels_last. */
static void channels_last(void) { memcpy(strides, (int64_t[]){60, 1, 15, 3}, 4 * sizeof *strides); }

Test(op_own, a_tensor_of_a_dtype_that_the_descriptor_lacks_is_not_shown) {
  cr_assert(taken("test::dense32"));
  tensor.dtype = HAL_BFLOAT16;
  cr_assert_not(taken("test::dense32"));
  cr_assert(taken("test::strided"));
}

Test(op_own, every_tensor_counts_results_and_lists_too) {
  const hal_tensor_t other = {
      .struct_size = sizeof other, .data = memory, .sizes = sizes, .strides = strides, .ndim = 1, .dtype = HAL_INT64};
  const hal_tensor_t *const list[] = {&tensor, &other};
  args[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR_LIST, .count = 2, .u.tl = list};
  cr_assert_not(taken("test::dense32"));
  args[1].count = 1;
  cr_assert(taken("test::dense32"));
  args[1] = (hal_value_t){.tag = HAL_VALUE_TENSOR}; /* an optional argument that is omitted */
  cr_assert(taken("test::dense32"));
}

Test(op_own, contiguous_operators_see_contiguous_tensors_only) {
  strides[0] = 64;
  cr_assert_not(taken("test::dense32"));
  sizes[0] = 1; /* its stride has no meaning */
  cr_assert(taken("test::dense32"));
  channels_last();
  cr_assert_not(taken("test::dense32"));
}

Test(op_own, a_dense_call_is_contiguous_by_its_flag) {
  call.flags = HAL_CALL_DENSE;
  cr_assert(taken("test::dense32"));
  tensor.dtype = HAL_FLOAT64;
  cr_assert_not(taken("test::dense32"));
}

Test(op_own, channels_last_operators_see_channels_last_tensors_only) {
  tensor.dtype = HAL_BFLOAT16;
  cr_assert_not(taken("test::last16"));
  channels_last();
  cr_assert(taken("test::last16"));
  sizes[1] = 1, strides[0] = 20, strides[1] = 20, strides[2] = 5, strides[3] = 1; /* both at once */
  cr_assert(taken("test::last16"));
}

Test(op_own, channels_last_of_five_dimensions) {
  tensor.dtype = HAL_BFLOAT16;
  tensor.ndim = 5;
  memcpy(sizes, (int64_t[]){2, 3, 4, 5, 6}, sizeof sizes);
  memcpy(strides, (int64_t[]){360, 1, 90, 18, 3}, sizeof strides);
  cr_assert(taken("test::last16"));
  strides[2] = 91;
  cr_assert_not(taken("test::last16"));
}

Test(op_own, a_plugin_sees_the_arguments_that_it_knows) {
  *memory = 0;
  assert_ok(hal_op_run(0, op_of("test::one_argument"), NULL, &call));
  cr_assert_eq(*memory, 1);
  cr_assert_eq(call.arg_count, 2, "the caller's call is as before");
  args[1] = (hal_value_t){.tag = HAL_VALUE_INT, .u.i = 5}; /* not its default */
  cr_assert_not(taken("test::one_argument"));
  cr_assert(taken("test::strided"));
}

/* Calls only the plugin's operator, which declines; returns whether it declines such calls always. */
static int declines_alike(const char *name) {
  call.flags = HAL_RUN_DECLINED_ALIKE; /* of an earlier call */
  cr_assert_eq(hal_op_run_own(0, op_of(name), NULL, &call), HAL_UNIMPLEMENTED);
  return (call.flags & HAL_RUN_DECLINED_ALIKE) != 0;
}

Test(op_own, a_decline_is_constant_by_the_flag_and_by_the_descriptor) {
  static const uint64_t state[2] = {1, 2};
  cr_assert(declines_alike("test::declines_alike"));
  cr_assert_not(declines_alike("test::declines"));
  call.random_state = state; /* only in this call */
  cr_assert_not(declines_alike("test::declines_alike"));
  call.random_state = NULL;
  tensor.dtype = HAL_BFLOAT16;
  cr_assert(declines_alike("test::dense32"));
  cr_assert_not(declines_alike("test::declines"));
}

/* input, weight, bias, eps, followed by normalized_shape of the portable kernel. */
Test(op_own, further_arguments_are_for_the_plugin) {
  uint32_t op = 0;
  static const int64_t shape[] = {5};
  const hal_value_t given[6] = {args[0],
                                {.tag = HAL_VALUE_NONE},
                                {.tag = HAL_VALUE_NONE},
                                {.tag = HAL_VALUE_DOUBLE, .u.d = 1e-5},
                                {.tag = HAL_VALUE_INT_LIST, .count = 1, .u.il = shape}};
  assert_ok(hal_op_id("native_layer_norm", &op));
  call.args = given;
  for (call.arg_count = 4; call.arg_count <= 5; call.arg_count++) {
    assert_ok(hal_op_run_own(0, op, NULL, &call));
    cr_assert_eq(*memory, (float)call.arg_count);
  }
  assert_fails(hal_op_run_own(0, op, NULL, &call), HAL_INVALID_ARGUMENT,
               "the call has 6 arguments, the operator has 5");
  call.arg_count = 3;
  assert_fails(hal_op_run_own(0, op, NULL, &call), HAL_INVALID_ARGUMENT, "the call has 3 arguments");
}

Test(op_own, portable_dtypes_are_those_of_kernels_alone) {
  uint32_t op = 0;
  assert_ok(hal_op_id("native_layer_norm", &op));
  cr_assert_eq(hal_op_own_dtypes(0, op), HAL_ALL_DTYPES);
  cr_assert_eq(hal_op_portable_dtypes(0, op), 0, "the plugin takes no portable kernels");
}

Test(op_own, the_dtypes_of_the_plugins_own_are_those_of_the_descriptor) {
  cr_assert_eq(hal_op_own_dtypes(0, op_of("test::dense32")), HAL_DTYPE_BIT(HAL_FLOAT32));
  cr_assert_eq(hal_op_own_dtypes(0, op_of("test::strided")), HAL_ALL_DTYPES);
  cr_assert_eq(hal_op_own_dtypes(0, op_of("test::nobodys")), 0);
}

Test(op_own, a_descriptor_without_layouts_is_not_used) {
  cr_assert_eq(hal_op_own_dtypes(0, op_of("test::hollow")), 0);
  cr_assert_not(taken("test::hollow"));
}

Test(op_own, a_descriptor_with_flags_of_a_later_version_is_not_used) {
  cr_assert_eq(hal_op_own_dtypes(0, op_of("test::later")), 0);
  cr_assert_not(taken("test::later"));
}

Test(op_own, a_query_returns_the_verdict_and_runs_nothing) {
  cr_assert_eq(verdict("test::even"), HAL_VERDICT_OWN);
  cr_assert_eq(verdict("test::always"), HAL_VERDICT_OWN);
  cr_assert_eq(verdict("test::strided"), HAL_VERDICT_UNSURE);
  cr_assert_eq(verdict("test::nobodys"), HAL_VERDICT_UNSURE); /* a library's function */
  sizes[0] = 3;
  cr_assert(verdict("test::even") == HAL_VERDICT_UNSURE && !taken("test::even"));
  tensor.dtype = HAL_BFLOAT16;
  cr_assert_eq(verdict("test::dense32"), HAL_VERDICT_UNSURE); /* declined, but the library may run it */
}

Test(op_own, operators_without_an_implementation_have_no_verdict) {
  uint32_t op = 0;
  int32_t told = 9;
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = "test::none", .argument_count = 2};
  assert_ok(hal_op_define(&desc, &op));
  assert_ok(hal_op_query(0, op, &call, &told));
  cr_assert_eq(told, HAL_VERDICT_NONE);
  call.arg_count = 1;
  assert_fails(hal_op_query(0, op, &call, &told), HAL_INVALID_ARGUMENT, "the call has 1 arguments");
}

Test(op_own, scratch_memory_is_given_during_the_call_and_taken_back_after_it) {
  hal_memory_stats_t before = {.struct_size = sizeof before}, after = before;
  assert_ok(hal_memory_stats(0, &before));
  for (int i = 0; i < 100; i++) cr_assert(taken("test::scratch"));
  assert_ok(hal_memory_stats(0, &after));
  cr_assert_eq(after.allocated_bytes[0].current, before.allocated_bytes[0].current);
}

Test(op_own, scratch_memory_that_there_is_not_is_the_operators_failure) {
  assert_ok(hal_memory_set_limit(0, (size_t)4 << 20));
  assert_fails(hal_op_run(0, op_of("test::much_scratch"), NULL, &call), HAL_RESOURCE_EXHAUSTED, "test::much_scratch");
}

Test(op_own, scratch_memory_outside_of_a_call_is_refused) {
  assert_fails(hal_op_run(0, op_of("test::stray_scratch"), NULL, &call), HAL_FAILED_PRECONDITION,
               "outside of an operator's call");
}

Test(op_own, a_state_in_device_memory_is_for_operators_that_read_it) {
  uint64_t *const state = (uint64_t *)(void *)(memory + 64);
  state[0] = 1, state[1] = 40;
  call.offset = 2;
  assert_ok(hal_op_run(0, op_of("test::draw_numbers"), NULL, &call));
  cr_assert_eq(*memory, 2);
  call.random_state = state;
  assert_ok(hal_op_run(0, op_of("test::sample"), NULL, &call));
  cr_assert_eq(*memory, 42);
  cr_assert_not(taken("test::draw_numbers"));
}
