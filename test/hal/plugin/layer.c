/* Tests of the layers (HAL_LAYERS, HAL_FAULT), which need no code of the plugin. */
#include "support.h"

#include <stdio.h>

#include "plugin/call.h"

static char lines[16384];

static void keep(int32_t level, const char *message, void *unused) {
  (void)level, (void)unused;
  strncat(lines, message, sizeof lines - strlen(lines) - 2);
  strcat(lines, "\n");
}

/* Creates a stream on the fixture's second device; `lines` receives the output of the trace layer. */
static void trace_a_stream(void) {
  hal_stream_t *stream;
  setenv("HAL_LAYERS", "trace", 1);
  unsetenv("HAL_LOG");
  hal_log_set_sink(keep, NULL);
  open_fixture("five");
  assert_ok(hal_stream_acquire(1, 0, &stream));
}

Test(layer, trace_logs_every_call_with_op_and_result) {
  trace_a_stream();
  cr_assert_not_null(strstr(lines, "five.device_count -> OK, "), "%s", lines);
  cr_assert_not_null(strstr(lines, "five.init -> OK, "), "%s", lines);
  cr_assert_not_null(strstr(lines, "five.stream_create -> OK, "), "%s", lines);
}

Test(layer, trace_shows_a_call_and_its_arguments_before_it_is_made) {
  trace_a_stream();
  const char *const before =
      strstr(lines, "trace: > five.stream_create(device=1, desc=priority 0, engine 0, flags 0x0)");
  cr_assert_not_null(before, "%s", lines);
  cr_assert_not_null(strstr(before, "trace: five.stream_create -> OK, "), "%s", lines);
  cr_assert_not_null(strstr(lines, "trace: > five.init(options=\"\")"), "%s", lines);
  cr_assert_not_null(strstr(lines, "trace: > plugin.info()"), "%s", lines);
  cr_assert_not_null(strstr(lines, " ns, out_count=2\n"), "%s", lines); /* of device_count */
}

static const int64_t sizes[] = {2, 3}, strides[] = {1, 2};
static float numbers[6];

/* Calls an operator of the fixture own_ops like the host. */
static hal_status_t run_own(const char *name) {
  const hal_tensor_t tensor = {.struct_size = HAL_STRUCT_SIZE(hal_tensor_t, flags),
                               .data = numbers,
                               .sizes = sizes,
                               .strides = strides,
                               .ndim = 2,
                               .dtype = HAL_FLOAT32};
  const int64_t list[] = {4, 5};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensor},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 0.5},
                              {.tag = HAL_VALUE_INT_LIST, .count = 2, .u.il = list},
                              {.tag = HAL_VALUE_NONE}};
  const hal_tensor_t *const results[] = {&tensor};
  const hal_op_call_t call = {.struct_size = HAL_STRUCT_SIZE(hal_op_call_t, offset),
                              .arg_count = 4,
                              .result_count = 1,
                              .args = args,
                              .results = results};
  hal_op_own_t own = {.struct_size = sizeof own};
  assert_ok(hal_call_op_find(&hal_registry.plugins[0], 0, name, &own));
  return own.fn(own.state, &call);
}

Test(layer, trace_shows_the_plugins_own_operators_with_their_arguments) {
  setenv("HAL_LAYERS", "trace", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("own_ops");
  assert_ok(run_own("test::sign"));
  cr_assert_not_null(
      strstr(lines, "five.op run test::sign(float32[2,3] strides [1,2], 0.5, [4,5], none) into (float32[2,3]"), "%s",
      lines);
  cr_assert_not_null(strstr(lines, "trace: five.op run test::sign -> OK, "), "%s", lines);
  cr_assert_eq(run_own("test::only_double"), HAL_UNIMPLEMENTED);
  cr_assert_not_null(strstr(lines, "trace: five.op run test::only_double -> UNIMPLEMENTED, "), "%s", lines);
}

Test(layer, fault_fails_the_plugins_own_operators_all_or_by_name) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "op=test::sign:2:DATA_LOSS,op:3:UNIMPLEMENTED", 1);
  open_fixture("own_ops");
  assert_ok(run_own("test::sign"));
  cr_assert_eq(run_own("test::fail"), HAL_INTERNAL);
  cr_assert_eq(run_own("test::sign"), HAL_DATA_LOSS);
  cr_assert_eq(run_own("test::sign"), HAL_UNIMPLEMENTED); /* the third call without another failure */
  assert_ok(run_own("test::sign"));
}

Test(layer, a_name_that_is_no_functions_is_an_operators) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "test::sign:1:DATA_LOSS", 1);
  open_fixture("own_ops");
  cr_assert_eq(run_own("test::sign"), HAL_DATA_LOSS);
  assert_ok(run_own("test::sign"));
}

Test(layer, fault_fails_the_nth_call_once_with_the_status) {
  hal_event_t *event;
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "event_create:2:DATA_LOSS", 1);
  open_fixture("tally");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
  assert_fails(hal_event_create(0, 0, &event), HAL_DATA_LOSS, "tally, event_create: failed on purpose (HAL_FAULT)");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
}

Test(layer, the_default_status_is_RESOURCE_EXHAUSTED) {
  setenv("HAL_LAYERS", "fault", 1);
  setenv("HAL_FAULT", "stream_create:1", 1);
  open_fixture("tally");
  assert_fails(hal_device_ensure(0), HAL_RESOURCE_EXHAUSTED, "tally, stream_create");
  assert_ok(hal_device_ensure(0)); /* the failed attempt must not leave a plugin */
}

Test(layer, host_malloc_fails_the_nth_allocation_of_the_hal) {
  hal_generator_t *generator;
  setenv("HAL_FAULT", "host_malloc:3", 1);
  open_fixture("five"); /* the first two: the list, the path */
  assert_fails(hal_generator_create(1, &generator), HAL_RESOURCE_EXHAUSTED, "out of host memory");
  assert_ok(hal_generator_create(1, &generator));
  hal_generator_destroy(generator);
}

Test(layer, a_fault_that_cannot_be_understood_is_reported) {
  setenv("HAL_LAYERS", "fault,color", 1);
  setenv("HAL_FAULT", "stream_creat:1,memory_alloc:x,memory_alloc:1:NO_SUCH,memory_alloc,*:1:OK,op=:1,operator:1", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("tally");
  assert_ok(hal_device_ensure(0));
  cr_assert_not_null(strstr(lines, "HAL_LAYERS: 'color'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'stream_creat:1'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc:x'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc:1:NO_SUCH'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'memory_alloc'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: '*:1:OK'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'op=:1'"), "%s", lines);
  cr_assert_not_null(strstr(lines, "HAL_FAULT: 'operator:1'"), "%s", lines);
}
