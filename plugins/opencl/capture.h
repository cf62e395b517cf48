/* capture.h: streams whose work is recorded; implemented in capture.c. */
#ifndef CAPTURE_H_
#define CAPTURE_H_

#include "module.h"

/* Returns whether a stream is captured; its work then goes to ocl_capture_*. */
static inline int ocl_is_captured(const hal_plugin_stream_t *stream) {
  return OCL_UNLIKELY(stream && atomic_load_explicit(&stream->captured.by, memory_order_relaxed));
}

/* Record a launch that has been checked, a copy between addresses of the stream's device, or a fill. */
hal_status_t ocl_capture_launch(hal_plugin_stream_t *stream, hal_plugin_kernel_t *kernel, const hal_launch_t *launch);
hal_status_t ocl_capture_copy(hal_plugin_stream_t *stream, void *to, const void *from, size_t size);
hal_status_t ocl_capture_fill(hal_plugin_stream_t *stream, void *to, const void *pattern, size_t pattern_size,
                              size_t size);

/* Refuses an operation that cannot be part of a graph, and invalidates the capture: HAL_UNIMPLEMENTED. */
hal_status_t ocl_capture_refuse(hal_plugin_stream_t *stream, const char *op);

/* Refuses an operation that must not be called while streams are captured, and invalidates the captures that forbid it
 * to this thread; that of `stream`, which may be NULL, in any mode. Returns HAL_OK if there is none, else
 * HAL_FAILED_PRECONDITION. */
hal_status_t ocl_capture_forbid(hal_plugin_stream_t *stream, const char *op);

/* The position in a capture at which an event was recorded. */
typedef struct ocl_mark_s {
  uint64_t capture; /* its number; 0 = not in a capture */
  uint64_t at;
  const hal_plugin_stream_t *stream;
} ocl_mark_t;

/* Returns the position that a captured stream has reached. */
ocl_mark_t ocl_capture_mark(hal_plugin_stream_t *stream);

/* Waits for such an event, or makes a captured stream wait for one that was recorded outside, which is done or not. A
 * stream that waits for an event of a capture is captured with it. */
hal_status_t ocl_capture_wait(hal_plugin_stream_t *stream, const ocl_mark_t *mark, int is_done);

/* Returns whether the capture of a mark is still active. */
int ocl_capture_is_on(const ocl_mark_t *mark);

/* Removes a stream that is being destroyed from its capture, which is invalidated. */
void ocl_capture_leave(hal_plugin_stream_t *stream);

#endif /* CAPTURE_H_ */
