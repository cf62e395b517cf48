/* Tests of hal_op_define: operators of libraries, looked up first in the plugin and then in the library. */
#include <pthread.h>
#include <stdint.h>

#include "support.h"

/* The last call of the library's own function. */
static struct {
  int32_t device, tensor_device;
  const void *state;
  int called, stream_is_null;
} seen;

static hal_status_t own(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  seen.called++;
  seen.device = device;
  seen.tensor_device = call->results[0]->device;
  seen.state = state;
  seen.stream_is_null = call->stream == NULL && hal_stream_device(stream) == device;
  *(float *)call->results[0]->data = 1;
  return HAL_OK;
}

static hal_status_t own_unimplemented(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state, (void)device, (void)stream, (void)call;
  return HAL_UNIMPLEMENTED;
}

static hal_status_t define(const char *name, hal_op_own_fn_t fn, uint32_t *out_op) {
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = name, .argument_count = 1, .fn = fn, .state = &seen};
  return hal_op_define(&desc, out_op);
}

static float result;
static hal_dtype_t dtype;

static hal_status_t run_with(hal_status_t (*way)(int32_t, uint32_t, hal_stream_t *, hal_op_call_t *), int32_t device,
                             uint32_t op, uint32_t flags) {
  static const int64_t size = 1, stride = 1;
  hal_tensor_t tensor = {.struct_size = sizeof tensor, .data = &result, .sizes = &size, .strides = &stride, .ndim = 1};
  tensor.dtype = dtype;
  const hal_value_t argument = {.tag = HAL_VALUE_TENSOR, .u = {.t = &tensor}};
  const hal_tensor_t *const results[] = {&tensor};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 1,
                        .result_count = 1,
                        .flags = flags,
                        .args = &argument,
                        .results = results};
  return way(device, op, NULL, &call);
}

/* A call with constants only, which name device 0. Its lists are too long to be copied without the heap. */
static hal_status_t run_constants(hal_status_t (*way)(int32_t, uint32_t, hal_stream_t *, hal_op_call_t *),
                                  int32_t device, uint32_t op) {
  enum { MANY = 40 };
  static const int64_t size = 1, stride = 1;
  static const hal_tensor_t tensor = {.struct_size = sizeof tensor,
                                      .data = &result,
                                      .sizes = &size,
                                      .strides = &stride,
                                      .ndim = 1,
                                      .dtype = HAL_FLOAT32};
  static const hal_tensor_t *list[MANY], *const results[] = {&tensor};
  static const hal_value_t long_list = {.tag = HAL_VALUE_TENSOR_LIST, .count = MANY, .u = {.tl = list}},
                           one = {.tag = HAL_VALUE_TENSOR, .u = {.t = &tensor}};
  for (int i = 0; i < MANY; i++) list[i] = i % 3 ? &tensor : NULL;
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 1,
                        .result_count = 1,
                        .args = way == hal_op_run ? &long_list : &one,
                        .results = results};
  return way(device, op, NULL, &call);
}

static hal_status_t run(int32_t device, uint32_t op) { return run_with(hal_op_run, device, op, 0); }

static void setup(void) {
  dtype = HAL_FLOAT32;
  assert_ok(hal_registry_open(FIXTURE("tally_two") "," FIXTURE("own_ops")));
}

TestSuite(op_define, .init = setup);

/* tally_two has no operators; own_ops has two devices after them. */
static int32_t second(void) {
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  assert_ok(hal_registry_plugin(1, &entry));
  return entry.first_device;
}

Test(op_define, a_plugins_own_operator_comes_first) {
  uint32_t op = 0;
  assert_ok(define("test::sign", own, &op));
  assert_ok(run(second() + 1, op));
  cr_assert_float_eq(result, 7.1, 1e-6, "%g", result); /* the plugin's ordinal 1 */
  cr_assert_eq(seen.called, 0);
}

Test(op_define, a_device_without_the_operator_takes_the_librarys_function) {
  uint32_t op = 0;
  assert_ok(define("test::sign", own, &op));
  assert_ok(run(0, op));
  cr_assert_eq(result, 1);
  cr_assert_eq(seen.device, 0);
  cr_assert_eq(seen.state, &seen);
  cr_assert(seen.stream_is_null);
}

