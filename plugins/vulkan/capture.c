/* capture.c: streams whose work is recorded instead of run. All streams of a capture append to one recording: the order
 * of the calls is a valid order to run the work. */
#include <pthread.h>

#include "graph.h"

struct vulkan_capture_s {
  vulkan_capture_t *next;
  uint64_t id;
  uint32_t mode; /* HAL_CAPTURE_* */
  int is_invalid;
  pthread_t thread; /* the thread that began it */
  hal_plugin_stream_t *origin, *members;
  hal_plugin_graph_t *graph;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all members above, and the streams' `captured` */
static vulkan_capture_t *captures;
static uint64_t last_id;
static atomic_int active; /* number of captures */

/* ---- under the lock --------------------------------------------------------------------------------------------- */

static vulkan_capture_t *capture_of(const hal_plugin_stream_t *stream) {
  return stream ? atomic_load_explicit(&stream->captured.by, memory_order_relaxed) : NULL;
}

static vulkan_capture_t *find(uint64_t id) {
  vulkan_capture_t *at = captures;
  while (at && at->id != id) at = at->next;
  return id ? at : NULL;
}

static void invalidate(vulkan_capture_t *capture) {
  if (capture) capture->is_invalid = 1;
}

/* The stream has recorded work, or has joined the capture. */
static void note_work(hal_plugin_stream_t *stream, const vulkan_capture_t *capture) {
  stream->captured.count = capture->graph->count;
  stream->captured.is_joined = stream == capture->origin;
}

static void join(hal_plugin_stream_t *stream, vulkan_capture_t *capture) {
  stream->captured.next = capture->members;
  capture->members = stream;
  note_work(stream, capture);
  atomic_store_explicit(&stream->captured.by, capture, memory_order_relaxed);
}

/* Removes a capture from the list; its streams run their work again. */
static void take_out(vulkan_capture_t *capture) {
  for (hal_plugin_stream_t *at = capture->members; at; at = at->captured.next)
    atomic_store_explicit(&at->captured.by, NULL, memory_order_relaxed);
  vulkan_capture_t **link = &captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  atomic_fetch_sub(&active, 1);
}

/* ---- recording -------------------------------------------------------------------------------------------------- */

hal_status_t vulkan_capture_add(hal_plugin_stream_t *stream, const vulkan_label_t *label, vulkan_run_fn_t run,
                                const void *arguments, size_t size) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  vulkan_capture_t *const capture = capture_of(stream);
  if (!capture) {
    status = vulkan_error(
        HAL_FAILED_PRECONDITION, 0,
        "vulkan: a thread ended the capture of a stream during %s of another thread; synchronize them", label->op);
  } else if (!label->is_recordable) {
    status = vulkan_error(HAL_UNIMPLEMENTED, 0,
                          "vulkan: %s on a stream that is captured; a graph holds kernels, fills and copies on its "
                          "device. The capture is invalidated",
                          label->op);
  } else {
    status = vulkan_graph_add(capture->graph, label, run, arguments, size);
    note_work(stream, capture);
  }
  if (status) invalidate(capture);
  pthread_mutex_unlock(&lock);
  return status;
}

