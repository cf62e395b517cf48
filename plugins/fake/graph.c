/* graph.c: capture and graphs. While a stream is captured, work that is queued on it becomes a node of a recording
 * instead of an item of its queue. Nodes are in the order of the calls, for all streams of the capture. That order
 * preserves the order of each stream, and a wait for an event comes after the work that the event marks. A launch of an
 * instance is one item, which runs the recording's nodes one after another.
 *
 * A thread may acquire a stream's lock or an event's lock while it holds the lock of the captures, but not in the other
 * order. */
#include <pthread.h>
#include <string.h>

#include "sanitize/sanitize.h"

typedef struct node_s {
  alignas(16) struct node_s *next; /* the item follows */
} node_t;

/* Captured work, which no longer changes. Shared by graphs, instances and queued launches. */
struct fake_recording_s {
  atomic_uint refs;
  uint64_t count;
  node_t *first, **end;
  fake_branches_t branches; /* with the class race of HAL_FAKE_SANITIZE */
};

struct fake_capture_s {
  fake_capture_t *next;
  uint64_t id;
  uint32_t mode;
  const char *invalid_by; /* the reason why it is invalid; static text */
  pthread_t thread;       /* the thread that began it */
  hal_plugin_stream_t *origin, *streams;
  fake_recording_t *recording;
};

struct hal_plugin_graph_s {
  fake_recording_t *recording;
  int32_t device;
};

struct hal_plugin_graph_exec_s {
  fake_lock_t lock;
  fake_recording_t *recording;
  int32_t device;
  hal_plugin_stream_t *last; /* the stream of the last launch, a reference; launches are in order */
  uint64_t number;
  fake_clock_t *clock; /* of the last launch, with the class race of HAL_FAKE_SANITIZE */
};

static fake_lock_t lock; /* guards all captures, their streams and the nodes of their recordings */
static fake_capture_t *captures;
static uint64_t last_id;

/* ---- recordings ------------------------------------------------------------------------------------------------- */

static fake_item_t *item_of(const node_t *node) { return (fake_item_t *)(void *)(uintptr_t)(node + 1); }

static fake_recording_t *ref(fake_recording_t *recording) {
  atomic_fetch_add_explicit(&recording->refs, 1, memory_order_relaxed);
  return recording;
}

void fake_recording_unref(fake_recording_t *recording) {
  if (atomic_fetch_sub_explicit(&recording->refs, 1, memory_order_acq_rel) != 1) return;
  for (node_t *node = recording->first; node;) {
    node_t *const next = node->next;
    if (item_of(node)->kind == FAKE_ITEM_GRAPH) fake_recording_unref(item_of(node)->u.graph);
    if (item_of(node)->flags & FAKE_ITEM_TRACED) fake_clock_drop(fake_item_trace(item_of(node))->clock);
    hal_host->mem_free(node);
    node = next;
  }
  fake_branches_free(&recording->branches);
  hal_host->mem_free(recording);
}

