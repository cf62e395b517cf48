/* program_graph.c: programs as graphs of a plugin that captures streams. The plugin is HAL_TEST_PLUGIN, else the one
 * of test/cts/whole on the fake device. */
#include <hal/log.h>
#include <math.h>
#include <time.h>

#include "../op/op_numbers.h"
#include "base/host_malloc.h"
#include "support.h"

enum { COUNT = 1000 };

static void open_whole(void) {
  setenv("HAL_WHOLE_OF", PLUGIN_DIR "/libhal_fake.so", 1);
  setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
  must(hal_registry_open(FIXTURE_DIR "/libhal_whole.so"));
}

static void open_capturing(void) {
  if (getenv("HAL_TEST_PLUGIN"))
    open_device();
  else
    open_whole();
}

/* Calls that the plugin does not support fail, and the host uses another method: see hal/src/plugin/layer.h. */
static void open_failing(const char *fault) {
  setenv("HAL_LAYERS", "fault,validate", 1);
  setenv("HAL_FAULT", fault, 1);
  open_capturing();
}

TestSuite(program_graph, .timeout = 240);

static hal_stream_t *new_stream(void) {
  hal_stream_t *stream;
  must(hal_stream_acquire(0, 0, &stream));
  return stream;
}

static tensor_t *floats(float first, float step) {
  const int64_t count = COUNT;
  tensor_t *const t = tensor_new(HAL_FLOAT32, 1, &count, CONTIGUOUS);
  for (int i = 0; i < COUNT; i++) ((float *)(void *)t->host)[i] = first + step * (float)i;
  tensor_upload(t);
  return t;
}

static float at(tensor_t *t, int index) {
  tensor_download(t);
  return ((float *)(void *)t->host)[index];
}

static void set_all(tensor_t *t, float value) {
  for (int i = 0; i < COUNT; i++) ((float *)(void *)t->host)[i] = value;
  tensor_upload(t);
}

static void queue(hal_stream_t *stream, const char *name, const hal_value_t *args, uint32_t count,
                  const tensor_t *result) {
  uint32_t op;
  must(hal_op_id(name, &op));
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = count, .result_count = 1, .args = args, .results = results};
  must(hal_op_run(0, op, stream, &call));
}

/* result = a + b */
static void add(hal_stream_t *stream, const tensor_t *a, const tensor_t *b, const tensor_t *result) {
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(1)};
  queue(stream, "add.Tensor", args, 3, result);
}

static void uniform(hal_stream_t *stream, hal_generator_t *generator, const tensor_t *result) {
  uint32_t op;
  hal_draw_t draw;
  must(hal_op_id("uniform", &op));
  must(hal_generator_draw(generator, stream, COUNT / 4, &draw));
  const hal_value_t args[] = {of_double(0), of_double(1)};
  const hal_tensor_t *const results[] = {&result->desc};
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = 2,
                        .result_count = 1,
                        .args = args,
                        .results = results,
                        .seed = draw.seed,
                        .offset = draw.offset,
                        .random_state = draw.random_state};
  must(hal_op_run(0, op, stream, &call));
}

static hal_program_t *begin_with(hal_stream_t *stream, uint32_t flags) {
  hal_program_t *program;
  const hal_program_desc_t desc = {.struct_size = sizeof desc, .flags = flags};
  must(hal_program_begin(stream, &desc, &program));
  return program;
}

static hal_program_info_t info_of(const hal_program_t *program) {
  hal_program_info_t info = {.struct_size = sizeof info};
  must(hal_program_info(program, &info));
  return info;
}

/* r = 2 (a + 1) + a, by four operators, a fill and a copy. */
static hal_program_t *recorded(hal_stream_t *stream, const tensor_t *a, const tensor_t *r, uint32_t flags) {
  const float one = 1;
  tensor_t *const b = floats(0, 0), *const c = floats(0, 0);
  must(hal_stream_synchronize(NULL));
  hal_program_t *const program = begin_with(stream, flags);
  must(hal_memory_fill(stream, 0, b->desc.data, &one, sizeof one, COUNT * sizeof one));
  add(stream, a, b, b);
  must(hal_memory_copy(stream, c->desc.data, 0, b->desc.data, 0, COUNT * sizeof one));
  add(stream, b, c, c);
  add(stream, c, a, r);
  must(hal_program_end(program));
  return program;
}