Test(op_define, what_the_plugin_refuses_goes_to_the_librarys_function_with_the_hals_device) {
  uint32_t op = 0;
  assert_ok(define("test::only_double", own, &op));
  assert_ok(run(second() + 1, op));
  cr_assert_eq(result, 1);
  cr_assert_eq(seen.device, second() + 1);
  cr_assert_eq(seen.tensor_device, second() + 1);
  dtype = HAL_FLOAT64;
  assert_ok(run(second(), op));
  cr_assert_float_eq(result, 7, 1e-6);
  cr_assert_eq(seen.called, 1);
}

Test(op_define, constants_are_read_and_every_callee_sees_its_own_number_of_the_device) {
  uint32_t ours = 0, theirs = 0;
  assert_ok(define("test_own::constant", own, &ours));
  assert_ok(define("test::sign", own, &theirs));
  for (int32_t device = 0; device < hal_device_count(); device++) {
    assert_ok(run_constants(hal_op_run, device, ours));
    cr_assert_eq(seen.tensor_device, device);
  }
  const int called = seen.called;
  assert_ok(run_constants(hal_op_run_own, second() + 1, theirs));
  cr_assert_float_eq(result, 7.1, 1e-6, "%g", result); /* the plugin's ordinal 1 */
  assert_ok(run_constants(hal_op_run_own, second(), theirs));
  cr_assert_float_eq(result, 7, 1e-6, "%g", result);
  cr_assert_eq(seen.called, called);
}

Test(op_define, run_own_calls_only_the_plugin_and_runs_nothing_else_if_it_declines) {
  uint32_t op = 0, none = 0;
  assert_ok(define("test::only_double", own, &op));
  assert_ok(define("test::nobodys", own, &none));
  cr_assert_eq(run_with(hal_op_run_own, second(), op, 0), HAL_UNIMPLEMENTED);
  cr_assert_eq(run_with(hal_op_run_own, 0, none, 0), HAL_UNIMPLEMENTED);
  cr_assert_eq(seen.called, 0);
  dtype = HAL_FLOAT64;
  assert_ok(run_with(hal_op_run_own, second(), op, HAL_RUN_PORTABLE)); /* the plugin never receives the flag */
  cr_assert_float_eq(result, 7, 1e-6);
  hal_op_counts_t counts = {.struct_size = sizeof counts};
  assert_ok(hal_op_counts(op, &counts));
  cr_assert_eq(counts.plugin, 1);
  cr_assert_eq(counts.unimplemented, 0);
  cr_assert_neq(hal_op_own_dtypes(second(), op), 0);
  cr_assert_eq(hal_op_own_dtypes(0, op), 0);
  cr_assert_eq(hal_op_own_dtypes(-1, op), 0);
}

Test(op_define, RUN_PORTABLE_leaves_the_plugin_out) {
  uint32_t op = 0;
  assert_ok(define("test::sign", own, &op));
  assert_ok(run_with(hal_op_run, second(), op, HAL_RUN_PORTABLE));
  cr_assert_eq(result, 1);
  cr_assert_eq(seen.called, 1);
}

Test(op_define, an_operator_without_an_implementation_returns_UNIMPLEMENTED) {
  uint32_t none = 0, refusing = 0;
  assert_ok(define("test::nowhere", NULL, &none));
  assert_ok(define("test::refusing", own_unimplemented, &refusing));
  cr_assert_eq(run(0, none), HAL_UNIMPLEMENTED);
  cr_assert_eq(run(second(), refusing), HAL_UNIMPLEMENTED);
  cr_assert_eq(hal_op_dtypes(0, none), 0);
  cr_assert_eq(hal_op_dtypes(0, refusing), UINT64_MAX);
}

Test(op_define, a_failure_names_operator_and_plugin) {
  uint32_t op = 0;
  assert_ok(define("test::fail", own, &op));
  assert_fails(run(second(), op), HAL_INTERNAL, "test::fail: five, op_find: own_ops: out of order");
  cr_assert_eq(seen.called, 0);
}

static hal_status_t fail_silently(void *state, int32_t device, hal_stream_t *stream, const hal_op_call_t *call) {
  (void)state, (void)device, (void)stream, (void)call;
  return HAL_INTERNAL;
}

