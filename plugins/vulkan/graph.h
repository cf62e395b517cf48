/* graph.h: captures and graphs; implemented in capture.c and graph.c. */
#ifndef GRAPH_H_
#define GRAPH_H_

#include "vulkan_plugin.h"

/* ---- recordings (graph.c) --------------------------------------------------------------------------------------- */

/* Recorded work, in the order in which it was queued, on any stream of the capture. It does not change after it has
 * become a graph. */
struct hal_plugin_graph_s {
  vulkan_device_t *device;
  struct vulkan_node_s *first, **end;
  uint64_t count;
  uint32_t sets, buffers; /* descriptors that its kernels need */
};

hal_plugin_graph_t *vulkan_graph_create(vulkan_device_t *device); /* NULL: no host memory */
void vulkan_graph_free(hal_plugin_graph_t *graph);

/* Appends work. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t vulkan_graph_add(hal_plugin_graph_t *graph, const vulkan_label_t *label, vulkan_run_fn_t run,
                              const void *arguments, size_t size);

/* ---- captures (capture.c) --------------------------------------------------------------------------------------- */

/* Returns whether a stream is captured. */
static inline int vulkan_is_captured(const hal_plugin_stream_t *stream) {
  return VULKAN_UNLIKELY(stream && atomic_load_explicit(&stream->captured.by, memory_order_relaxed));
}

/* Records work of a captured stream. Work that no graph can contain invalidates the capture: HAL_UNIMPLEMENTED. */
hal_status_t vulkan_capture_add(hal_plugin_stream_t *stream, const vulkan_label_t *label, vulkan_run_fn_t run,
                                const void *arguments, size_t size);

/* Refuses a call that captures forbid by their modes, and invalidates these captures; that of `stream`, which may be
 * NULL, in any mode. Returns HAL_OK if there is none, else HAL_FAILED_PRECONDITION. */
hal_status_t vulkan_capture_forbid(hal_plugin_stream_t *stream, const char *op);

/* The place in a capture at which an event was recorded. */
typedef struct vulkan_mark_s {
  uint64_t capture; /* its number; 0 = not in a capture */
  uint64_t count;   /* nodes that the capture had */
  const hal_plugin_stream_t *stream;
} vulkan_mark_t;

/* Returns the place that a captured stream has reached. */
vulkan_mark_t vulkan_capture_mark(hal_plugin_stream_t *stream);

/* Returns whether the capture of a mark is still active. */
int vulkan_capture_is_on(const vulkan_mark_t *mark);

/* A stream waits for such an event, and is captured then; or a captured stream waits for an event that was recorded
 * outside, whose work is done or not. */
hal_status_t vulkan_capture_wait(hal_plugin_stream_t *stream, const vulkan_mark_t *mark, int is_done);

/* Removes a stream that is being destroyed from its capture, which becomes invalid. */
void vulkan_capture_leave(hal_plugin_stream_t *stream);

#endif /* GRAPH_H_ */
