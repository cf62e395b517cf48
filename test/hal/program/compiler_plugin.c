/* compiler_plugin.c: a plugin's own compiler of whole programs is used when a stream becomes lazy for the first
 * time, unless the program selects another. The plugin is the one of test/cts/whole. */
#include <hal/compiler.h>
#include <hal/lazy.h>
#include <hal/log.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "support.h"

enum { COUNT = 1000 };

static void open_whole(void) {
  setenv("HAL_WHOLE_OF", PLUGIN_DIR "/libhal_fake.so", 1);
  setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
  assert_ok(hal_registry_open(FIXTURE_DIR "/libhal_whole.so"));
}

static void open_broken(void) {
  setenv("HAL_WHOLE_OF", PLUGIN_DIR "/libhal_fake.so", 1);
  setenv("HAL_BROKEN_OF", FIXTURE_DIR "/libhal_whole.so", 1);
  setenv("HAL_BROKEN", "compiler_has_no_end", 1);
  setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
  assert_ok(hal_registry_open(FIXTURE_DIR "/libhal_broken.so"));
}

TestSuite(compiler_plugin, .timeout = 120);

/* result = name(a[, b, 2]) over whole vectors. */
static void call(const char *name, const hal_block_t *a, const hal_block_t *b, const hal_block_t *result) {
  const int64_t size = COUNT, stride = 1;
  const hal_block_t *const blocks[] = {a, b ? b : a, result};
  hal_tensor_t tensors[3];
  uint32_t op;
  for (int i = 0; i < 3; i++)
    tensors[i] = (hal_tensor_t){.struct_size = sizeof(hal_tensor_t),
                                .data = hal_memory_block_address(blocks[i]),
                                .sizes = &size,
                                .strides = &stride,
                                .ndim = 1,
                                .dtype = HAL_FLOAT32};
  const hal_value_t args[] = {{.tag = HAL_VALUE_TENSOR, .u.t = &tensors[0]},
                              {.tag = HAL_VALUE_TENSOR, .u.t = &tensors[1]},
                              {.tag = HAL_VALUE_DOUBLE, .u.d = 2}};
  const hal_tensor_t *const results[] = {&tensors[2]};
  hal_op_call_t run = {.struct_size = sizeof run,
                       .arg_count = b ? 3 : 1,
                       .result_count = 1,
                       .flags = HAL_CALL_DENSE,
                       .args = args,
                       .results = results};
  assert_ok(hal_op_id(name, &op));
  assert_ok(hal_op_run(0, op, NULL, &run));
}

/* Computes |a| - 2 b lazily, twice, and reads the results: the plugin does not implement these operators. */
static void compute(void) {
  float host[COUNT];
  hal_block_t *blocks[4];
  for (int round = 0; round < 2; round++) {
    hal_lazy_t *lazy;
    for (int i = 0; i < 4; i++) assert_ok(hal_memory_allocate(0, NULL, sizeof host, &blocks[i]));
    for (int k = 0; k < 2; k++) {
      for (int i = 0; i < COUNT; i++) host[i] = (float)(k ? 3 * i + round : -i);
      assert_ok(hal_memory_copy(NULL, hal_memory_block_address(blocks[k]), 0, host, HAL_HOST, sizeof host));
      assert_ok(hal_stream_synchronize(NULL));
    }
    assert_ok(hal_lazy_begin(NULL, NULL, &lazy));
    call("abs", blocks[0], NULL, blocks[2]);
    call("sub.Tensor", blocks[2], blocks[1], blocks[3]);
    assert_ok(hal_lazy_end(lazy));
    assert_ok(hal_memory_copy(NULL, host, HAL_HOST, hal_memory_block_address(blocks[3]), 0, sizeof host));
    assert_ok(hal_stream_synchronize(NULL));
    for (int i = 0; i < COUNT; i++)
      cr_assert_eq(host[i], (float)(i - 2 * (3 * i + round)), "element %d is %g", i, (double)host[i]);
    for (int i = 0; i < 4; i++) hal_memory_release(blocks[i]);
  }
}

static hal_compiler_info_t info_now(void) {
  hal_compiler_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_compiler_info(0, &info));
  return info;
}

Test(compiler_plugin, runs_of_operators_go_to_the_plugins_compiler, .init = open_whole) {
  compute();
  const hal_compiler_info_t info = info_now();
  cr_expect_eq(info.compiled, 1, "%llu graphs", (unsigned long long)info.compiled);
  cr_expect_eq(info.refused, 0);
  cr_expect_eq(info.executed, 2);
  cr_expect_eq(info.operators, 4, "%llu operators", (unsigned long long)info.operators);
  hal_registry_close();
}

Test(compiler_plugin, a_program_sets_none_in_its_place, .init = open_whole) {
  assert_ok(hal_compiler_set(0, NULL));
  compute();
  cr_expect_eq(info_now().executed, 0);
}

static char logged[4096];
static void keep(int32_t level, const char *message, void *user_data) {
  (void)user_data;
  if (level <= HAL_LOG_WARNING) snprintf(logged, sizeof logged, "%s", message);
}

Test(compiler_plugin, one_that_lacks_a_function_is_a_warning_and_work_runs_on_kernels, .init = open_broken) {
  hal_log_set_sink(keep, NULL);
  compute();
  hal_log_set_sink(NULL, NULL);
  cr_expect_eq(info_now().executed, 0);
  cr_expect(strstr(logged, "lazy work runs on kernels") && strstr(logged, "lacks one"), "%s", logged);
}

/* ---- while the plugin is queried ---- */

static void open_slow(void) {
  setenv("HAL_WHOLE_COMPILER_MS", "300", 1);
  open_whole();
}

/* Makes a separate stream lazy, which queries the plugin. */
static void *ask(void *data) {
  hal_stream_t *stream;
  hal_lazy_t *lazy;
  (void)data;
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_lazy_begin(stream, NULL, &lazy));
  assert_ok(hal_lazy_end(lazy));
  return NULL;
}

static pthread_t query_by_another(void) {
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, ask, NULL), 0);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* the query is running */
  return thread;
}

Test(compiler_plugin, recording_waits_for_the_compiler_while_the_plugin_is_queried, .init = open_slow) {
  const pthread_t thread = query_by_another();
  compute();
  pthread_join(thread, NULL);
  cr_expect_eq(info_now().executed, 2);
}

Test(compiler_plugin, no_compiler_set_while_the_plugin_is_queried_remains_set, .init = open_slow) {
  const pthread_t thread = query_by_another();
  hal_status_t status; /* the other thread's stream may still be lazy */
  while ((status = hal_compiler_set(0, NULL)) == HAL_FAILED_PRECONDITION) sched_yield();
  assert_ok(status);
  pthread_join(thread, NULL);
  compute();
  cr_expect_eq(info_now().executed, 0);
}