static void run_and_check(hal_program_t *program, hal_stream_t *stream, tensor_t *a, tensor_t *r, float value) {
  set_all(a, value);
  must(hal_program_run(program, stream));
  must(hal_stream_synchronize(stream));
  cr_assert_eq(at(r, 7), 3 * value + 2, "%g instead of %g", (double)at(r, 7), (double)(3 * value + 2));
}

/* ---- runs ---- */

static int graph_launches, kernel_launches;
static void count_calls(int32_t level, const char *message, void *user_data) {
  (void)level, (void)user_data;
  graph_launches += strstr(message, "graph_launch") != NULL;
  kernel_launches += strstr(message, "kernel_launch") != NULL;
}

static void say_nothing(int32_t level, const char *message, void *user_data) {
  (void)level, (void)message, (void)user_data;
}

static void open_traced(void) {
  hal_log_set_sink(say_nothing, NULL);
  setenv("HAL_LAYERS", "trace,validate", 1);
  open_capturing();
}

Test(program_graph, from_the_second_run_on_one_call_takes_the_place_of_many, .init = open_traced) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, 0);
  run_and_check(program, stream, a, r, 1);
  cr_expect_eq(info_of(program).graphs, 0, "none at the first run");
  run_and_check(program, stream, a, r, 2);
  const hal_program_info_t info = info_of(program);
  cr_expect(info.graphs == 1 && info.captured == info.commands && info.commands >= 5, "%u graphs of %u commands",
            info.graphs, info.captured);
  for (int i = 0; i < 5; i++) {
    set_all(a, (float)i);
    must(hal_device_synchronize(0));
    graph_launches = kernel_launches = 0;
    hal_log_set_sink(count_calls, NULL);
    must(hal_program_run(program, stream));
    hal_log_set_sink(say_nothing, NULL);
    cr_expect(graph_launches > 0 && kernel_launches == 0, "run %d: %d lines of graph_launch, %d of kernel_launch", i,
              graph_launches, kernel_launches);
    must(hal_stream_synchronize(stream));
    cr_expect_eq(at(r, 9), 3 * (float)i + 2);
  }
  hal_program_destroy(program);
}

Test(program_graph, runs_on_other_streams_and_on_the_default_one_are_in_order, .init = open_capturing) {
  hal_stream_t *const streams[] = {new_stream(), new_stream(), NULL};
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(streams[0], a, r, 0);
  for (int i = 0; i < 12; i++) run_and_check(program, streams[i % 3], a, r, (float)i);
  tensor_t *const x = floats(1, 0), *const y = floats(1, 0);
  must(hal_device_synchronize(0));
  hal_program_t *const grows = begin_with(streams[0], 0);
  add(streams[0], x, y, x), add(streams[0], x, y, x), add(streams[0], x, y, x);
  must(hal_program_end(grows));
  for (int i = 0; i < 30; i++) must(hal_program_run(grows, streams[i % 3]));
  for (int i = 0; i < 3; i++) must(hal_stream_synchronize(streams[i]));
  cr_expect_eq(at(x, 3), 1 + 30 * 3);
  cr_expect_eq(info_of(grows).graphs, 1);
  hal_program_destroy(program), hal_program_destroy(grows);
}

Test(program_graph, the_setting_for_commands_disables_graphs, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, HAL_PROGRAM_COMMANDS);
  for (int i = 0; i < 4; i++) run_and_check(program, stream, a, r, (float)i);
  cr_expect_eq(info_of(program).graphs, 0);
  hal_program_destroy(program);
}

Test(program_graph, few_commands_are_queued_without_a_graph, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(1, 1), *const r = floats(0, 0);
  must(hal_device_synchronize(0));
  hal_program_t *const program = begin_with(stream, 0);
  add(stream, a, a, r);
  must(hal_program_end(program));
  for (int i = 0; i < 3; i++) must(hal_program_run(program, stream));
  must(hal_stream_synchronize(stream));
  cr_expect_eq(at(r, 4), 10);
  cr_expect_eq(info_of(program).graphs, 0);
  hal_program_t *const empty = begin_with(stream, 0);
  must(hal_program_end(empty));
  for (int i = 0; i < 3; i++) must(hal_program_run(empty, stream));
  hal_program_destroy(program), hal_program_destroy(empty);
}

