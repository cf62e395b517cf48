/* capture.c: work that is recorded, and replayed as a graph. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

enum { SIZE = 40000, TIMES = 3 };
static const uint32_t one = 0x01010101, two = 0x22222222, three = 0x33435363;

/* Returns device memory of SIZE bytes that is filled with `pattern`. */
static uint8_t *filled(cts_t *t, uint32_t pattern) {
  uint8_t *const device = cts_alloc(t, SIZE);
  CTS_OK(t, memory_fill, NULL, t->device, device, &pattern, sizeof pattern, SIZE);
  return device;
}

static void expect(cts_t *t, const uint8_t *device, uint32_t pattern, const char *what) {
  uint8_t *const got = cts_host(t, SIZE), *const expected = cts_host(t, SIZE);
  for (size_t i = 0; i < SIZE; i += sizeof pattern) memcpy(expected + i, &pattern, sizeof pattern);
  cts_get(t, NULL, got, device, SIZE);
  cts_same(t, got, expected, SIZE, what);
  free(got), free(expected);
}

static void copy(cts_t *t, hal_plugin_stream_t *stream, uint8_t *to, const uint8_t *from) {
  CTS_OK(t, memory_copy, stream, to, t->device, from, t->device, SIZE);
}

static hal_plugin_graph_t *end(cts_t *t, hal_plugin_stream_t *stream) {
  hal_plugin_graph_t *graph = NULL;
  CTS_OK(t, capture_end, stream, &graph);
  CTS_CHECK(t, graph, "capture_end returned HAL_OK and no graph");
  return graph;
}

static hal_plugin_graph_exec_t *instantiate(cts_t *t, hal_plugin_graph_t *graph) {
  hal_plugin_graph_exec_t *exec = NULL;
  CTS_OK(t, graph_instantiate, graph, &exec);
  CTS_CHECK(t, exec, "graph_instantiate returned HAL_OK and no instance");
  return exec;
}

static void drop(cts_t *t, hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  if (exec) CTS_OK(t, graph_exec_destroy, exec);
  if (graph) CTS_OK(t, graph_destroy, graph);
}

/* Records a fill, then copies: a gets the pattern, b that of a, c the earlier content of b. */
static hal_plugin_graph_t *record(cts_t *t, hal_plugin_stream_t *stream, uint32_t pattern, uint8_t *a, uint8_t *b,
                                  uint8_t *c) {
  CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  copy(t, stream, c, b);
  CTS_OK(t, memory_fill, stream, t->device, a, &pattern, sizeof pattern, SIZE);
  pattern = 0xdddddddd; /* the caller may reuse its memory */
  copy(t, stream, b, a);
  return end(t, stream);
}

void cts_case_capture_records(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const a = filled(t, one), *const b = filled(t, two), *const c = filled(t, three);
  hal_plugin_graph_t *const graph = record(t, stream, 0x44444444, a, b, c);
  cts_sync(t, stream);
  expect(t, a, one, "memory that recorded work, which is not replayed, would fill");
  expect(t, b, two, "memory that recorded work, which is not replayed, would write");
  expect(t, c, three, "memory that recorded work, which is not replayed, would write");
  CTS_JUDGE(t, graph_instantiate, "Creates an instance of a recording");
  hal_plugin_graph_exec_t *const exec = instantiate(t, graph);
  cts_sync(t, stream);
  expect(t, a, one, "memory that an instance, which is not launched, would fill");
  CTS_JUDGE(t, graph_launch, "Queues a graph");
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, memory_fill, stream, t->device, b, &two, sizeof two, SIZE);
    CTS_OK(t, graph_launch, exec, stream);
    cts_sync(t, stream);
    expect(t, a, 0x44444444, "memory that a graph fills");
    expect(t, b, 0x44444444, "memory that a graph copies to what it has filled");
    expect(t, c, two, "memory to which a graph copies what another stream wrote before each launch");
  }
  CTS_JUDGE(t, capture_end, "Ends recording");
  CTS_OK(t, memory_fill, stream, t->device, a, &one, sizeof one, SIZE); /* runs again, now that the capture is over */
  cts_sync(t, stream);
  expect(t, a, one, "memory that a stream fills after its capture");
  drop(t, exec, graph);
}

