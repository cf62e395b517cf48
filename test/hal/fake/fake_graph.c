/* fake_graph.c: capture and graphs of the fake device, in addition to the conformance suite: errors that invalidate
 * a capture, launches on several streams, faults and profiles of replays, native modules as bytes. */
#define _GNU_SOURCE
#include <hal/plugin_kernels.h>
#include <sys/wait.h>

#include "fake_support.h"

enum { N = 4096 };

TestSuite(fake_graph, .fini = close_plugin, .timeout = 120);

static void begin(hal_plugin_stream_t *stream) { must(fake_api.capture_begin(stream, HAL_CAPTURE_RELAXED, 0)); }

static uint32_t status_of(hal_plugin_stream_t *stream) {
  uint32_t status = 99;
  uint64_t id = 0;
  must(fake_api.capture_status(stream, &status, &id));
  return status;
}

/* Ends a capture and instantiates the graph. */
static hal_plugin_graph_exec_t *end(hal_plugin_stream_t *stream) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  must(fake_api.capture_end(stream, &graph));
  must(fake_api.graph_instantiate(graph, &exec));
  must(fake_api.graph_destroy(graph));
  return exec;
}

static void expect_invalidated(hal_plugin_stream_t *stream, const char *text) {
  hal_plugin_graph_t *graph = NULL;
  cr_assert_eq(status_of(stream), HAL_CAPTURE_INVALID);
  must_fail(fake_api.capture_end(stream, &graph), HAL_ABORTED, text);
  cr_assert_null(graph);
  cr_assert_eq(status_of(stream), HAL_CAPTURE_NONE);
  must(fake_api.stream_synchronize(stream));
}

/* A graph that runs out += 1, `times` times. */
static hal_plugin_graph_exec_t *adds(float *out, const float *ones, int times) {
  hal_plugin_stream_t *const stream = new_stream();
  begin(stream);
  for (int i = 0; i < times; i++) add_ones(stream, out, ones, N);
  hal_plugin_graph_exec_t *const exec = end(stream);
  must(fake_api.stream_destroy(stream));
  return exec;
}

static void launches_of_one_graph(int async) {
  open_mode(async, 2);
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  hal_plugin_graph_exec_t *const exec = adds(out, ones, 3);
  hal_plugin_stream_t *const streams[] = {new_stream(), new_stream(), new_stream()};
  fake_gate_t gate = {0};
  if (async) must(fake_api.stream_host_call(streams[0], fake_gate_wait, &gate));
  for (int i = 0; i < 30; i++) must(fake_api.graph_launch(exec, streams[i % 3]));
  if (async) cr_assert_eq(fake_api.stream_query(streams[2]), HAL_NOT_READY, "it waits for the launches before its own");
  atomic_store(&gate.open, 1);
  for (int i = 0; i < 3; i++) must(fake_api.stream_synchronize(streams[i]));
  for (int i = 0; i < N; i++) cr_assert_eq(out[i], 90.0f);
  must(fake_api.graph_launch(exec, NULL));
  cr_assert_eq(out[0], 93.0f);
  must(fake_api.graph_exec_destroy(exec));
}
Test(fake_graph, launches_of_one_graph_are_in_order_on_whatever_streams) { launches_of_one_graph(1); }
Test(fake_graph, launches_of_one_graph_are_in_order_on_whatever_streams_inline) { launches_of_one_graph(0); }

Test(fake_graph, a_graph_in_a_graph) {
  open_mode(1, 2);
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  hal_plugin_graph_exec_t *const inner = adds(out, ones, 2);
  hal_plugin_stream_t *const stream = new_stream();
  begin(stream);
  must(fake_api.graph_launch(inner, stream));
  add_ones(stream, out, ones, N);
  must(fake_api.graph_launch(inner, stream));
  hal_plugin_graph_exec_t *const outer = end(stream);
  must(fake_api.graph_exec_destroy(inner));
  must(fake_api.graph_launch(outer, stream));
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(out[N - 1], 5.0f);
  must(fake_api.graph_exec_destroy(outer));
}

Test(fake_graph, a_stream_that_joined_and_is_not_waited_for_invalidates_the_capture) {
  open_mode(1, 2);
  hal_plugin_stream_t *const first = new_stream(), *const second = new_stream();
  hal_plugin_event_t *const begun = new_event(0), *const done = new_event(0);
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  for (int waits = 0; waits < 2; waits++) {
    begin(first);
    must(fake_api.event_record(begun, first));
    must(fake_api.stream_wait_event(second, begun));
    add_ones(second, out, ones, N);
    must(fake_api.event_record(done, second));
    if (waits) add_ones(second, out, ones, N); /* after the recorded event */
    if (waits) must(fake_api.stream_wait_event(first, done));
    hal_plugin_graph_t *graph = NULL;
    must_fail(fake_api.capture_end(first, &graph), HAL_ABORTED, "was not waited for");
    cr_assert_eq(status_of(second), HAL_CAPTURE_NONE);
  }
  must(fake_api.stream_synchronize(second));
  cr_assert_eq(out[0], 0.0f);
}

