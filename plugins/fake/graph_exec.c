/* graph_exec.c: graphs, their instances, and launches: one item, which runs the nodes of a recording (graph.c). */
#include <string.h>

#include "graph.h"
#include "sanitize/sanitize.h"

struct hal_plugin_graph_exec_s {
  fake_lock_t lock;
  fake_recording_t *recording;
  int32_t device;
  hal_plugin_stream_t *last; /* the stream of the last launch, a reference; launches are in order */
  uint64_t number;
  fake_clock_t *clock; /* of the last launch, with the class race of HAL_FAKE_SANITIZE */
};

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
  for (const fake_node_t *node = replay->recording->first; node; node = node->next) {
    const fake_item_t *const item = fake_node_item(node);
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
  const fake_node_t *a = one->first, *b = other->first;
  for (; a && b; a = a->next, b = b->next) {
    const fake_item_t *const x = fake_node_item(a), *const y = fake_node_item(b);
    if (x->kind != y->kind) return 0;
    if (x->kind == FAKE_ITEM_LAUNCH && x->u.launch.kernel != y->u.launch.kernel) return 0;
    if (x->kind == FAKE_ITEM_GRAPH && !is_same_work(x->u.graph, y->u.graph)) return 0;
  }
  return !a && !b;
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
  exec->recording = fake_recording_ref(graph->recording);
  exec->device = graph->device;
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t hal_plugin_graph_update(hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  if (!is_same_work(exec->recording, graph->recording))
    return fake_error(HAL_FAILED_PRECONDITION, 0, "fake: the recording differs from the graph's; instantiate it again");
  fake_lock(&exec->lock);
  fake_recording_t *const old = exec->recording;
  exec->recording = fake_recording_ref(graph->recording);
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
  fake_recording_t *const recording = fake_recording_ref(exec->recording);
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
  const fake_branches_t *const branches = &recording->branches;
  for (uint32_t i = 1; branches->indices && i < branches->count; i++) fake_report_name(branches->indices[i], NULL);
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
  fake_item_t *const item =
      fake_queue_reserve(stream, (uint32_t)(sizeof *item + (fake_races() ? sizeof trace : 0)), FAKE_ITEM_GRAPH);
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