/* Launches on a stream run after its earlier work and before its later work, and in order. */
void cts_case_capture_order(cts_t *t) {
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const recorded = cts_stream(t), *const stream = cts_stream(t);
  uint8_t *const a = filled(t, one), *const b = filled(t, one), *const c = filled(t, one), *const kept = filled(t, one);
  hal_plugin_graph_t *const graph = record(t, recorded, two, a, b, c);
  hal_plugin_graph_exec_t *const exec = instantiate(t, graph);
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, memory_fill, NULL, t->device, b, &one, sizeof one, SIZE);
    if (held) cts_gate_close(t, &gate, stream);
    CTS_OK(t, memory_fill, stream, t->device, b, &three, sizeof three, SIZE);
    CTS_OK(t, graph_launch, exec, stream); /* c = three, b = two */
    copy(t, stream, kept, c);
    CTS_OK(t, graph_launch, exec, stream); /* c = two */
    if (held) {
      CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
      expect(t, b, one, "memory that a graph would write that was launched on a held stream");
      cts_gate_open(&gate);
    }
    cts_sync(t, stream);
    expect(t, kept, three, "what a first launch of a graph took over from the stream's earlier work");
    CTS_JUDGE(t, graph_launch, "the launches of one are in order");
    expect(t, c, two, "what a second launch of a graph took over from the first");
    CTS_JUDGE(t, graph_launch, "Queues a graph");
    CTS_OK(t, graph_launch, exec, NULL);
    expect(t, c, two, "the result of a graph on the NULL stream, when the call has returned");
  }
  drop(t, exec, graph);
}

static void count(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

void cts_case_capture_host_call(cts_t *t) {
  static atomic_int calls;
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  if (cts_stream_host_call(t, stream, count, &calls) == HAL_UNIMPLEMENTED) {
    (void)cts_capture_end(t, stream, &graph); /* invalidated or not: the stream runs its work again */
    cts_sync(t, stream);
    cts_skip(t, "graphs of this device contain no host functions: stream_host_call returned that");
  }
  graph = end(t, stream);
  CTS_CHECK(t, atomic_load(&calls) == 0, "a host function that was recorded has run");
  const hal_status_t status = cts_graph_instantiate(t, graph, &exec);
  if (status == HAL_UNIMPLEMENTED) cts_skip(t, "graphs of this device hold no host functions");
  cts_expect_ok(t, HAL_SLOT_graph_instantiate, status);
  for (int i = 1; i <= TIMES; i++) {
    CTS_OK(t, graph_launch, exec, stream);
    cts_sync(t, stream);
    CTS_CHECK(t, atomic_load(&calls) == i, "a graph with a host function was launched %d times, and it ran %d times", i,
              atomic_load(&calls));
  }
  drop(t, exec, graph);
}

/* Kernels and the values of their arguments, which the caller may change when the call has returned. */
void cts_case_capture_kernels(cts_t *t) {
  if (!CTS_PROVIDES(t, kernel_launch)) cts_skip(t, "the plugin does not provide kernel_launch");
  hal_plugin_module_t *const module = cts_kernels_load(t);
  hal_plugin_kernel_t *const ramp = cts_kernel_find(t, module, "cts_ramp"), *const add =
                                                                                cts_kernel_find(t, module, "cts_add");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const device = cts_alloc(t, CTS_RAMP * 4), *const other = cts_alloc(t, CTS_RAMP * 4);
  cts_ramp_launch(t, ramp, stream, other, 1, CTS_RAMP);
  cts_ramp_launch(t, add, stream, other, 1, CTS_RAMP); /* compiled, if it is done at the first launch */
  cts_sync(t, stream);
  CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, 0);
  for (int32_t i = 0; i < 5; i++) cts_ramp_launch(t, i ? add : ramp, stream, device, i ? i : 100, CTS_RAMP);
  hal_plugin_graph_t *const graph = end(t, stream);
  hal_plugin_graph_exec_t *const exec = instantiate(t, graph);
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, memory_fill, NULL, t->device, device, "", 1, CTS_RAMP * 4);
    CTS_OK(t, graph_launch, exec, stream);
    cts_sync(t, stream);
    cts_ramp_check(t, device, 100, 16, 26, "the result of a graph of five kernels");
  }
  drop(t, exec, graph);
}