Test(fake_graph, waits_for_events_outside_a_capture_invalidate_it) {
  open_mode(1, 2);
  hal_plugin_stream_t *const first = new_stream(), *const second = new_stream();
  hal_plugin_event_t *const outside = new_event(0), *const inside = new_event(0), *const never = new_event(0);
  must(fake_api.event_record(outside, second));
  must(fake_api.stream_synchronize(second));
  begin(first);
  must(fake_api.stream_wait_event(first, never));
  must_fail(fake_api.stream_wait_event(first, outside), HAL_FAILED_PRECONDITION, "recorded outside");
  expect_invalidated(first, "outside of the capture");

  begin(first), begin(second);
  must(fake_api.event_record(inside, first));
  must_fail(fake_api.stream_wait_event(second, inside), HAL_FAILED_PRECONDITION, "another capture");
  must_fail(fake_api.stream_wait_event(NULL, inside), HAL_FAILED_PRECONDITION, "NULL stream");
  expect_invalidated(first, "in another capture"), expect_invalidated(second, "outside of the capture");
  must_fail(fake_api.event_query(inside), HAL_FAILED_PRECONDITION, "record it again");
  must_fail(fake_api.event_synchronize(inside), HAL_FAILED_PRECONDITION, "record it again");
  must_fail(fake_api.stream_wait_event(second, inside), HAL_FAILED_PRECONDITION, "record it again");
  must(fake_api.event_record(inside, first));
  must(fake_api.event_synchronize(inside));
}

Test(fake_graph, mistakes_around_a_capture_are_reported) {
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream(), *const other = new_stream();
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_event_t *const event = new_event(0);
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  must_fail(fake_api.capture_begin(NULL, HAL_CAPTURE_RELAXED, 0), HAL_INVALID_ARGUMENT, "NULL stream");
  must_fail(fake_api.capture_begin(stream, 3, 0), HAL_INVALID_ARGUMENT, "mode 3");
  must_fail(fake_api.capture_end(stream, &graph), HAL_FAILED_PRECONDITION, "capture_begin first");
  begin(stream);
  must_fail(fake_api.capture_begin(stream, 0, 0), HAL_FAILED_PRECONDITION, "end that capture first");
  must(fake_api.event_record(event, stream));
  must(fake_api.stream_wait_event(other, event));
  must_fail(fake_api.capture_end(other, &graph), HAL_FAILED_PRECONDITION, "on the stream that began it");
  fake_add_t add;
  fake_add_set(&add, out, out, ones, 1, N);
  must_fail(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch), HAL_FAILED_PRECONDITION,
            "became invalid");
  expect_invalidated(stream, "capture_end");
  begin(stream);
  must_fail(fake_api.stream_query(stream), HAL_FAILED_PRECONDITION, "does not run");
  expect_invalidated(stream, "stream_query");
  must(fake_api.capture_begin(stream, HAL_CAPTURE_THREAD, 0));
  must_fail(fake_api.device_synchronize(0), HAL_FAILED_PRECONDITION, "HAL_CAPTURE_THREAD");
  expect_invalidated(stream, "device_synchronize");
  begin(stream);
  must(fake_api.device_synchronize(0));
  must(fake_api.stream_destroy(stream)); /* with its capture */
  must(fake_api.stream_synchronize(other));
}

/* The kernels of each replay count like kernels that are launched one by one. */
static void faults(int async) {
  setenv("HAL_FAKE_FAULT", "5", 1);
  open_mode(async, 1);
  hal_plugin_stream_t *const stream = new_stream();
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  hal_plugin_graph_exec_t *const exec = adds(out, ones, 3);
  must(fake_api.graph_launch(exec, stream));
  must(fake_api.stream_synchronize(stream));
  must(fake_api.graph_launch(exec, stream));
  must_fail(fake_api.stream_synchronize(stream), HAL_INTERNAL, "add_f32_contig");
  must(fake_api.graph_launch(exec, stream));
  must(fake_api.stream_synchronize(stream));
  cr_assert_eq(out[0], 8.0f);
  must(fake_api.graph_exec_destroy(exec));
}
Test(fake_graph, a_fault_of_a_replay_is_its_streams) { faults(1); }
Test(fake_graph, a_fault_of_a_replay_is_its_streams_inline) { faults(0); }

