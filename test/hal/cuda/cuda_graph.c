/* Tests of the CUDA plugin's captures and graphs. */
#include "cuda_plugin_testing.h"

TestSuite(cuda_graph, .init = open_plugin);

static hal_plugin_kernel_t *kernel;
static hal_plugin_stream_t *stream;
static uint32_t *to;

static void begin(uint32_t mode) {
  if (!kernel) kernel = adder(0);
  if (!to) to = words_on(0, 64);
  if (!stream) OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  OK(api.capture_begin(stream, mode, 0));
}

/* A graph that adds a number to *to. */
static hal_plugin_graph_t *graph_of(uint32_t number) {
  hal_plugin_graph_t *graph = NULL;
  begin(HAL_CAPTURE_THREAD);
  OK(queue_add(kernel, stream, to, number));
  OK(api.capture_end(stream, &graph));
  return graph;
}

Test(cuda_graph, what_is_captured_runs_at_each_launch_and_not_before) {
  hal_plugin_graph_exec_t *exec = NULL;
  hal_plugin_graph_t *const graph = graph_of(5);
  cr_assert_eq(word_at(0, to), 0);
  OK(api.graph_instantiate(graph, &exec));
  OK(api.graph_destroy(graph)); /* the executable graph remains valid */
  for (int i = 0; i < 3; i++) OK(api.graph_launch(exec, stream));
  OK(queue_add(kernel, stream, to, 100)); /* after the graphs */
  OK(api.stream_synchronize(stream));
  cr_assert_eq(word_at(0, to), 115);
  OK(api.graph_launch(exec, NULL));
  cr_assert_eq(word_at(0, to), 120);
  OK(api.graph_exec_destroy(exec));
}

Test(cuda_graph, a_stream_reports_that_it_is_captured_and_each_capture_has_its_own_number) {
  uint32_t status = 9;
  uint64_t first = 0, second = 0, none = 1;
  hal_plugin_graph_t *graph = NULL;
  begin(HAL_CAPTURE_RELAXED);
  OK(api.capture_status(stream, &status, &first));
  cr_assert_eq(status, HAL_CAPTURE_ACTIVE);
  OK(api.capture_end(stream, &graph));
  OK(api.capture_status(stream, &status, &none));
  cr_assert(status == HAL_CAPTURE_NONE && none == 0);
  begin(HAL_CAPTURE_GLOBAL);
  OK(api.capture_status(stream, &status, &second));
  OK(api.capture_end(stream, &graph));
  cr_assert(first && second && first != second);
}

Test(cuda_graph, a_stream_that_waits_for_an_event_of_the_capture_is_captured_with_it) {
  hal_plugin_stream_t *other = NULL;
  hal_plugin_event_t *fork = NULL, *join = NULL;
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &other));
  OK(api.event_create(0, 0, &fork));
  OK(api.event_create(0, 0, &join));
  begin(HAL_CAPTURE_THREAD);
  OK(queue_add(kernel, stream, to, 1));
  OK(api.event_record(fork, stream));
  OK(api.stream_wait_event(other, fork));
  OK(queue_add(kernel, other, to, 10));
  OK(api.event_record(join, other));
  OK(api.stream_wait_event(stream, join));
  OK(queue_add(kernel, stream, to, 100));
  OK(api.capture_end(stream, &graph));
  OK(api.graph_instantiate(graph, &exec));
  OK(api.graph_launch(exec, other));
  OK(api.stream_synchronize(other));
  cr_assert_eq(word_at(0, to), 111);
  OK(queue_add(kernel, other, to, 1)); /* which is no longer captured */
  OK(api.stream_synchronize(other));
  cr_assert_eq(word_at(0, to), 112);
}

Test(cuda_graph, a_stream_that_joined_and_was_not_waited_for_invalidates_the_capture) {
  hal_plugin_stream_t *other = NULL;
  hal_plugin_event_t *fork = NULL;
  hal_plugin_graph_t *graph = NULL;
  OK(api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &other));
  OK(api.event_create(0, 0, &fork));
  begin(HAL_CAPTURE_THREAD);
  OK(api.event_record(fork, stream));
  OK(api.stream_wait_event(other, fork));
  OK(queue_add(kernel, other, to, 10));
  FAILS(api.capture_end(stream, &graph), HAL_ABORTED, "was not waited for");
  cr_assert_null(graph);
}