static hal_status_t new_recording(fake_recording_t **out_recording) {
  fake_recording_t *const recording = hal_host->mem_alloc(sizeof *recording, alignof(fake_recording_t));
  if (!recording) return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a capture; free some memory");
  *recording = (fake_recording_t){.end = &recording->first};
  atomic_store_explicit(&recording->refs, 1, memory_order_relaxed);
  *out_recording = recording;
  return HAL_OK;
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

/* A launch that runs. */
typedef struct replay_s {
  hal_plugin_stream_t *stream;
  const fake_recording_t *recording;
  const fake_trace_t *launch; /* NULL: its work is not compared */
  int is_nested;              /* its branches are not distinguished */
  /* The clocks of the last nodes, by branch, and the captured ones from which they were made. */
  fake_clock_t *clocks[4];
  const fake_clock_t *captured[4];
} replay_t;

/* Writes the trace of a node that runs, whose clock belongs to the replay. */
static void trace_node(replay_t *replay, const fake_item_t *item, fake_trace_t *out_trace) {
  const fake_trace_t *const node = fake_item_trace(item), *const launch = replay->launch;
  const fake_branches_t *const branches = &replay->recording->branches;
  const uint32_t branch = node->timeline, at = branch % 4;
  *out_trace = *node;
  out_trace->clock = NULL;
  if (!launch || !launch->clock || !node->clock) return;
  out_trace->number = launch->number - 1 + node->number;
  out_trace->timeline = launch->timeline;
  out_trace->clock = launch->clock;
  const uint64_t gap = launch->gap + node->number - 1;
  out_trace->gap = gap < FAKE_RACE_PERIOD ? (uint32_t)gap : (uint32_t)FAKE_RACE_PERIOD;
  if (replay->is_nested) return;
  if (branch && branches->indices) out_trace->timeline = branches->indices[branch];
  if (out_trace->timeline == FAKE_NO_TIMELINE) out_trace->clock = NULL;
  if (replay->captured[at] != node->clock) {
    fake_clock_drop(replay->clocks[at]);
    replay->clocks[at] = fake_branch_clock(branches, launch, node);
    replay->captured[at] = node->clock;
  }
  if (out_trace->clock) out_trace->clock = replay->clocks[at];
}

/* A record of the profile describes the launch of the graph, not the capture. */
static void run_noted(replay_t *replay, const fake_item_t *item) {
  fake_noted_t room;
  if (item->flags & FAKE_ITEM_TRACED) trace_node(replay, item, &room.trace);
  if (fake_note_again(&room, fake_item_note(item), replay->stream))
    fake_run_noted(&room.note, replay->stream, item->u.launch.kernel, &item->u.launch.range, item->args);
  else
    fake_run(replay->stream, item->u.launch.kernel, &item->u.launch.range, item->args);
}

static const hal_host_kernel_t *run_nodes(replay_t *replay);

/* Runs a node with a trace that is not a launch: a graph, or a function of the host. */
static const hal_host_kernel_t *run_traced(replay_t *replay, const fake_item_t *item) {
  fake_trace_t trace;
  trace_node(replay, item, &trace);
  if (item->kind == FAKE_ITEM_GRAPH) {
    replay_t nested = {.stream = replay->stream, .recording = item->u.graph, .launch = &trace, .is_nested = 1};
    return run_nodes(&nested);
  }
  item->u.host.fn(item->u.host.user_data);
  fake_timeline_ran(&trace);
  return NULL;
}

/* Returns the kernel that failed, if one did. */
static const hal_host_kernel_t *run_nodes(replay_t *replay) {
  const hal_host_kernel_t *failed = NULL;
  for (const node_t *node = replay->recording->first; node; node = node->next) {
    const fake_item_t *const item = item_of(node);
    const hal_host_kernel_t *fails = NULL;
    if ((item->flags & FAKE_ITEM_COUNTED) && fake_launch_fails())
      fails = item->u.launch.kernel;
    else if ((item->flags & FAKE_ITEM_TRACED) && item->kind != FAKE_ITEM_LAUNCH)
      fails = run_traced(replay, item);
    else if (item->kind == FAKE_ITEM_GRAPH)
      fails = fake_recording_run(replay->stream, item->u.graph, NULL);
    else if ((item->flags & FAKE_ITEM_NOTED) && fake_profile_any())
      run_noted(replay, item);
    else
      fake_run_item(replay->stream, item);
    if (!failed) failed = fails;
  }
  return failed;
}

const hal_host_kernel_t *fake_recording_run(hal_plugin_stream_t *stream, const fake_recording_t *recording,
                                            const fake_trace_t *launch) {
  replay_t replay = {.stream = stream, .recording = recording, .launch = launch};
  const hal_host_kernel_t *const failed = run_nodes(&replay);
  for (int i = 0; i < 4; i++) fake_clock_drop(replay.clocks[i]);
  return failed;
}

/* Returns whether two recordings contain the same work, with any arguments. */
static int is_same_work(const fake_recording_t *one, const fake_recording_t *other) {
  const node_t *a = one->first, *b = other->first;
  for (; a && b; a = a->next, b = b->next) {
    const fake_item_t *const x = item_of(a), *const y = item_of(b);
    if (x->kind != y->kind) return 0;
    if (x->kind == FAKE_ITEM_LAUNCH && x->u.launch.kernel != y->u.launch.kernel) return 0;
    if (x->kind == FAKE_ITEM_GRAPH && !is_same_work(x->u.graph, y->u.graph)) return 0;
  }
  return !a && !b;
}

/* ---- the streams of a capture ----------------------------------------------------------------------------------- */

/* The caller holds the lock. */
static fake_capture_t *capture_of(const hal_plugin_stream_t *stream) {
  return stream ? atomic_load_explicit(&stream->capture, memory_order_relaxed) : NULL;
}

/* The caller holds the lock. A thread that is queueing an item holds the stream's lock, and finishes as it began. */
static void set_capture(hal_plugin_stream_t *stream, fake_capture_t *capture) {
  fake_lock(&stream->lock);
  atomic_store_explicit(&stream->capture, capture, memory_order_relaxed);
  fake_unlock(&stream->lock);
}

/* Records the stream's work from now on; the caller holds the lock. */
static void join(fake_capture_t *capture, hal_plugin_stream_t *stream) {
  fake_stream_ref(stream);
  fake_clock_drop(stream->branch.clock);
  stream->branch = (fake_timeline_t){.index = capture->recording->branches.count++, .is_relative = 1};
  stream->capture_next = capture->streams;
  stream->capture_number = capture->recording->count;
  stream->capture_merged = 0;
  capture->streams = stream;
  set_capture(stream, capture);
}

static void invalidate(fake_capture_t *capture, const char *why) {
  if (capture && !capture->invalid_by) capture->invalid_by = why;
}

static hal_status_t refuse_invalid(const fake_capture_t *capture, const char *call) {
  return fake_error(HAL_FAILED_PRECONDITION, 0,
                    "fake: %s on a captured stream: the capture became invalid by %s; end it", call,
                    capture->invalid_by);
}

fake_item_t *fake_capture_reserve(hal_plugin_stream_t *stream, uint32_t size, uint32_t kind) {
  node_t *const node = hal_host->mem_alloc(sizeof *node + size, alignof(node_t));
  if (!node) {
    fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory to record another item; free some memory");
    return NULL;
  }
  fake_lock(&lock);
  const fake_capture_t *const capture = capture_of(stream);
  if (capture && !capture->invalid_by) {
    node->next = NULL;
    fake_item_t *const item = item_of(node);
    item->size = size;
    item->kind = (uint16_t)kind;
    item->flags = 0;
    return item;
  }
  if (capture)
    refuse_invalid(capture, "work");
  else
    fake_error(HAL_FAILED_PRECONDITION, 0,
               "fake: a thread ended the capture of a stream while another queued work on it; synchronize the threads");
  fake_unlock(&lock);
  hal_host->mem_free(node);
  return NULL;
}

void fake_capture_commit(hal_plugin_stream_t *stream, fake_item_t *item) {
  fake_recording_t *const recording = capture_of(stream)->recording;
  node_t *const node = (node_t *)(void *)item - 1;
  if (item->flags & FAKE_ITEM_TRACED) {
    const uint64_t works = item->kind == FAKE_ITEM_GRAPH ? item->u.graph->branches.works : 1;
    fake_timeline_record(&stream->branch, &recording->branches, works, fake_item_trace(item));
  }
  *recording->end = node;
  recording->end = &node->next;
  stream->capture_number = ++recording->count;
  stream->capture_merged = 0;
  fake_unlock(&lock);
}

/* ---- calls that cannot be part of a graph ----------------------------------------------------------------------- */

/* The caller holds the lock. */
static hal_status_t forbid(fake_capture_t *capture, const char *call) {
  static const char *const modes[] = {"HAL_CAPTURE_GLOBAL", "HAL_CAPTURE_THREAD", "HAL_CAPTURE_RELAXED"};
  invalidate(capture, call);
  return fake_error(HAL_FAILED_PRECONDITION, 0,
                    "fake: %s while a stream is captured in the mode %s, which is invalidated; capture in "
                    "HAL_CAPTURE_RELAXED, or call it before",
                    call, modes[capture->mode]);
}

hal_status_t fake_captures_forbid(const char *call) {
  hal_status_t status = HAL_OK;
  fake_lock(&lock);
  for (fake_capture_t *capture = captures; capture; capture = capture->next) {
    const int own = pthread_equal(capture->thread, pthread_self());
    if (capture->mode == HAL_CAPTURE_GLOBAL || (capture->mode == HAL_CAPTURE_THREAD && own))
      status = forbid(capture, call);
  }
  fake_unlock(&lock);
  return status;
}

hal_status_t fake_capture_refuses(hal_plugin_stream_t *stream, const char *call) {
  fake_lock(&lock);
  fake_capture_t *const capture = capture_of(stream);
  invalidate(capture, call);
  fake_unlock(&lock);
  if (!capture) return HAL_OK; /* it has just ended */
  return fake_error(
      HAL_FAILED_PRECONDITION, 0,
      "fake: %s of a stream that is captured, whose work does not run: end the capture, launch its graph and "
      "wait for that",
      call);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

uint64_t fake_capture_mark(const hal_plugin_stream_t *stream, uint64_t *out_number) {
  fake_lock(&lock);
  const fake_capture_t *const capture = capture_of(stream);
  *out_number = capture ? capture->recording->count : 0;
  const uint64_t id = capture ? capture->id : 0;
  fake_unlock(&lock);
  return id;
}

/* Records a wait for an event that was recorded on `marked` after node `number`; the caller holds the lock. */
static void merge(const fake_capture_t *capture, const hal_plugin_stream_t *marked, uint64_t number) {
  for (hal_plugin_stream_t *stream = capture->streams; stream; stream = stream->capture_next)
    if (stream == marked && number >= stream->capture_number) stream->capture_merged = 1;
}

hal_status_t fake_capture_wait(hal_plugin_stream_t *stream, const fake_mark_t *mark) {
  fake_lock(&lock);
  fake_capture_t *const mine = capture_of(stream), *theirs = captures;
  while (theirs && theirs->id != mark->capture) theirs = theirs->next;
  const char *wrong = NULL;
  if (!mark->capture)
    wrong = "an event that was recorded outside";
  else if (!theirs)
    wrong = "an event of a capture that has ended";
  else if (!stream)
    wrong = "an event of a captured stream on the NULL stream, whose work runs immediately";
  else if (mine && mine != theirs)
    wrong = "an event of another capture";
  if (!wrong && !mine) join(theirs, stream);
  if (!wrong) merge(theirs, mark->stream, mark->number);
  if (wrong) invalidate(mine, "waiting for an event outside of the capture");
  if (wrong && mark->capture && stream) invalidate(theirs, "waiting for its event in another capture");
  fake_unlock(&lock);
  if (!wrong) return HAL_OK;
  return fake_error(HAL_FAILED_PRECONDITION, 0,
                    "fake: stream_wait_event with %s; record the event on a stream of the capture", wrong);
}

/* ---- capture ---------------------------------------------------------------------------------------------------- */

static hal_status_t no_stream(const char *call) {
  return fake_error(HAL_INVALID_ARGUMENT, 0,
                    "fake: %s of the NULL stream, whose work runs immediately; create a stream", call);
}

hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  fake_recording_t *recording = NULL;
  (void)pool; /* the host handles it, because memory comes from its allocator */
  if (!stream) return no_stream("capture_begin");
  if (mode > HAL_CAPTURE_RELAXED)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: capture_begin with invalid mode %u; expected 0 to 2",
                      (unsigned)mode);
  const hal_status_t status = new_recording(&recording);
  if (status) return status;
  fake_capture_t *const capture = hal_host->mem_alloc(sizeof *capture, alignof(fake_capture_t));
  fake_lock(&lock);
  const int begun = capture_of(stream) != NULL;
  if (capture && !begun) {
    *capture = (fake_capture_t){.next = captures,
                                .id = ++last_id,
                                .mode = mode,
                                .thread = pthread_self(),
                                .origin = stream,
                                .recording = recording};
    captures = capture;
    atomic_fetch_add_explicit(&fake.captures, 1, memory_order_relaxed);
    join(capture, stream);
  }
  fake_unlock(&lock);
  if (capture && !begun) return HAL_OK;
  fake_recording_unref(recording);
  hal_host->mem_free(capture);
  if (begun)
    return fake_error(HAL_FAILED_PRECONDITION, 0,
                      "fake: capture_begin of a stream that is captured; end that capture first");
  return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a capture; free some memory");
}