Test(op_define, a_failure_without_a_message_is_reported_as_such) {
  uint32_t op = 0;
  assert_ok(define("test::silent", fail_silently, &op));
  assert_fails(run(0, op + 1), HAL_INVALID_ARGUMENT, "operator number"); /* a message of another failure */
  assert_fails(run(0, op), HAL_INTERNAL, "test::silent: failed with INTERNAL (13) without a message");
}

Test(op_define, numbers_follow_those_of_the_build_and_are_found_by_name) {
  const uint32_t before = hal_op_count();
  uint32_t first = 0, second_op = 0, found = 0;
  assert_ok(define("test::a", own, &first));
  assert_ok(define("test::b", own, &second_op));
  cr_assert_eq(first, before);
  cr_assert_eq(second_op, before + 1);
  cr_assert_eq(hal_op_count(), before + 2);
  assert_ok(hal_op_id("test::b", &found));
  cr_assert_eq(found, second_op);
  cr_assert_str_eq(hal_op_name(found), "test::b");
  cr_assert_null(hal_op_name(before + 2));
  assert_fails(hal_op_id("test::c", &found), HAL_NOT_FOUND, "test::c");
}

Test(op_define, runs_are_counted_by_implementation) {
  uint32_t op = 0;
  hal_op_counts_t counts = {.struct_size = sizeof counts};
  assert_ok(define("test::only_double", own, &op));
  assert_ok(run(0, op));
  assert_ok(run(0, op));
  dtype = HAL_FLOAT64;
  assert_ok(run(second(), op));
  assert_ok(hal_op_counts(op, &counts));
  cr_assert_eq(counts.portable, 2);
  cr_assert_eq(counts.plugin, 1);
  hal_op_reset_counts();
  assert_ok(hal_op_counts(op, &counts));
  cr_assert_eq(counts.portable + counts.plugin + counts.unimplemented, 0);
  assert_fails(hal_op_counts(op + 1, &counts), HAL_OUT_OF_RANGE, "operator number");
}

Test(op_define, bad_definitions_and_calls_are_refused) {
  uint32_t op = 0;
  assert_fails(hal_op_define(NULL, &op), HAL_INVALID_ARGUMENT, "(null)");
  assert_fails(define("plain", own, &op), HAL_INVALID_ARGUMENT, "library::operator");
  assert_fails(define(NULL, own, &op), HAL_INVALID_ARGUMENT, "(null)");
  assert_ok(define("test::once", own, &op));
  assert_fails(define("test::once", own, &op), HAL_FAILED_PRECONDITION, "test::once");
  assert_fails(run(0, op + 1), HAL_INVALID_ARGUMENT, "operator number");
  hal_op_call_t call = {.struct_size = sizeof call};
  assert_fails(hal_op_run(0, op, NULL, &call), HAL_INVALID_ARGUMENT, "test::once: the call has 0 arguments");
  assert_fails(hal_op_run(0, op, NULL, NULL), HAL_INVALID_ARGUMENT, "test::once");
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_default(second(), &stream));
  const hal_value_t argument = {.tag = HAL_VALUE_NONE};
  const hal_tensor_t *const results[] = {NULL};
  call = (hal_op_call_t){
      .struct_size = sizeof call, .arg_count = 1, .result_count = 1, .args = &argument, .results = results};
  assert_fails(hal_op_run(0, op, stream, &call), HAL_INVALID_ARGUMENT, "the stream belongs to device");
}

static void *define_many(void *thread) {
  char name[32];
  for (int i = 0; i < 64; i++) {
    uint32_t op = 0;
    snprintf(name, sizeof name, "test::t%d_%d", (int)(intptr_t)thread, i);
    if (define(name, own, &op) || strcmp(hal_op_name(op), name) != 0) return thread;
  }
  return NULL;
}

Test(op_define, threads_define_operators_at_once) {
  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, define_many, (void *)(i + 1));
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    cr_assert_null(failed);
  }
}

Test(op_define, at_most_1024_operators_can_be_defined) {
  char name[32];
  uint32_t op = 0;
  for (int i = 0; i < 1024; i++) {
    snprintf(name, sizeof name, "test::op%d", i);
    assert_ok(define(name, own, &op));
  }
  assert_fails(define("test::more", own, &op), HAL_RESOURCE_EXHAUSTED, "test::more");
}
