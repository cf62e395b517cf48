/* fake_race_order.c: HAL_FAKE_SANITIZE=race through the plugin's table: the order that branches of graphs, semaphores,
 * interprocess events and the NULL stream establish. Each program runs twice in a process of its own: without one call,
 * which is a race, and with it. */
#include "fake_child.h"
#include "fake_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1 /* the build has no checked kernels */
#else
#define TEST_SANITIZED 0
#endif

enum { BYTES = 256 };

static char report[1 << 14];
static int is_async, is_ordered;
static hal_plugin_stream_t *first, *second;
static char *memory;

static void begin(void) {
  void *address = NULL;
  first = new_stream();
  second = new_stream();
  must(fake_api.object_name_set(0, HAL_OBJECT_STREAM, first, "first"));
  must(fake_api.object_name_set(0, HAL_OBJECT_STREAM, second, "second"));
  must(fake_api.memory_alloc(0, BYTES, 0, &address));
  memory = address;
}

static void fill(hal_plugin_stream_t *stream) { must(fake_api.memory_fill(stream, 0, memory, "", 1, BYTES)); }

static void wait_for(hal_plugin_stream_t *stream, hal_plugin_stream_t *other) {
  hal_plugin_event_t *const event = new_event(0);
  must(fake_api.event_record(event, other));
  must(fake_api.stream_wait_event(stream, event));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Captures a fill on the first stream, and one on a branch. */
static hal_plugin_graph_exec_t *capture_two_branches(void) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  must(fake_api.capture_begin(first, HAL_CAPTURE_RELAXED, 0));
  wait_for(second, first);
  fill(first);
  if (is_ordered) wait_for(second, first);
  fill(second);
  wait_for(first, second);
  must(fake_api.capture_end(first, &graph));
  must(fake_api.graph_instantiate(graph, &exec));
  must(fake_api.graph_destroy(graph));
  return exec;
}

static void branches_of_a_graph(void) {
  hal_plugin_graph_exec_t *const exec = capture_two_branches();
  for (int i = 0; i < 3; i++) must(fake_api.graph_launch(exec, first));
  must(fake_api.graph_launch(exec, second)); /* after the others */
}

static void a_graph_and_a_stream(void) {
  const int wanted = is_ordered;
  is_ordered = 1;
  hal_plugin_graph_exec_t *const exec = capture_two_branches();
  must(fake_api.graph_launch(exec, first));
  if (wanted) wait_for(second, first);
  fill(second);
}

static void the_value_of_a_semaphore(void) {
  hal_plugin_semaphore_t *semaphore = NULL;
  must(fake_api.semaphore_create(0, 0, 0, &semaphore));
  must(fake_api.stream_signal_semaphore(first, semaphore, 1));
  fill(first);
  must(fake_api.stream_signal_semaphore(first, semaphore, 2));
  must(fake_api.stream_wait_semaphore(second, semaphore, is_ordered ? 2 : 1));
  fill(second);
}

/* The wait is queued before the signal. */
static void a_wait_for_a_later_signal(void) {
  hal_plugin_semaphore_t *semaphore = NULL;
  must(fake_api.semaphore_create(0, 0, 0, &semaphore));
  must(fake_api.stream_wait_semaphore(second, semaphore, 1));
  fill(second);
  if (is_ordered) fill(first);
  must(fake_api.stream_signal_semaphore(first, semaphore, 1));
  if (!is_ordered) fill(first);
}

static void an_event_between_processes(void) {
  hal_plugin_event_t *const event = new_event(HAL_EVENT_INTERPROCESS);
  if (!is_ordered) must(fake_api.event_record(event, first));
  fill(first);
  if (is_ordered) must(fake_api.event_record(event, first));
  must(fake_api.stream_wait_event(second, event));
  fill(second);
}

static void the_null_stream(void) {
  char host[BYTES];
  fill(first);
  if (is_ordered) must(fake_api.stream_synchronize(first));
  must(fake_api.memory_copy(NULL, host, HAL_HOST, memory, 0, BYTES));
}

static void a_query_that_has_not_succeeded(void) {
  fake_gate_t gate = {0};
  must(fake_api.stream_host_call(first, fake_gate_wait, &gate));
  fill(first);
  if (is_ordered) atomic_store(&gate.open, 1);
  while (fake_api.stream_query(first) && is_ordered) continue;
  fill(second);
  atomic_store(&gate.open, 1);
  must(fake_api.device_synchronize(0)); /* before the gate ends */
}

static void bytes_of_one_word(void) {
  for (int i = 0; i < (is_ordered ? BYTES : 2); i++)
    must(fake_api.memory_fill(i % 2 ? second : first, 0, memory + (is_ordered ? i : 5), "", 1, 1));
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

#define PROGRAM(name) #name, name
static const struct {
  const char *name;
  void (*run)(void);
  int only_async;
} programs[] = {{PROGRAM(branches_of_a_graph), 0},
                {PROGRAM(a_graph_and_a_stream), 0},
                {PROGRAM(the_value_of_a_semaphore), 0},
                {PROGRAM(a_wait_for_a_later_signal), 1},
                {PROGRAM(an_event_between_processes), 0},
                {PROGRAM(the_null_stream), 1},
                {PROGRAM(a_query_that_has_not_succeeded), 1},
                {PROGRAM(bytes_of_one_word), 0}};

static void run_child(const void *data) {
  const size_t *const index = data;
  setenv("HAL_FAKE_SANITIZE", "race", 1);
  open_mode(is_async, 2);
  begin();
  programs[*index].run();
  must(fake_api.device_synchronize(0));
}

static void run_all(int async) {
  is_async = async;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    if (TEST_SANITIZED || (programs[i].only_async && !async)) continue;
    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
      const int status = run_in_child(run_child, &i, report, sizeof report);
      cr_expect(WIFEXITED(status) && !WEXITSTATUS(status), "%s: %d:\n%s", programs[i].name, status, report);
      const char *const found = strstr(report, "==== fake sanitizer: race: ");
      cr_expect_eq(found == NULL, is_ordered, "%s, ordered %d:\n%s", programs[i].name, is_ordered, report);
      if (!found) continue;
      cr_expect(strstr(found, "write; stream 'first'") || strstr(found, "write; branch of a graph"), "%s:\n%s",
                programs[i].name, report);
      cr_expect_null(strstr(found + 4, "==== fake sanitizer"), "%s: not one report:\n%s", programs[i].name, report);
    }
  }
}

Test(fake_race_order, each_call_that_orders_work_is_known_and_its_lack_reported, .timeout = 60) { run_all(1); }
Test(fake_race_order, and_without_asynchronous_streams, .timeout = 60) { run_all(0); }
