/* capture.c: graphs. A recording is a list of calls in the order in which they were made, on whichever stream of the capture; a replay
 * makes them again on one stream. */
#include <pthread.h>
#include <stdatomic.h>

#include "whole.h"

enum node_kind { COPY, FILL, LAUNCH, CALL };
typedef struct node_s {
  enum node_kind kind;
  void *dst;
  const void *src;
  int32_t to, from; /* devices */
  size_t size, pattern_size;
  uint8_t pattern[16];
  hal_plugin_kernel_t *kernel;
  hal_launch_t launch; /* with arguments and values of its own */
  hal_host_fn_t fn;
  void *data;
} node_t;

struct hal_plugin_graph_s {
  int refs, count, room;
  node_t *nodes;
};
struct hal_plugin_graph_exec_s {
  hal_plugin_graph_t *graph;
};

enum { STREAMS = 16, EVENTS = 1024 };
typedef struct capture_s {
  struct capture_s *next;
  uint64_t id;
  uint32_t mode, status;
  pthread_t thread;
  stream_t *streams[STREAMS]; /* the first is that of capture_begin */
  int stream_count;
  hal_plugin_graph_t *graph;
} capture_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture_t *captures;
static atomic_int active; /* captures: without one, every call goes on at once */
static uint64_t last_id;
static struct {
  event_t *event;
  uint64_t id;
} events[EVENTS]; /* recorded last on a captured stream */

/* ---- graphs ---- */
static void unref(hal_plugin_graph_t *graph) {
  pthread_mutex_lock(&lock);
  const int last = --graph->refs == 0;
  pthread_mutex_unlock(&lock);
  if (!last) return;
  for (int i = 0; i < graph->count; i++) {
    node_t *const node = &graph->nodes[i];
    for (uint32_t j = 0; node->kind == LAUNCH && j < node->launch.arg_count; j++)
      free((void *)(uintptr_t)node->launch.args[j].value);
    if (node->kind == LAUNCH) free((void *)(uintptr_t)node->launch.args);
  }
  free(graph->nodes);
  free(graph);
}

/* Under the lock. */
static capture_t *find(const stream_t *stream) {
  for (capture_t *at = captures; at; at = at->next)
    for (int i = 0; i < at->stream_count; i++)
      if (at->streams[i] == stream) return at;
  return NULL;
}

/* Adds a node to the capture of the stream; 0 = there is none, the call is to run. */
static int add(stream_t *stream, const node_t *node, hal_status_t *out_status) {
  if (!stream || !atomic_load(&active)) return 0;
  pthread_mutex_lock(&lock);
  capture_t *const capture = find(stream);
  *out_status = HAL_OK;
  if (capture) {
    hal_plugin_graph_t *const graph = capture->graph;
    if (graph->count == graph->room) {
      const int room = 2 * graph->room + 8;
      node_t *const nodes = realloc(graph->nodes, (size_t)room * sizeof *nodes);
      if (nodes) graph->nodes = nodes, graph->room = room;
    }
    if (graph->count < graph->room)
      graph->nodes[graph->count++] = *node;
    else
      *out_status = HAL_RESOURCE_EXHAUSTED;
  }
  pthread_mutex_unlock(&lock);
  if (capture && *out_status) whole_refuse(*out_status, "whole: no memory for a graph");
  return capture != NULL;
}

hal_status_t whole_memory_copy(stream_t *stream, void *dst, int32_t to, const void *src, int32_t from, size_t size) {
  const node_t node = {.kind = COPY, .dst = dst, .src = src, .to = to, .from = from, .size = size};
  hal_status_t status;
  return add(stream, &node, &status) ? status : whole_good.memory_copy(stream, dst, to, src, from, size);
}

hal_status_t whole_memory_fill(stream_t *stream, int32_t device, void *dst, const void *pattern, size_t pattern_size,
                               size_t size) {
  node_t node = {.kind = FILL, .dst = dst, .to = device, .size = size, .pattern_size = pattern_size};
  hal_status_t status;
  memcpy(node.pattern, pattern, pattern_size <= 16 ? pattern_size : 0);
  return add(stream, &node, &status) ? status
                                     : whole_good.memory_fill(stream, device, dst, pattern, pattern_size, size);
}

hal_status_t whole_stream_host_call(stream_t *stream, hal_host_fn_t fn, void *data) {
  const node_t node = {.kind = CALL, .fn = fn, .data = data};
  hal_status_t status;
  return add(stream, &node, &status) ? status : whole_good.stream_host_call(stream, fn, data);
}