hal_status_t vulkan_capture_forbid(hal_plugin_stream_t *stream, const char *op) {
  int is_forbidden = 0;
  if (VULKAN_LIKELY(!atomic_load_explicit(&active, memory_order_relaxed))) return HAL_OK;
  pthread_mutex_lock(&lock);
  const vulkan_capture_t *const own = capture_of(stream);
  for (vulkan_capture_t *at = captures; at; at = at->next) {
    const int of_thread = at->mode == HAL_CAPTURE_THREAD && pthread_equal(at->thread, pthread_self());
    if (at != own && at->mode != HAL_CAPTURE_GLOBAL && !of_thread) continue;
    invalidate(at);
    is_forbidden = 1;
  }
  pthread_mutex_unlock(&lock);
  if (!is_forbidden) return HAL_OK;
  return vulkan_error(HAL_FAILED_PRECONDITION, 0,
                      "vulkan: %s while a stream is captured in a mode that forbids it; call it after the capture. The "
                      "capture is invalidated",
                      op);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

vulkan_mark_t vulkan_capture_mark(hal_plugin_stream_t *stream) {
  vulkan_mark_t mark = {.stream = stream};
  pthread_mutex_lock(&lock);
  const vulkan_capture_t *const capture = capture_of(stream);
  if (capture) {
    mark.capture = capture->id;
    mark.count = capture->graph->count;
  }
  pthread_mutex_unlock(&lock);
  return mark;
}

int vulkan_capture_is_on(const vulkan_mark_t *mark) {
  if (VULKAN_LIKELY(!mark->capture)) return 0;
  pthread_mutex_lock(&lock);
  const int is_on = find(mark->capture) != NULL;
  pthread_mutex_unlock(&lock);
  return is_on;
}

/* The recorded work of the event's stream, which has recorded no other work since, has been waited for. */
static void note_wait(hal_plugin_stream_t *stream, const vulkan_capture_t *capture, const vulkan_mark_t *mark) {
  for (hal_plugin_stream_t *at = capture->members; at; at = at->captured.next)
    if (at == mark->stream && at->captured.count <= mark->count) at->captured.is_joined = 1;
  if (stream != mark->stream) note_work(stream, capture);
}

hal_status_t vulkan_capture_wait(hal_plugin_stream_t *stream, const vulkan_mark_t *mark, int is_done) {
  const char *what = NULL;
  pthread_mutex_lock(&lock);
  vulkan_capture_t *const own = capture_of(stream), *const other = find(mark->capture);
  if (other && stream->device != other->graph->device)
    what = "of a capture on another device";
  else if (own && !other && !is_done)
    what = "that was recorded outside of the capture";
  else if (other && own && other != own)
    what = "of another capture";
  if (!what && other && !own) join(stream, other);
  if (!what && other) note_wait(stream, other, mark);
  if (what) invalidate(own), invalidate(other);
  pthread_mutex_unlock(&lock);
  if (!what) return HAL_OK;
  return vulkan_error(
      HAL_FAILED_PRECONDITION, 0,
      "vulkan: stream_wait_event for an event %s, which cannot be part of a graph. The capture is invalidated", what);
}

void vulkan_capture_leave(hal_plugin_stream_t *stream) {
  vulkan_capture_t *ended = NULL;
  if (!vulkan_is_captured(stream)) return;
  pthread_mutex_lock(&lock);
  vulkan_capture_t *const capture = capture_of(stream);
  if (capture && stream == capture->origin) {
    take_out(ended = capture);
  } else if (capture) {
    hal_plugin_stream_t **link = &capture->members;
    while (*link != stream) link = &(*link)->captured.next;
    *link = stream->captured.next;
    atomic_store_explicit(&stream->captured.by, NULL, memory_order_relaxed);
    invalidate(capture);
  }
  pthread_mutex_unlock(&lock);
  if (ended) vulkan_graph_free(ended->graph);
  hal_host->mem_free(ended);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static hal_status_t check_stream(const hal_plugin_stream_t *stream, const char *op) {
  if (stream) return vulkan_check_alive(stream->device->ordinal);
  return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                      "vulkan: %s of the NULL stream, whose work runs immediately; create a stream", op);
}

/* Adds the capture to the list, unless its stream is captured. */
static int add_capture(vulkan_capture_t *capture) {
  pthread_mutex_lock(&lock);
  const int is_free = !capture_of(capture->origin);
  if (is_free) {
    capture->id = ++last_id;
    capture->next = captures;
    captures = capture;
    atomic_fetch_add(&active, 1);
    join(capture->origin, capture);
  }
  pthread_mutex_unlock(&lock);
  return is_free;
}

/* The host handles `pool`, because memory comes from its allocator. */
hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  (void)pool;
  hal_status_t status = check_stream(stream, "capture_begin");
  if (!status && mode > HAL_CAPTURE_RELAXED)
    status = vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: capture_begin with invalid mode %u; expected 0 to 2",
                          (unsigned)mode);
  if (status) return status;
  vulkan_capture_t *const capture = hal_host->mem_alloc(sizeof *capture, alignof(vulkan_capture_t));
  hal_plugin_graph_t *const graph = vulkan_graph_create(stream->device);
  if (!capture || !graph) {
    status = vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a capture; free some memory");
  } else {
    *capture = (vulkan_capture_t){.mode = mode, .thread = pthread_self(), .origin = stream, .graph = graph};
    if (add_capture(capture)) return HAL_OK;
    status = vulkan_error(HAL_FAILED_PRECONDITION, 0,
                          "vulkan: capture_begin of a stream that is captured; end that capture first");
  }
  if (graph) vulkan_graph_free(graph);
  hal_host->mem_free(capture);
  return status;
}

/* Removes the capture that began on the stream from the list; NULL: there is none. */
static vulkan_capture_t *take(const hal_plugin_stream_t *stream, int *out_is_joined) {
  pthread_mutex_lock(&lock);
  vulkan_capture_t *capture = capture_of(stream);
  if (capture && capture->origin != stream) capture = NULL;
  *out_is_joined = 1;
  for (const hal_plugin_stream_t *at = capture ? capture->members : NULL; at; at = at->captured.next)
    *out_is_joined &= at->captured.is_joined;
  if (capture) take_out(capture);
  pthread_mutex_unlock(&lock);
  return capture;
}

hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  int is_joined;
  const hal_status_t status = check_stream(stream, "capture_end");
  if (status) return status;
  vulkan_capture_t *const capture = take(stream, &is_joined);
  if (!capture)
    return vulkan_error(HAL_FAILED_PRECONDITION, 0, "vulkan: capture_end of a stream on which no capture began");
  hal_plugin_graph_t *const graph = capture->graph;
  const int is_invalid = capture->is_invalid;
  hal_host->mem_free(capture);
  if (!is_invalid && is_joined) {
    *out_graph = graph;
    return HAL_OK;
  }
  vulkan_graph_free(graph);
  return vulkan_error(HAL_ABORTED, 0, "vulkan: a capture became invalid: %s",
                      is_invalid ? "an operation that cannot be part of a graph was called during the capture"
                                 : "a stream that joined it was not waited for");
}

hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  const hal_status_t status = stream ? vulkan_check_device(stream->device->ordinal) : HAL_OK;
  if (status) return status;
  pthread_mutex_lock(&lock);
  const vulkan_capture_t *const capture = capture_of(stream);
  *out_status = !capture ? HAL_CAPTURE_NONE : capture->is_invalid ? HAL_CAPTURE_INVALID : HAL_CAPTURE_ACTIVE;
  *out_id = capture ? capture->id : 0;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}
