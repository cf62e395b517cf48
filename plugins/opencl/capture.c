/* capture.c: streams whose work is recorded instead of run. All streams of a capture append to one recording; the order
 * in which work is submitted is a valid order to run it. */
#include "capture.h"

#include <string.h>

#include "graph.h"

struct ocl_capture_s {
  ocl_capture_t *next;
  uint64_t id, clock;
  uint32_t mode, status; /* HAL_CAPTURE_* */
  pthread_t thread;      /* the thread that began it */
  hal_plugin_stream_t *origin, *members;
  hal_plugin_graph_t *graph;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all members below, and the streams' `captured` */
static ocl_capture_t *captures;
static uint64_t last_id;
static atomic_int count; /* a list of captures */

/* ---- under the lock --------------------------------------------------------------------------------------------- */

static ocl_capture_t *capture_of(const hal_plugin_stream_t *stream) {
  return stream ? atomic_load_explicit(&stream->captured.by, memory_order_relaxed) : NULL;
}

static ocl_capture_t *find(uint64_t id) {
  ocl_capture_t *at = captures;
  while (at && at->id != id) at = at->next;
  return id ? at : NULL;
}

/* Records that a stream has new work that no other stream has waited for. */
static void note_use(hal_plugin_stream_t *stream, ocl_capture_t *capture) {
  stream->captured.at = ++capture->clock;
  stream->captured.awaited = stream == capture->origin;
}

static void join(hal_plugin_stream_t *stream, ocl_capture_t *capture) {
  stream->captured.next = capture->members;
  capture->members = stream;
  atomic_store_explicit(&stream->captured.by, capture, memory_order_relaxed);
}

/* Removes its streams, which then run their work again. */
static void take_out(ocl_capture_t *capture) {
  for (hal_plugin_stream_t *at = capture->members; at; at = at->captured.next)
    atomic_store_explicit(&at->captured.by, NULL, memory_order_relaxed);
  ocl_capture_t **link = &captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  atomic_fetch_sub(&count, 1);
}

static void invalidate(ocl_capture_t *capture) {
  if (capture) capture->status = HAL_CAPTURE_INVALID;
}

/* ---- recording -------------------------------------------------------------------------------------------------- */

hal_status_t ocl_capture_launch(hal_plugin_stream_t *stream, hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  ocl_capture_t *const capture = capture_of(stream);
  if (!capture) {
    status = ocl_error(HAL_FAILED_PRECONDITION, 0, "opencl: a capture ended while '%s' was launched", kernel->name);
  } else {
    note_use(stream, capture);
    status = ocl_graph_add(capture->graph, kernel, launch);
    if (status) invalidate(capture);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

hal_status_t ocl_capture_copy(hal_plugin_stream_t *stream, void *to, const void *from, size_t size) {
  ocl_own_launch_t own;
  const hal_status_t status = ocl_own_copy(stream->device, to, from, size, &own);
  return status ? status : ocl_capture_launch(stream, own.kernel, &own.launch);
}

hal_status_t ocl_capture_fill(hal_plugin_stream_t *stream, void *to, const void *pattern, size_t pattern_size,
                              size_t size) {
  ocl_own_launch_t own;
  const hal_status_t status = ocl_own_fill(stream->device, to, pattern, pattern_size, size, &own);
  return status ? status : ocl_capture_launch(stream, own.kernel, &own.launch);
}

hal_status_t ocl_capture_refuse(hal_plugin_stream_t *stream, const char *op) {
  pthread_mutex_lock(&lock);
  invalidate(capture_of(stream));
  pthread_mutex_unlock(&lock);
  return ocl_error(HAL_UNIMPLEMENTED, 0,
                   "opencl: %s on a stream that is captured; a graph of OpenCL holds kernels, copies on its device and "
                   "fills. The capture is invalidated",
                   op);
}

hal_status_t ocl_capture_forbid(hal_plugin_stream_t *stream, const char *op) {
  int invalidated = 0;
  if (OCL_LIKELY(!atomic_load_explicit(&count, memory_order_relaxed))) return HAL_OK;
  pthread_mutex_lock(&lock);
  const ocl_capture_t *const own = capture_of(stream);
  for (ocl_capture_t *at = captures; at; at = at->next) {
    const int of_thread = at->mode == HAL_CAPTURE_THREAD && pthread_equal(at->thread, pthread_self());
    if (at != own && at->mode != HAL_CAPTURE_GLOBAL && !of_thread) continue;
    invalidate(at);
    invalidated = 1;
  }
  pthread_mutex_unlock(&lock);
  if (!invalidated) return HAL_OK;
  return ocl_error(HAL_FAILED_PRECONDITION, 0,
                   "opencl: %s while a stream is captured, whose mode forbids it; call it when the capture has ended. "
                   "The capture is invalidated",
                   op);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

ocl_mark_t ocl_capture_mark(hal_plugin_stream_t *stream) {
  ocl_mark_t mark = {.stream = stream};
  pthread_mutex_lock(&lock);
  const ocl_capture_t *const capture = capture_of(stream);
  if (capture) {
    mark.capture = capture->id;
    mark.at = stream->captured.at;
  }
  pthread_mutex_unlock(&lock);
  return mark;
}

int ocl_capture_is_on(const ocl_mark_t *mark) {
  if (OCL_LIKELY(!mark->capture)) return 0;
  pthread_mutex_lock(&lock);
  const int is_on = find(mark->capture) != NULL;
  pthread_mutex_unlock(&lock);
  return is_on;
}

/* A stream of the capture waits for another: that stream's work up to the mark has been waited for. */
static void note_wait(hal_plugin_stream_t *stream, ocl_capture_t *capture, const ocl_mark_t *mark) {
  for (hal_plugin_stream_t *at = capture->members; at; at = at->captured.next)
    if (at == mark->stream && at->captured.at <= mark->at) at->captured.awaited = 1;
  if (stream != mark->stream) note_use(stream, capture);
}

hal_status_t ocl_capture_wait(hal_plugin_stream_t *stream, const ocl_mark_t *mark, int is_done) {
  const char *what = NULL;
  pthread_mutex_lock(&lock);
  ocl_capture_t *const own = capture_of(stream), *const other = find(mark->capture);
  if (other && !own && stream->device == other->origin->device) join(stream, other);
  if (own && !other && !is_done)
    what = "that was recorded outside of the capture";
  else if (other && own && other != own)
    what = "of another capture";
  else if (other && stream->device != other->origin->device)
    what = "of a capture on another device";
  else if (other)
    note_wait(stream, other, mark);
  if (what) invalidate(own), invalidate(other);
  pthread_mutex_unlock(&lock);
  if (!what) return HAL_OK;
  return ocl_error(
      HAL_FAILED_PRECONDITION, 0,
      "opencl: stream_wait_event for an event %s, which cannot be part of a graph. The capture is invalidated", what);
}

void ocl_capture_leave(hal_plugin_stream_t *stream) {
  if (!ocl_is_captured(stream)) return;
  pthread_mutex_lock(&lock);
  ocl_capture_t *const capture = capture_of(stream), *ended = NULL;
  if (capture) {
    invalidate(capture);
    hal_plugin_stream_t **link = &capture->members;
    while (*link != stream) link = &(*link)->captured.next;
    if (stream == capture->origin)
      take_out(ended = capture);
    else
      *link = stream->captured.next;
    atomic_store_explicit(&stream->captured.by, NULL, memory_order_relaxed);
  }
  pthread_mutex_unlock(&lock);
  if (ended) ocl_graph_release(ended->graph);
  hal_host->mem_free(ended);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static hal_status_t no_stream(const char *op) {
  return ocl_error(HAL_INVALID_ARGUMENT, 0,
                   "opencl: %s of the NULL stream, whose work runs immediately; create a stream", op);
}

/* The host handles `pool`, because memory comes from its allocator. */
hal_status_t hal_plugin_capture_begin(hal_plugin_stream_t *stream, uint32_t mode, uint64_t pool) {
  (void)pool;
  if (!stream) return no_stream("capture_begin");
  if (mode > HAL_CAPTURE_RELAXED)
    return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: capture_begin with invalid mode %u; expected 0 to 2",
                     (unsigned)mode);
  const hal_status_t status = ocl_check_device(stream->device);
  if (status) return status;
  if (ocl_is_captured(stream))
    return ocl_error(HAL_FAILED_PRECONDITION, 0, "opencl: capture_begin of a stream that is captured; end that first");
  ocl_capture_t *const capture = hal_host->mem_alloc(sizeof *capture, alignof(ocl_capture_t));
  hal_plugin_graph_t *const graph = ocl_graph_create(stream->device);
  if (!capture || !graph) {
    hal_host->mem_free(capture);
    if (graph) ocl_graph_release(graph);
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no host memory for a capture; free some memory");
  }
  *capture = (ocl_capture_t){
      .mode = mode, .status = HAL_CAPTURE_ACTIVE, .thread = pthread_self(), .origin = stream, .graph = graph};
  pthread_mutex_lock(&lock);
  capture->id = ++last_id;
  capture->next = captures;
  captures = capture;
  atomic_fetch_add(&count, 1);
  join(stream, capture);
  note_use(stream, capture);
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

/* Removes the capture that began on the stream from the list; NULL: there is none. */
static ocl_capture_t *take(const hal_plugin_stream_t *stream, int *out_unawaited) {
  *out_unawaited = 0;
  pthread_mutex_lock(&lock);
  ocl_capture_t *capture = capture_of(stream);
  if (capture && capture->origin != stream) capture = NULL;
  for (const hal_plugin_stream_t *at = capture ? capture->members : NULL; at; at = at->captured.next)
    *out_unawaited |= !at->captured.awaited;
  if (capture) take_out(capture);
  pthread_mutex_unlock(&lock);
  return capture;
}

hal_status_t hal_plugin_capture_end(hal_plugin_stream_t *stream, hal_plugin_graph_t **out_graph) {
  int unawaited;
  if (!stream) return no_stream("capture_end");
  const hal_status_t status = ocl_check_device(stream->device);
  if (status) return status;
  ocl_capture_t *const capture = take(stream, &unawaited);
  if (!capture)
    return ocl_error(HAL_FAILED_PRECONDITION, 0, "opencl: capture_end of a stream on which no capture began");
  hal_plugin_graph_t *const graph = capture->graph;
  const int invalid = capture->status == HAL_CAPTURE_INVALID;
  hal_host->mem_free(capture);
  if (!invalid && !unawaited) {
    *out_graph = graph;
    return HAL_OK;
  }
  ocl_graph_release(graph);
  return ocl_error(HAL_ABORTED, 0, "opencl: a capture became invalid: %s",
                   invalid ? "an operation that cannot be part of a graph was called during the capture"
                           : "a stream that joined it was not waited for");
}

hal_status_t hal_plugin_capture_status(hal_plugin_stream_t *stream, uint32_t *out_status, uint64_t *out_id) {
  const hal_status_t status = stream ? ocl_check_device(stream->device) : HAL_OK;
  if (status) return status;
  pthread_mutex_lock(&lock);
  const ocl_capture_t *const capture = capture_of(stream);
  *out_status = capture ? capture->status : HAL_CAPTURE_NONE;
  *out_id = capture ? capture->id : 0;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}