typedef struct seen_s {
  int kernels, copies;
  uint64_t bytes;
} seen_t;

static void see(void *data, const hal_profile_record_t *record) {
  seen_t *const seen = data;
  seen->kernels += record->kind == HAL_PROFILE_KERNEL && record->correlation == 7;
  if (record->kind != HAL_PROFILE_COPY || record->direction != HAL_COPY_DEVICE_TO_DEVICE) return;
  seen->copies++;
  seen->bytes += record->bytes;
}

Test(fake_graph, a_profile_has_the_kernels_and_copies_of_each_replay) {
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  begin(stream);
  add_ones(stream, out, ones, N);
  must(fake_api.memory_copy(stream, ones, 0, out, 0, N * sizeof *out));
  hal_plugin_graph_exec_t *const exec = end(stream);
  must(fake_api.profile_enable(0, 1));
  fake_correlation = 7;
  for (int i = 0; i < 2; i++) must(fake_api.graph_launch(exec, NULL));
  seen_t seen = {0};
  must(fake_api.profile_read(0, see, &seen));
  must(fake_api.profile_enable(0, 0));
  cr_assert(seen.kernels == 2 && seen.copies == 2 && seen.bytes == 2 * N * sizeof *out,
            "%d kernels, %d copies of %llu bytes", seen.kernels, seen.copies, (unsigned long long)seen.bytes);
  must(fake_api.graph_exec_destroy(exec));
}

Test(fake_graph, a_forked_child_knows_of_no_capture) {
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  float *out = new_floats(N, 0), *ones = new_floats(N, 1);
  must(fake_api.capture_begin(stream, HAL_CAPTURE_GLOBAL, 0));
  add_ones(stream, out, ones, N);
  const pid_t child = fork();
  if (child == 0) {
    uint32_t status = 99;
    uint64_t id = 99;
    void *memory = NULL;
    const int none = fake_api.capture_status(stream, &status, &id) == HAL_OK && status == HAL_CAPTURE_NONE && id == 0;
    _exit(none && fake_api.memory_alloc(0, 4096, 0, &memory) == HAL_OK && fake_api.stream_synchronize(stream) == HAL_OK
              ? 0
              : 1);
  }
  int code = 1;
  cr_assert_eq(waitpid(child, &code, 0), child);
  cr_assert_eq(code, 0);
  must(fake_api.graph_exec_destroy(end(stream)));
}

/* ---- native modules as bytes ---- */

Test(fake_graph, a_native_module_is_had_as_bytes_and_loaded_again) {
  open_mode(0, 1);
  hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "native", .options = "", .data = "", .size = 0};
  hal_plugin_module_t *module = NULL, *again = NULL;
  hal_plugin_kernel_t *kernel = NULL;
  size_t size = 0;
  must(fake_api.module_load(0, &desc, &module));
  must(fake_api.module_export(module, NULL, 0, &size));
  char *const bytes = malloc(size);
  must(fake_api.module_export(module, bytes, size, &size));
  must(fake_api.module_unload(module));
  desc.dialect = "binary", desc.data = bytes, desc.size = size;
  must(fake_api.module_load(0, &desc, &again));
  must(fake_api.kernel_get(again, "add_f32_contig", &kernel));
  must(fake_api.module_unload(again));
  again = NULL;
  for (size_t i = 0; i < size; i += 7) {
    bytes[i] ^= 0x10;
    const int matters = i < 24 || bytes[i] != 0x10; /* zeros follow the text of the maker */
    if (matters) must_fail(fake_api.module_load(0, &desc, &again), HAL_INVALID_ARGUMENT, "compile it from source");
    bytes[i] ^= 0x10;
  }
  desc.size = size / 2;
  must_fail(fake_api.module_load(0, &desc, &again), HAL_INVALID_ARGUMENT, "compile it from source");
  cr_assert_null(again);
  free(bytes);
}

static void nothing(const hal_host_range_t *range, void *const *args) { (void)range, (void)args; }

Test(fake_graph, code_of_this_process_is_not_had_as_bytes) {
  open_mode(0, 1);
  static const hal_host_kernel_t kernels[] = {{"nothing", nothing, 0, HAL_HOST_ITEMS, 1, 0}};
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "host", .options = "", .data = kernels, .size = sizeof kernels};
  hal_plugin_module_t *module = NULL;
  size_t size = 0;
  must(fake_api.module_load(0, &desc, &module));
  must_fail(fake_api.module_export(module, NULL, 0, &size), HAL_UNIMPLEMENTED, "code of this process");
  must(fake_api.module_unload(module));
}
