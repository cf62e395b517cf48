/* capture.h: streams whose work is recorded, of capture.c. */
#ifndef CAPTURE_H_
#define CAPTURE_H_

#include "module.h"

/* Whether a stream is captured: what it is given goes to ocl_capture_*. */
static inline int ocl_is_captured(const hal_plugin_stream_t *stream) {
  return OCL_UNLIKELY(stream && atomic_load_explicit(&stream->captured.by, memory_order_relaxed));
}

/* Record a launch that has been checked, a copy between addresses of the stream's device, a fill. */
hal_status_t ocl_capture_launch(hal_plugin_stream_t *stream, hal_plugin_kernel_t *kernel, const hal_launch_t *launch);
hal_status_t ocl_capture_copy(hal_plugin_stream_t *stream, void *to, const void *from, size_t size);
hal_status_t ocl_capture_fill(hal_plugin_stream_t *stream, void *to, const void *pattern, size_t pattern_size,
                              size_t size);

/* Refuses what no graph of this plugin holds, and spoils the capture: HAL_UNIMPLEMENTED. */
hal_status_t ocl_capture_refuse(hal_plugin_stream_t *stream, const char *op);

/* Refuses what must not be called while streams are captured, and spoils the captures that forbid it to this thread; that of `stream`,
 * which may be NULL, in any mode. HAL_OK where there is none, else HAL_FAILED_PRECONDITION. */
hal_status_t ocl_capture_forbid(hal_plugin_stream_t *stream, const char *op);

/* Where in a capture an event was recorded. */
typedef struct ocl_mark_s {
  uint64_t capture; /* its number; 0 = not in a capture */
  uint64_t at;
  const hal_plugin_stream_t *stream;
} ocl_mark_t;

/* The place that a captured stream has reached. */
ocl_mark_t ocl_capture_mark(hal_plugin_stream_t *stream);

/* Waits for such an event, or lets a captured stream wait for one that was recorded outside, which is done or not: a stream that waits for an event
 * of a capture is captured with it. */
hal_status_t ocl_capture_wait(hal_plugin_stream_t *stream, const ocl_mark_t *mark, int is_done);

/* Whether the capture of a mark still goes on. */
int ocl_capture_is_on(const ocl_mark_t *mark);

/* Takes a stream that is being destroyed out of its capture, which is spoiled. */
void ocl_capture_leave(hal_plugin_stream_t *stream);

#endif /* CAPTURE_H_ */