/* ---- commands between graphs ---- */

static int called;
static void note_call(void *data) { (*(int *)data)++; }

Test(program_graph, host_functions_and_copies_of_host_memory_stand_between_graphs, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const b = floats(1, 0), *const r = floats(0, 0);
  float five[COUNT];
  for (int i = 0; i < COUNT; i++) five[i] = 5;
  must(hal_device_synchronize(0));
  hal_program_t *const program = begin_with(stream, 0);
  add(stream, a, b, r), add(stream, r, b, r), add(stream, r, b, r); /* a + 3 */
  must(hal_stream_host_call(stream, note_call, &called));
  add(stream, r, r, r), add(stream, r, b, r), add(stream, r, r, r); /* 2 (2 (a + 3) + 1) */
  must(hal_memory_copy(stream, b->desc.data, 0, five, HAL_HOST, sizeof five));
  memset(five, 0, sizeof five);
  add(stream, r, b, r), add(stream, r, b, r), add(stream, r, b, r); /* + 15 */
  must(hal_program_end(program));
  for (int i = 0; i < 4; i++) {
    set_all(a, (float)i), set_all(b, 1);
    must(hal_program_run(program, stream));
    must(hal_stream_synchronize(stream));
    cr_expect_eq(at(r, 11), 4 * (float)i + 14 + 15, "run %d: %g", i, (double)at(r, 11));
    cr_expect_eq(called, i + 1);
  }
  const hal_program_info_t info = info_of(program);
  cr_expect(info.graphs == 3 && info.captured == info.commands - 2, "%u graphs of %u of %u commands", info.graphs,
            info.captured, info.commands);
  hal_program_destroy(program);
}

Test(program_graph, each_run_generates_the_numbers_of_eager_calls, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const r = floats(0, 0), *const kept = floats(0, 0);
  hal_generator_t *generator, *same;
  must(hal_generator_create(42, &generator));
  must(hal_generator_create(42, &same));
  must(hal_device_synchronize(0));
  hal_program_t *const program = begin_with(stream, 0);
  uniform(stream, generator, r);
  add(stream, r, r, kept), uniform(stream, generator, r), add(stream, r, kept, kept);
  must(hal_program_end(program));
  tensor_t *const x = floats(0, 0), *const y = floats(0, 0);
  for (int i = 0; i < 4; i++) {
    must(hal_program_run(program, stream));
    must(hal_stream_synchronize(stream));
    uniform(stream, same, x), uniform(stream, same, y);
    must(hal_stream_synchronize(stream));
    for (int k = 0; k < COUNT; k += 99)
      cr_assert_float_eq(at(kept, k), 2 * at(x, k) + at(y, k), 1e-6, "run %d, element %d", i, k);
  }
  if (info_of(program).launches) cr_expect_geq(info_of(program).graphs, 1);
  hal_program_destroy(program);
  hal_generator_destroy(generator), hal_generator_destroy(same);
}

Test(program_graph, a_profile_shows_operators_and_later_runs_are_graphs_again, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, 0);
  for (int i = 0; i < 3; i++) run_and_check(program, stream, a, r, (float)i);
  const hal_status_t profiled = hal_profile_start();
  run_and_check(program, stream, a, r, 5);
  if (!profiled) hal_profile_stop();
  run_and_check(program, stream, a, r, 6);
  cr_expect_eq(info_of(program).graphs, 1);
  hal_program_destroy(program);
}

/* ---- destruction ---- */

static char complaint[4096];
static void keep_complaints(int32_t level, const char *message, void *user_data) {
  (void)user_data;
  if (level <= HAL_LOG_WARNING && strstr(message, "validate: ")) snprintf(complaint, sizeof complaint, "%s", message);
}

static void open_validated(void) {
  setenv("HAL_LAYERS", "validate", 1);
  open_capturing();
}