static void expect_status(cts_t *t, hal_plugin_stream_t *stream, uint32_t expected, uint64_t id, uint64_t *out_id) {
  uint32_t status = 99;
  uint64_t number = 99;
  CTS_OK(t, capture_status, stream, &status, &number);
  CTS_CHECK(t, status == expected, "capture_status returned %u instead of %u", status, expected);
  CTS_CHECK(t, expected == HAL_CAPTURE_NONE ? number == 0 : number != 0 && (!id || number == id),
            "capture_status returned the number %llu with status %u%s", (unsigned long long)number, status,
            id ? ", and another one for a stream of the same capture" : "");
  if (out_id) *out_id = number;
}

void cts_case_capture_status(cts_t *t) {
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  uint64_t ids[4];
  expect_status(t, NULL, HAL_CAPTURE_NONE, 0, NULL);
  for (int i = 0; i < 2; i++) {
    expect_status(t, first, HAL_CAPTURE_NONE, 0, NULL);
    CTS_OK(t, capture_begin, first, HAL_CAPTURE_RELAXED, 0);
    expect_status(t, first, HAL_CAPTURE_ACTIVE, 0, &ids[2 * i]);
    expect_status(t, second, HAL_CAPTURE_NONE, 0, NULL);
    CTS_OK(t, capture_begin, second, HAL_CAPTURE_RELAXED, 0); /* two at the same time */
    expect_status(t, second, HAL_CAPTURE_ACTIVE, 0, &ids[2 * i + 1]);
    expect_status(t, first, HAL_CAPTURE_ACTIVE, ids[2 * i], NULL);
    drop(t, NULL, end(t, first));
    expect_status(t, first, HAL_CAPTURE_NONE, 0, NULL);
    expect_status(t, second, HAL_CAPTURE_ACTIVE, ids[2 * i + 1], NULL);
    drop(t, NULL, end(t, second));
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++)
      CTS_CHECK(t, ids[i] != ids[j], "capture_status returned the number %llu for two captures",
                (unsigned long long)ids[i]);
}

/* Work of a stream that waits for an event of a captured one is recorded with it. */
void cts_case_capture_joins(cts_t *t) {
  if (!CTS_PROVIDES(t, event_record) || !CTS_PROVIDES(t, stream_wait_event))
    cts_skip(t, "the plugin has no events of its own");
  hal_plugin_stream_t *const first = cts_stream(t), *const second = cts_stream(t);
  hal_plugin_event_t *const begun = cts_event(t, 0), *const done = cts_event(t, 0);
  uint8_t *const a = filled(t, one), *const b = filled(t, one), *const c = filled(t, one);
  uint64_t id = 0;
  CTS_OK(t, capture_begin, first, HAL_CAPTURE_RELAXED, 0);
  expect_status(t, first, HAL_CAPTURE_ACTIVE, 0, &id);
  CTS_OK(t, memory_fill, first, t->device, a, &two, sizeof two, SIZE);
  CTS_OK(t, event_record, begun, first);
  CTS_OK(t, stream_wait_event, second, begun);
  expect_status(t, second, HAL_CAPTURE_ACTIVE, id, NULL);
  copy(t, second, b, a);
  CTS_OK(t, event_record, done, second);
  CTS_OK(t, stream_wait_event, first, done);
  copy(t, first, c, b);
  hal_plugin_graph_t *const graph = end(t, first);
  expect_status(t, second, HAL_CAPTURE_NONE, 0, NULL);
  cts_sync(t, second);
  expect(t, b, one, "memory that a stream would write that was captured with another");
  hal_plugin_graph_exec_t *const exec = instantiate(t, graph);
  CTS_OK(t, graph_launch, exec, first);
  cts_sync(t, first);
  expect(t, b, two, "memory that the second stream of a graph writes");
  expect(t, c, two, "data that the first stream of a graph reads after the second");
  CTS_OK(t, memory_fill, second, t->device, b, &three, sizeof three, SIZE);
  cts_sync(t, second);
  expect(t, b, three, "memory that a stream fills once it is captured no more");
  drop(t, exec, graph);
}