/* Removes the capture from the list, so that its streams run again; returns its error. The caller holds the lock. */
static const char *finish(fake_capture_t *capture) {
  for (fake_capture_t **link = &captures; *link; link = &(*link)->next)
    if (*link == capture) {
      *link = capture->next;
      break;
    }
  atomic_fetch_sub_explicit(&fake.captures, 1, memory_order_relaxed);
  for (hal_plugin_stream_t *stream = capture->streams; stream; stream = stream->capture_next) {
    if (stream != capture->origin && !stream->capture_merged)
      invalidate(capture, "a stream that joined it and was not waited for");
    set_capture(stream, NULL);
  }
  return capture->invalid_by;
}

static void free_capture(fake_capture_t *capture) {
  for (hal_plugin_stream_t *stream = capture->streams; stream;) {
    hal_plugin_stream_t *const next = stream->capture_next;
    fake_stream_unref(stream);
    stream = next;
  }
  if (capture->recording) fake_recording_unref(capture->recording);
  hal_host->mem_free(capture);
}

hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  if (!stream) return no_stream("capture_end");
  hal_plugin_graph_t *const graph = hal_host->mem_alloc(sizeof *graph, alignof(hal_plugin_graph_t));
  if (!graph) return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a graph; free some memory");
  fake_lock(&lock);
  fake_capture_t *const capture = capture_of(stream);
  const int ends = capture && capture->origin == stream;
  if (capture && !ends) invalidate(capture, "capture_end of a stream that has joined it");
  const char *const invalid_by = ends ? finish(capture) : NULL;
  if (ends && !invalid_by) {
    *graph = (hal_plugin_graph_t){capture->recording, stream->device};
    capture->recording = NULL;
  }
  fake_unlock(&lock);
  if (ends) free_capture(capture);
  if (ends && !invalid_by) {
    *out_graph = graph;
    return HAL_OK;
  }
  hal_host->mem_free(graph);
  if (ends) return fake_error(HAL_ABORTED, 0, "fake: the capture became invalid by %s", invalid_by);
  return fake_error(HAL_FAILED_PRECONDITION, 0, "fake: capture_end of a stream %s",
                    capture ? "that joined a capture; end it on the stream that began it"
                            : "that is not captured; call capture_begin first");
}

hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  fake_lock(&lock);
  const fake_capture_t *const capture = capture_of(stream);
  *out_status = !capture ? HAL_CAPTURE_NONE : capture->invalid_by ? HAL_CAPTURE_INVALID : HAL_CAPTURE_ACTIVE;
  *out_id = capture ? capture->id : 0;
  fake_unlock(&lock);
  return HAL_OK;
}

void fake_capture_forget(hal_plugin_stream_t *stream) {
  fake_lock(&lock);
  fake_capture_t *const capture = capture_of(stream);
  invalidate(capture, "stream_destroy of a stream of its own");
  if (capture && capture->origin == stream) finish(capture);
  fake_unlock(&lock);
  if (capture && capture->origin == stream) free_capture(capture);
}

/* Another thread may have been in the middle of a capture; the child has no captures. Its memory is leaked on purpose.
 * */
void fake_capture_fork_child(void) {
  fake_lock_reset(&lock);
  captures = NULL;
  atomic_store_explicit(&fake.captures, 0, memory_order_relaxed);
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_graph_destroy(hal_plugin_graph_t *graph) {
  if (graph) fake_recording_unref(graph->recording);
  hal_host->mem_free(graph);
  return HAL_OK;
}

hal_status_t hal_plugin_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  hal_plugin_graph_exec_t *const exec = hal_host->mem_alloc(sizeof *exec, alignof(hal_plugin_graph_exec_t));
  if (!exec)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a graph's instance; free some memory");
  memset(exec, 0, sizeof *exec);
  exec->recording = ref(graph->recording);
  exec->device = graph->device;
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_update(hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  if (!is_same_work(exec->recording, graph->recording))
    return fake_error(HAL_FAILED_PRECONDITION, 0, "fake: the recording differs from the graph's; instantiate it again");
  fake_lock(&exec->lock);
  fake_recording_t *const old = exec->recording;
  exec->recording = ref(graph->recording);
  fake_unlock(&exec->lock);
  fake_recording_unref(old);
  return HAL_OK;
}

hal_status_t hal_plugin_graph_exec_destroy(hal_plugin_graph_exec_t *exec) {
  if (!exec) return HAL_OK;
  fake_recording_unref(exec->recording);
  if (exec->last) fake_stream_unref(exec->last);
  fake_clock_drop(exec->clock);
  hal_host->mem_free(exec);
  return HAL_OK;
}

/* Replaces the stream and number of the last launch, taking ownership of a reference; returns the previous ones, with
 * their reference. */
static hal_plugin_stream_t *exchange_last(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream,
                                          uint64_t *inout_number) {
  fake_lock(&exec->lock);
  hal_plugin_stream_t *const last = exec->last;
  const uint64_t number = exec->number;
  exec->last = stream;
  exec->number = *inout_number;
  fake_unlock(&exec->lock);
  *inout_number = number;
  return last;
}

/* Waits for an earlier launch on another stream. */
static hal_status_t wait_for_last(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  uint64_t number = 0;
  hal_status_t status = HAL_OK;
  hal_plugin_stream_t *const last = exchange_last(exec, NULL, &number);
  if (!last) return HAL_OK;
  if (!stream)
    fake_stream_wait(last, number);
  else if (last != stream && fake_stream_done(last) < number)
    status = fake_stream_wait_number(stream, last, number, NULL);
  fake_stream_unref(last);
  return status;
}

static fake_recording_t *recording_of(hal_plugin_graph_exec_t *exec) {
  fake_lock(&exec->lock);
  fake_recording_t *const recording = ref(exec->recording);
  fake_unlock(&exec->lock);
  return recording;
}

/* Numbers the work of a launch, which comes after the last launch on any stream. */
static void number_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream, fake_recording_t *recording,
                          fake_trace_t *out_trace) {
  *out_trace = (fake_trace_t){.stack = fake_sanitize_stack()};
  fake_lock(&exec->lock);
  fake_clock_t *const last = exec->clock;
  exec->clock = NULL;
  fake_unlock(&exec->lock);
  fake_timeline_wait(fake_timeline_of(stream), last);
  fake_clock_drop(last);
  fake_timeline_launch(fake_timeline_of(stream), &recording->branches, out_trace);
  fake_clock_t *const now = fake_race_now(stream);
  fake_lock(&exec->lock);
  fake_clock_t *const other = exec->clock; /* of another thread */
  exec->clock = now;
  fake_unlock(&exec->lock);
  fake_clock_drop(other);
}