Test(program_graph, a_program_that_is_destroyed_while_it_runs_computes_to_its_end, .init = open_validated) {
  hal_log_set_sink(keep_complaints, NULL);
  hal_stream_t *const stream = new_stream();
  for (int i = 0; i < 20; i++) {
    tensor_t *const a = floats((float)i, 0), *const r = floats(0, 0);
    hal_program_t *const program = recorded(stream, a, r, 0);
    for (int run = 0; run < 4; run++) must(hal_program_run(program, stream));
    hal_program_destroy(program);
    must(hal_stream_synchronize(stream));
    cr_assert_eq(at(r, 1), 3 * (float)i + 2);
  }
  hal_registry_close();
  hal_log_set_sink(NULL, NULL);
  cr_expect_str_empty(complaint, "%s", complaint);
}

Test(program_graph, a_program_outlives_the_registry, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, 0);
  for (int i = 0; i < 3; i++) run_and_check(program, stream, a, r, (float)i);
  hal_registry_close();
  hal_program_destroy(program);
}

/* ---- failures ---- */

static void runs_all_the_same(const char *fault, uint32_t graphs) {
  open_failing(fault);
  hal_log_set_sink(NULL, NULL);
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, 0);
  for (int i = 0; i < 5; i++) run_and_check(program, stream, a, r, (float)i);
  cr_expect_eq(info_of(program).graphs, graphs, "%s: %u graphs", fault, info_of(program).graphs);
  hal_program_destroy(program);
}

Test(program_graph, a_capture_that_cannot_begin_leaves_commands) { runs_all_the_same("capture_begin:1", 0); }

Test(program_graph, a_capture_that_ends_at_the_second_attempt_is_a_graph) { runs_all_the_same("capture_end:1", 1); }

Test(program_graph, a_graph_that_cannot_be_made_ready_leaves_commands) {
  runs_all_the_same("graph_instantiate:1:UNIMPLEMENTED", 0);
}

Test(program_graph, a_launch_that_fails_names_the_commands) {
  open_failing("graph_launch:2");
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  hal_program_t *const program = recorded(stream, a, r, 0);
  run_and_check(program, stream, a, r, 1), run_and_check(program, stream, a, r, 2);
  cr_assert_neq(hal_program_run(program, stream), HAL_OK);
  cr_expect(strstr(hal_error_message(), "as one graph"), "%s", hal_error_message());
  run_and_check(program, stream, a, r, 4);
  hal_program_destroy(program);
}

Test(program_graph, without_host_memory_commands_are_queued_or_an_error_is_returned, .init = open_capturing) {
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  for (int n = 1; n < 12; n++) {
    hal_program_t *const program = recorded(stream, a, r, 0);
    run_and_check(program, stream, a, r, 1);
    hal_malloc_fail_after(n);
    const hal_status_t status = hal_program_run(program, stream);
    hal_malloc_fail_after(0);
    cr_expect(status == HAL_OK || status == HAL_RESOURCE_EXHAUSTED, "allocation %d: %s", n, hal_status_name(status));
    run_and_check(program, stream, a, r, 3);
    hal_program_destroy(program);
  }
}

/* The graphs of a program are destroyed after its last run. If the host lacks memory to defer that, it waits for the
   run. */
Test(program_graph, a_failure_is_not_lost_when_a_program_is_destroyed_without_memory) {
  setenv("HAL_FAKE_FAULT", "40", 1);
  open_whole();
  hal_stream_t *const stream = new_stream();
  tensor_t *const a = floats(0, 0), *const r = floats(0, 0);
  for (int n = 1; n < 4; n++) {
    hal_program_t *const program = recorded(stream, a, r, 0);
    run_and_check(program, stream, a, r, 1), run_and_check(program, stream, a, r, 2);
    cr_assert_eq(info_of(program).graphs, 1);
    for (int launches = 0; n == 1 && launches < 50; launches++) add(stream, a, a, r);
    hal_malloc_fail_after(n);
    hal_program_destroy(program);
    hal_malloc_fail_after(0);
    const hal_status_t status = hal_stream_synchronize(stream);
    cr_expect_eq(status != HAL_OK, n == 1, "allocation %d: %s", n, hal_status_name(status));
  }
}
