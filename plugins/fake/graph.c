/* graph.c: capture and graphs. While a stream is captured, work that is queued on it becomes a node of a recording
 * instead of an item of its queue. Nodes are in the order of the calls, for all streams of the capture. That order
 * preserves the order of each stream, and a wait for an event comes after the work that the event marks. A launch of an
 * instance is one item, which runs the recording's nodes one after another.
 *
 * A thread may acquire a stream's lock or an event's lock while it holds the lock of the captures, but not in the other
 * order. */
#include <pthread.h>
#include <string.h>

#include "graph.h"
#include "sanitize/sanitize.h"

struct fake_capture_s {
  fake_capture_t *next;
  uint64_t id;
  uint32_t mode;
  const char *invalid_by; /* the reason why it is invalid; static text */
  pthread_t thread;       /* the thread that began it */
  hal_plugin_stream_t *origin, *streams;
  fake_recording_t *recording;
};

static fake_lock_t lock; /* guards all captures, their streams and the nodes of their recordings */
static fake_capture_t *captures;
static uint64_t last_id;

/* ---- recordings ------------------------------------------------------------------------------------------------- */

void fake_recording_unref(fake_recording_t *recording) {
  if (atomic_fetch_sub_explicit(&recording->refs, 1, memory_order_acq_rel) != 1) return;
  for (fake_node_t *node = recording->first; node;) {
    fake_node_t *const next = node->next;
    if (fake_node_item(node)->kind == FAKE_ITEM_GRAPH) fake_recording_unref(fake_node_item(node)->u.graph);
    if (fake_node_item(node)->flags & FAKE_ITEM_TRACED) fake_clock_drop(fake_item_trace(fake_node_item(node))->clock);
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
  fake_node_t *const node = hal_host->mem_alloc(sizeof *node + size, alignof(fake_node_t));
  if (!node) {
    fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory to record another item; free some memory");
    return NULL;
  }
  fake_lock(&lock);
  const fake_capture_t *const capture = capture_of(stream);
  if (capture && !capture->invalid_by) {
    node->next = NULL;
    fake_item_t *const item = fake_node_item(node);
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
  fake_node_t *const node = (fake_node_t *)(void *)item - 1;
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