/* ---- calls that no graph can contain ---- */
typedef struct forbidden_s {
  cts_t *t;
  hal_plugin_stream_t *stream;
  int allocates;
  hal_status_t status;
} forbidden_t;

/* In any thread: the page records one call at a time, and here the other thread waits. */
static void *call_forbidden(void *data) {
  forbidden_t *const with = data;
  void *ptr = NULL;
  with->status = with->allocates ? cts_memory_alloc(with->t, with->t->device, SIZE, 0, &ptr)
                                 : cts_stream_synchronize(with->t, with->stream);
  if (with->allocates && !with->status) cts_free(with->t, ptr);
  return NULL;
}

static void try_forbidden(cts_t *t, uint32_t mode, int other_thread, int allocates, int fails) {
  static const char *const modes[] = {"HAL_CAPTURE_GLOBAL", "HAL_CAPTURE_THREAD", "HAL_CAPTURE_RELAXED"};
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const a = filled(t, one);
  hal_plugin_graph_t *graph = (hal_plugin_graph_t *)(void *)t;
  forbidden_t with = {.t = t, .stream = stream, .allocates = allocates};
  const char *const what = allocates ? "memory_alloc" : "stream_synchronize of the stream";
  pthread_t thread;
  CTS_OK(t, capture_begin, stream, mode, 0);
  CTS_OK(t, memory_fill, stream, t->device, a, &two, sizeof two, SIZE);
  if (!other_thread)
    call_forbidden(&with);
  else if (pthread_create(&thread, NULL, call_forbidden, &with) || pthread_join(thread, NULL))
    cts_fail(t, "error of the suite: no thread can be made");
  CTS_CHECK(t, (with.status != HAL_OK) == fails, "%s of %s returned %s while a stream was captured in the mode %s",
            what, other_thread ? "another thread" : "the thread that began it", hal_status_name(with.status),
            modes[mode]);
  expect_status(t, stream, fails ? HAL_CAPTURE_INVALID : HAL_CAPTURE_ACTIVE, 0, NULL);
  const hal_status_t status = cts_capture_end(t, stream, &graph);
  if (fails) CTS_JUDGE(t, capture_end, "HAL_ABORTED = the capture became invalid");
  CTS_CHECK(t, status == (fails ? HAL_ABORTED : HAL_OK), "capture_end returned %s after %s in the mode %s",
            hal_status_name(status), what, modes[mode]);
  if (fails) CTS_CHECK(t, graph == (void *)t, "capture_end failed and wrote to its out-parameter");
  if (!fails) drop(t, NULL, graph);
  expect_status(t, stream, HAL_CAPTURE_NONE, 0, NULL);
  cts_sync(t, stream);
  expect(t, a, one, "memory that recorded work would fill, whose capture has ended");
  CTS_JUDGE(t, capture_end, "the stream runs its work again");
  CTS_OK(t, memory_fill, stream, t->device, a, &three, sizeof three, SIZE);
  cts_sync(t, stream);
  expect(t, a, three, "memory that a stream fills after a capture that ended");
  CTS_JUDGE(t, capture_begin, "`mode`");
}

/* Of synchronization, only the failures that are required: where the contract allows it, that of a captured stream has
 * no meaning. */
void cts_case_capture_forbids(cts_t *t) {
  for (int allocates = 0; allocates < 2; allocates++)
    for (uint32_t mode = HAL_CAPTURE_GLOBAL; mode <= HAL_CAPTURE_RELAXED; mode++)
      for (int other = 0; other < 2; other++) {
        const int fails = mode == HAL_CAPTURE_GLOBAL || (mode == HAL_CAPTURE_THREAD && !other);
        if (allocates || fails) try_forbidden(t, mode, other, allocates, fails);
      }
}

/* ---- instances ---- */