hal_status_t whole_kernel_launch(hal_plugin_kernel_t *kernel, stream_t *stream, const hal_launch_t *launch) {
  hal_status_t status;
  if (!stream || !atomic_load(&active)) return whole_good.kernel_launch(kernel, stream, launch);
  node_t node = {.kind = LAUNCH, .kernel = kernel, .launch = *launch};
  hal_arg_t *const args = calloc(launch->arg_count + 1, sizeof *args);
  node.launch.args = args, node.launch.attribute_count = 0, node.launch.attributes = NULL;
  for (uint32_t i = 0; args && i < launch->arg_count; i++) {
    args[i] = launch->args[i];
    void *const value = malloc(args[i].size + 1);
    args[i].value = value;
    if (value && launch->args[i].value) memcpy(value, launch->args[i].value, args[i].size);
  }
  if (add(stream, &node, &status)) return status;
  for (uint32_t i = 0; args && i < launch->arg_count; i++) free((void *)(uintptr_t)args[i].value);
  free(args);
  return whole_good.kernel_launch(kernel, stream, launch);
}

/* ---- events and streams ---- */
static void note_event(event_t *event, uint64_t id) {
  int room = -1;
  for (int i = 0; i < EVENTS; i++) {
    if (events[i].event == event) events[i].event = NULL;
    if (!events[i].event) room = i;
  }
  if (id && room >= 0) events[room].event = event, events[room].id = id;
}

hal_status_t whole_capture_record(event_t *event, stream_t *stream) {
  pthread_mutex_lock(&lock);
  const capture_t *const capture = stream ? find(stream) : NULL;
  if (capture || captures) note_event(event, capture ? capture->id : 0);
  pthread_mutex_unlock(&lock);
  return capture ? HAL_OK : whole_good.event_record(event, stream);
}

hal_status_t whole_capture_wait(stream_t *stream, event_t *event) {
  if (!atomic_load(&active)) return whole_good.stream_wait_event(stream, event);
  pthread_mutex_lock(&lock);
  capture_t *capture = NULL;
  for (int i = 0; i < EVENTS; i++)
    for (capture_t *at = captures; at && events[i].event == event; at = at->next)
      if (at->id == events[i].id) capture = at;
  if (capture && find(stream) != capture && capture->stream_count < STREAMS)
    capture->streams[capture->stream_count++] = stream;
  const int captured = find(stream) != NULL;
  pthread_mutex_unlock(&lock);
  return captured ? HAL_OK : whole_good.stream_wait_event(stream, event);
}

/* Spoils the captures that forbid synchronisation and allocation to this thread; those of `stream` in any mode. */
hal_status_t whole_forbid(const stream_t *stream) {
  int spoiled = 0;
  if (!atomic_load(&active)) return HAL_OK;
  pthread_mutex_lock(&lock);
  const capture_t *const own = stream ? find(stream) : NULL;
  for (capture_t *at = captures; at; at = at->next) {
    const int same = pthread_equal(at->thread, pthread_self());
    if (at != own && at->mode != HAL_CAPTURE_GLOBAL && !(at->mode == HAL_CAPTURE_THREAD && same)) continue;
    at->status = HAL_CAPTURE_INVALID, spoiled = 1;
  }
  pthread_mutex_unlock(&lock);
  return spoiled ? whole_refuse(HAL_FAILED_PRECONDITION,
                                "whole: no graph can hold this call; make it when the capture has ended")
                 : HAL_OK;
}

hal_status_t whole_stream_synchronize(stream_t *stream) {
  const hal_status_t status = whole_forbid(stream);
  return status ? status : whole_good.stream_synchronize(stream);
}
hal_status_t whole_stream_query(stream_t *stream) {
  const hal_status_t status = whole_forbid(stream);
  return status ? status : whole_good.stream_query(stream);
}
hal_status_t whole_device_synchronize(int32_t device) {
  const hal_status_t status = whole_forbid(NULL);
  return status ? status : whole_good.device_synchronize(device);
}