Test(cuda_graph, calls_that_cannot_be_captured_invalidate_the_capture_and_the_stream_works_again) {
  uint32_t status = 0;
  uint64_t id = 0, active = 0;
  hal_plugin_graph_t *graph = NULL;
  begin(HAL_CAPTURE_GLOBAL);
  OK(queue_add(kernel, stream, to, 1));
  OK(api.capture_status(stream, &status, &active));
  cr_assert_neq(api.stream_synchronize(stream), HAL_OK);
  OK(api.capture_status(stream, &status, &id));
  cr_assert_eq(status, HAL_CAPTURE_INVALID);
  cr_assert(id == active && id != 0, "%llu, %llu", (unsigned long long)id, (unsigned long long)active);
  FAILS(api.capture_end(stream, &graph), HAL_ABORTED, "INVALIDATED");
  cr_assert_eq(word_at(0, to), 0);
  OK(queue_add(kernel, stream, to, 1));
  OK(api.stream_synchronize(stream));
  cr_assert_eq(word_at(0, to), 1);
}

Test(cuda_graph, an_allocation_is_allowed_in_a_relaxed_capture_and_invalidates_a_global_one) {
  void *ptr = NULL;
  hal_plugin_graph_t *graph = NULL;
  begin(HAL_CAPTURE_RELAXED);
  OK(api.memory_alloc(0, 64, 0, &ptr));
  OK(api.capture_end(stream, &graph));
  begin(HAL_CAPTURE_GLOBAL);
  cr_assert_neq(api.memory_alloc(0, 64, 0, &ptr), HAL_OK);
  FAILS(api.capture_end(stream, &graph), HAL_ABORTED, "invalid");
}

static void add_ten(void *number) { *(volatile int *)number += 10; }

Test(cuda_graph, a_host_function_is_called_at_each_launch_between_the_work_around_it) {
  static volatile int number;
  hal_plugin_graph_exec_t *exec = NULL;
  hal_plugin_graph_t *graph = NULL;
  begin(HAL_CAPTURE_THREAD);
  OK(queue_add(kernel, stream, to, 1));
  OK(api.stream_host_call(stream, add_ten, (void *)&number));
  OK(queue_add(kernel, stream, to, 1));
  OK(api.capture_end(stream, &graph));
  OK(api.graph_instantiate(graph, &exec));
  cr_assert_eq(number, 0);
  for (int i = 1; i <= 3; i++) {
    OK(api.graph_launch(exec, stream));
    OK(api.stream_synchronize(stream));
    cr_assert_eq(number, 10 * i);
  }
  cr_assert_eq(word_at(0, to), 6);
  OK(api.stream_host_call(stream, add_ten, (void *)&number)); /* which is no capture's */
  OK(api.stream_synchronize(stream));
  cr_assert_eq(number, 40);
}

Test(cuda_graph, an_instance_takes_the_arguments_of_another_recording_of_the_same_work_alone) {
  hal_plugin_graph_exec_t *exec = NULL;
  hal_plugin_graph_t *two = NULL;
  OK(api.graph_instantiate(graph_of(5), &exec));
  OK(api.graph_update(exec, graph_of(7)));
  OK(api.graph_launch(exec, NULL));
  cr_assert_eq(word_at(0, to), 7);
  begin(HAL_CAPTURE_THREAD);
  OK(queue_add(kernel, stream, to, 1));
  OK(queue_add(kernel, stream, to, 1));
  OK(api.capture_end(stream, &two));
  FAILS(api.graph_update(exec, two), HAL_FAILED_PRECONDITION, "instantiate it again");
  OK(api.graph_launch(exec, NULL));
  cr_assert_eq(word_at(0, to), 14);
}

static void count_record(void *data, const hal_profile_record_t *record) {
  (void)record;
  ++*(int *)data;
}

Test(cuda_graph, a_profile_leaves_no_trace_in_a_capture) {
  int records = 0;
  hal_plugin_graph_exec_t *exec = NULL;
  OK(api.profile_enable(0, 1));
  OK(api.graph_instantiate(graph_of(5), &exec));
  OK(api.graph_launch(exec, NULL));
  OK(api.profile_enable(0, 0));
  OK(api.profile_read(0, count_record, &records));
  cr_assert_eq(word_at(0, to), 5);
  cr_assert_eq(records, 1, "%d", records); /* the fill of words_on; the launch of a graph is not a kernel */
}

Test(cuda_graph, wrong_uses_are_refused_with_what_was_given) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  hal_plugin_stream_t *far = NULL;
  needs_two_devices(device_count);
  FAILS(api.capture_begin(NULL, 0, 0), HAL_INVALID_ARGUMENT, "NULL stream");
  FAILS(api.capture_end(NULL, &graph), HAL_INVALID_ARGUMENT, "NULL stream");
  OK(api.stream_create(1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &far));
  FAILS(api.capture_begin(far, 7, 0), HAL_INVALID_ARGUMENT, "mode 7");
  cr_assert_neq(api.capture_end(far, &graph), HAL_OK); /* which began none */
  OK(api.graph_instantiate(graph_of(1), &exec));
  FAILS(api.graph_launch(exec, far), HAL_INVALID_ARGUMENT, "device 1");
}