void cts_case_capture_lives_on(cts_t *t) {
  hal_plugin_stream_t *const stream = cts_stream(t);
  uint8_t *const a = filled(t, one), *const b = filled(t, one), *const c = filled(t, one);
  hal_plugin_graph_t *const graph = record(t, stream, two, a, b, c);
  hal_plugin_graph_exec_t *const first = instantiate(t, graph), *const second = instantiate(t, graph);
  CTS_OK(t, graph_destroy, graph);
  /* whichever allocation gets its memory */
  for (int i = 0; i < 20; i++) drop(t, NULL, record(t, stream, three, c, c + 0, a));
  CTS_JUDGE(t, graph_exec_destroy, "Destroys an instance");
  CTS_OK(t, graph_exec_destroy, first);
  CTS_JUDGE(t, graph_destroy, "remain valid");
  CTS_OK(t, graph_launch, second, stream);
  cts_sync(t, stream);
  expect(t, b, two, "memory that an instance writes whose recording was destroyed");
  drop(t, second, NULL);
}

void cts_case_capture_update(cts_t *t) {
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const recorded = cts_stream(t), *const stream = cts_stream(t);
  uint8_t *const a = filled(t, one), *const b = filled(t, one), *const c = filled(t, one), *const kept = filled(t, one);
  hal_plugin_graph_t *const first = record(t, recorded, two, a, b, c), *const second =
                                                                           record(t, recorded, three, a, b, c);
  hal_plugin_graph_exec_t *const exec = instantiate(t, first);
  if (held) cts_gate_close(t, &gate, stream);
  CTS_OK(t, graph_launch, exec, stream);
  copy(t, stream, kept, b);
  CTS_OK(t, graph_update, exec, second);
  CTS_OK(t, graph_launch, exec, stream);
  if (held) cts_gate_open(&gate);
  cts_sync(t, stream);
  expect(t, b, three, "memory that an instance fills which was given the arguments of another recording");
  CTS_JUDGE(t, graph_update, "Launches that are already queued keep theirs");
  expect(t, kept, two, "memory that a launch filled which was queued before its instance was given other arguments");
  CTS_JUDGE(t, graph_update, "HAL_FAILED_PRECONDITION = the work differs");
  CTS_OK(t, capture_begin, recorded, HAL_CAPTURE_RELAXED, 0);
  copy(t, recorded, c, a);
  hal_plugin_graph_t *const another = end(t, recorded);
  CTS_STATUS(t, HAL_FAILED_PRECONDITION, graph_update, exec, another);
  CTS_JUDGE(t, graph_update, "the instance is unchanged");
  CTS_OK(t, memory_fill, NULL, t->device, b, &one, sizeof one, SIZE);
  CTS_OK(t, graph_launch, exec, stream);
  cts_sync(t, stream);
  expect(t, b, three, "memory that an instance fills, after a graph_update that failed");
  drop(t, exec, first);
  drop(t, NULL, second), drop(t, NULL, another);
}

/* Graphs of one pool run one after another, those of several in any order; the number has no other meaning for the
 * device. */
void cts_case_capture_pool(cts_t *t) {
  static const uint64_t pools[] = {1, 1, UINT64_MAX};
  enum { GRAPHS = sizeof pools / sizeof pools[0] };
  hal_plugin_stream_t *const stream = cts_stream(t), *const other = cts_stream(t);
  uint8_t *const from = filled(t, one), *to[GRAPHS];
  hal_plugin_graph_t *graphs[GRAPHS];
  hal_plugin_graph_exec_t *execs[GRAPHS];
  for (int i = 0; i < GRAPHS; i++) {
    to[i] = filled(t, two);
    CTS_OK(t, capture_begin, stream, HAL_CAPTURE_RELAXED, pools[i]);
    copy(t, stream, to[i], from);
    graphs[i] = end(t, stream);
    execs[i] = instantiate(t, graphs[i]);
  }
  for (int round = 0; round < TIMES; round++) {
    const uint32_t pattern = 0x01010101u * (uint32_t)(round + 5);
    CTS_OK(t, memory_fill, NULL, t->device, from, &pattern, sizeof pattern, SIZE);
    CTS_OK(t, graph_launch, execs[2], other);
    CTS_OK(t, graph_launch, execs[0], stream);
    CTS_OK(t, graph_launch, execs[1], stream);
    cts_sync(t, stream), cts_sync(t, other);
    for (int i = 0; i < GRAPHS; i++) expect(t, to[i], pattern, "memory that a graph writes whose capture named a pool");
  }
  for (int i = 0; i < GRAPHS; i++) drop(t, execs[i], graphs[i]);
}