static hal_status_t queue_graph(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  const int captured = fake_is_captured(stream);
  hal_status_t status = captured ? HAL_OK : wait_for_last(exec, stream);
  if (status) return status;
  fake_recording_t *const recording = recording_of(exec);
  fake_trace_t trace = {.clock = NULL};
  if (fake_races() && !captured) number_launch(exec, stream, recording, &trace);
  fake_item_t *const item = fake_queue_reserve(
      stream, (uint32_t)(sizeof *item + (fake_races() ? sizeof trace : 0)), FAKE_ITEM_GRAPH);
  if (!item) {
    fake_clock_drop(trace.clock);
    fake_recording_unref(recording);
    return fake_queue_refused(stream);
  }
  item->u.graph = recording;
  if (fake_races()) {
    item->flags |= FAKE_ITEM_TRACED;
    *fake_item_trace(item) = trace;
  }
  uint64_t number = fake_queue_commit(stream, item);
  if (captured) return HAL_OK;
  fake_stream_ref(stream);
  hal_plugin_stream_t *const other = exchange_last(exec, stream, &number);
  if (other) fake_stream_unref(other); /* another thread launched it meanwhile, in an unspecified order */
  return HAL_OK;
}

hal_status_t hal_plugin_graph_launch(hal_plugin_graph_exec_t *exec, hal_plugin_stream_t *stream) {
  if (stream && stream->device != exec->device)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: a graph of device %d cannot run on a stream of device %d",
                      (int)exec->device, (int)stream->device);
  if (fake_queues(stream)) return queue_graph(exec, stream);
  if (!stream) wait_for_last(exec, NULL);
  fake_recording_t *const recording = recording_of(exec);
  fake_trace_t trace = {.clock = NULL};
  if (fake_races()) number_launch(exec, stream, recording, &trace);
  if (stream) fake_lock(&stream->lock);
  const hal_host_kernel_t *const failed = fake_recording_run(stream, recording, fake_races() ? &trace : NULL);
  if (stream) fake_unlock(&stream->lock);
  fake_clock_drop(trace.clock);
  fake_recording_unref(recording);
  return failed ? fake_launch_inject(stream, failed) : HAL_OK;
}