/* ---- captures ---- */
hal_status_t whole_capture_begin(stream_t *stream, uint32_t mode, uint64_t pool) {
  capture_t *const capture = calloc(1, sizeof *capture);
  hal_plugin_graph_t *const graph = calloc(1, sizeof *graph);
  (void)pool;
  pthread_mutex_lock(&lock);
  const int good = stream && capture && graph && !find(stream) && mode <= HAL_CAPTURE_RELAXED;
  if (good) {
    *graph = (hal_plugin_graph_t){.refs = 1};
    *capture = (capture_t){.next = captures,
                           .id = ++last_id,
                           .mode = mode,
                           .status = HAL_CAPTURE_ACTIVE,
                           .thread = pthread_self(),
                           .streams = {stream},
                           .stream_count = 1,
                           .graph = graph};
    captures = capture;
    atomic_fetch_add(&active, 1);
  }
  pthread_mutex_unlock(&lock);
  if (good) return HAL_OK;
  free(capture), free(graph);
  return whole_refuse(HAL_INVALID_ARGUMENT,
                      "whole: capture_begin of the NULL stream, of one that is captured, or in an unknown mode");
}

hal_status_t whole_capture_end(stream_t *stream, hal_plugin_graph_t **out_graph) {
  pthread_mutex_lock(&lock);
  capture_t **at = &captures;
  while (*at && (*at)->streams[0] != stream) at = &(*at)->next;
  capture_t *const capture = *at;
  if (capture) *at = capture->next, atomic_fetch_sub(&active, 1);
  pthread_mutex_unlock(&lock);
  if (!capture)
    return whole_refuse(HAL_FAILED_PRECONDITION, "whole: capture_end of a stream whose capture was not begun");
  hal_plugin_graph_t *const graph = capture->graph;
  const int good = capture->status == HAL_CAPTURE_ACTIVE;
  free(capture);
  if (good) return *out_graph = graph, HAL_OK;
  unref(graph);
  return whole_refuse(HAL_ABORTED, "whole: the capture was spoiled by a call that no graph can hold; leave it out");
}

hal_status_t whole_capture_status(stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  pthread_mutex_lock(&lock);
  const capture_t *const capture = stream ? find(stream) : NULL;
  *out_status = capture ? capture->status : HAL_CAPTURE_NONE;
  *out_id = capture ? capture->id : 0;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

hal_status_t whole_graph_destroy(hal_plugin_graph_t *graph) {
  if (graph) unref(graph);
  return HAL_OK;
}

/* ---- instances ---- */
static void keep(hal_plugin_graph_t *graph) {
  pthread_mutex_lock(&lock);
  graph->refs++;
  pthread_mutex_unlock(&lock);
}

hal_status_t whole_graph_instantiate(hal_plugin_graph_t *graph, hal_plugin_graph_exec_t **out_exec) {
  hal_plugin_graph_exec_t *const exec = malloc(sizeof *exec);
  if (!exec) return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for an instance of a graph");
  keep(graph);
  exec->graph = graph;
  *out_exec = exec;
  return HAL_OK;
}

hal_status_t whole_graph_exec_destroy(hal_plugin_graph_exec_t *exec) {
  if (exec) unref(exec->graph);
  free(exec);
  return HAL_OK;
}

hal_status_t whole_graph_update(hal_plugin_graph_exec_t *exec, hal_plugin_graph_t *graph) {
  const hal_plugin_graph_t *const old = exec->graph;
  int same = old->count == graph->count;
  for (int i = 0; same && i < graph->count; i++)
    same = old->nodes[i].kind == graph->nodes[i].kind && old->nodes[i].kernel == graph->nodes[i].kernel;
  if (!same)
    return whole_refuse(HAL_FAILED_PRECONDITION,
                        "whole: the graph has other work than the instance; instantiate it anew");
  keep(graph);
  unref(exec->graph);
  exec->graph = graph;
  return HAL_OK;
}

hal_status_t whole_graph_launch(hal_plugin_graph_exec_t *exec, stream_t *stream) {
  hal_status_t status = HAL_OK;
  for (int i = 0; !status && i < exec->graph->count; i++) {
    const node_t *const node = &exec->graph->nodes[i];
    if (node->kind == COPY)
      status = whole_good.memory_copy(stream, node->dst, node->to, node->src, node->from, node->size);
    else if (node->kind == FILL)
      status = whole_good.memory_fill(stream, node->to, node->dst, node->pattern, node->pattern_size, node->size);
    else if (node->kind == LAUNCH)
      status = whole_good.kernel_launch(node->kernel, stream, &node->launch);
    else
      status = whole_good.stream_host_call(stream, node->fn, node->data);
  }
  return status;
}
