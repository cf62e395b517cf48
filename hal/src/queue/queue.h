/* queue.h: the queue that receives the work of a stream. Private to hal/src.
 *
 * A stream has a pointer to its queue, which is never NULL. There are three implementations of the table of functions:
 * `direct` calls the plugin (direct.h); the others record the work, as a program that runs later, or as deferred work
 * that is launched when something needs it. A caller loads the pointer once per call and uses it, without knowing the
 * implementation.
 *
 * A queue copies its parameters: arguments and descriptors are borrowed for the call. Any thread may call.
 *
 * Lifetime: a thread that has loaded the pointer may use the queue after another queue has replaced it. So a queue that
 * was in use is never freed. It is parked at its stream, and used again for that stream's next recording of the same
 * kind. A late call fails, or becomes part of what the stream records then. */
#ifndef HAL_SRC_QUEUE_QUEUE_H_
#define HAL_SRC_QUEUE_QUEUE_H_

#include <stdatomic.h>

#include "plugin/call.h"
#include "plugin/plugin.h"

struct hal_stream_s;    /* device/ */
struct hal_generator_s; /* device/ */
struct hal_draw_s;      /* device/ */

typedef struct hal_queue_s hal_queue_t;

/* An operator while a thread runs it on a stream whose queue records; `hal_thread.recorded_op` is the innermost one. */
typedef struct hal_recorded_op_s {
  struct hal_recorded_op_s *outer; /* the operator that runs this one as a part of it; NULL = none */
  uint32_t op;
  /* Used by the queue. A program: the operator that recorded last. For deferred work, the operator is added to a
   * command list with its first command, and again if that list was launched meanwhile. */
  uint32_t index;     /* on the command list of `recording` */
  uint64_t recording; /* 0: in no recording yet */
  uint64_t origin;    /* where the caller is */
  /* set if the operator is described, accepted by the compiler, or its spans are recorded; else NULL */
  const hal_op_call_t *call;
  uint8_t described, accepted, spans;
  uint8_t passes; /* 1: it runs on the direct queue, with all its parts (hal_passing_op) */
} hal_recorded_op_t;

/* The thread's operator while it runs one that a queue does not record (`passes`). */
extern hal_recorded_op_t hal_passing_op;

/* Work that the host submits by a function, such as a collective. */
typedef struct hal_submission_s {
  const char *name; /* for texts and messages */
  /* Submits the work after that of `stream`, and makes later work of the stream wait for it. Statuses have messages. */
  hal_status_t (*submit)(void *user_data, struct hal_stream_s *stream);
  /* Returns a copy of borrowed data that a recording owns and destroys; NULL = the host has no memory. */
  void *(*copy)(const void *user_data);
  void (*destroy)(void *copy);
  void *user_data;
} hal_submission_t;

/* Errors have messages, unless stated otherwise. */
typedef struct hal_queue_calls_s {
  /* Returns whether the caller runs an operator on the stream's direct queue; otherwise it begins. `own`: it may be the
   * plugin's own. NULL: all operators begin. */
  int (*passes)(hal_queue_t *queue, uint32_t op, int own, const hal_op_call_t *call);
  /* Begins an operator, with `outer` and `op` set: the work until its end belongs to it. Operators may run others.
   * `call` may be NULL. Returns 0 if it is a part of the outer operator; then it does not end. */
  int (*begin_op)(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call);
  void (*end_op)(hal_queue_t *queue, hal_recorded_op_t *op);
  /* `op`: the thread's operator; NULL = none. */
  hal_status_t (*launch)(hal_queue_t *queue, hal_recorded_op_t *op, hal_plugin_kernel_t *kernel,
                         const hal_launch_t *launch);
  /* Devices are the plugin's ordinals, or HAL_HOST. HAL_UNIMPLEMENTED, without a message: the plugin does not copy
   * between them. */
  hal_status_t (*copy)(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                       size_t size);
  /* Copies a rectangle, or several ranges; a recording stores them as separate copies. Otherwise as `copy`. */
  hal_status_t (*copy_2d)(hal_queue_t *queue, const hal_copy_2d_t *desc);
  hal_status_t (*copy_batch)(hal_queue_t *queue, const hal_copy_t *copies, size_t count);
  hal_status_t (*fill)(hal_queue_t *queue, void *dst, const void *pattern, size_t pattern_size, size_t size);
  /* HAL_UNIMPLEMENTED, without a message: the plugin does not implement this distribution or dtype. */
  hal_status_t (*random)(hal_queue_t *queue, const hal_random_t *desc);
  /* A plugin's own operator. `verdict`: HAL_OK = its query has accepted the call; HAL_NOT_READY = it decides when it is
   * called. Returns HAL_OK: the queue has taken it; HAL_NOT_READY: the caller calls it now; HAL_UNIMPLEMENTED: the
   * caller uses another implementation. The last two have no message. */
  hal_status_t (*own_op)(hal_queue_t *queue, const void *own, const char *name, const hal_op_call_t *call,
                         hal_status_t verdict);
  hal_status_t (*host_call)(hal_queue_t *queue, hal_host_fn_t fn, void *user_data);
  /* As host_call, of a function that may run once only. HAL_NOT_READY, without a message: a recording would call it in
   * each of its runs. */
  hal_status_t (*host_call_once)(hal_queue_t *queue, hal_host_fn_t fn, void *user_data);
  /* HAL_OK: each run of the recording submits the work; HAL_NOT_READY, without a message: the caller submits it now. */
  hal_status_t (*submission)(hal_queue_t *queue, const hal_submission_t *submission);
  /* `*out_recording` != 0: the event is a position in that recording. The plugin's status, without a message. */
  hal_status_t (*record_event)(hal_queue_t *queue, hal_plugin_event_t *event, uint64_t *out_recording);
  hal_status_t (*wait_event)(hal_queue_t *queue, hal_plugin_event_t *event);
  /* Uses an event that is a position in a recording. `stream` waits for it and is recorded from now on; if `stream` is
   * NULL, the caller is about to do `what`. HAL_NOT_FOUND, without a message: the recording has ended. */
  hal_status_t (*recorded_event)(hal_queue_t *queue, uint64_t recording, struct hal_stream_s *stream, const char *what);
  /* Launches deferred work; a program continues to record. */
  hal_status_t (*flush)(hal_queue_t *queue, const char *reason);
  /* Called before the caller needs the results of all work ("hal_stream_synchronize"), or bypasses the queue. Deferred
   * work is launched; a recording of a program is invalidated, and the error returned. */
  hal_status_t (*require)(hal_queue_t *queue, const char *what);
  /* Waits for the launched work. The plugin's statuses, without a message. */
  hal_status_t (*synchronize)(hal_queue_t *queue);
  hal_status_t (*synchronize_timeout)(hal_queue_t *queue, int64_t timeout_ns);
  hal_status_t (*query)(hal_queue_t *queue);
  /* Called when kernels were launched that may report invalid values. Returns 0 if they are launched now and the caller
   * checks the reports. */
  int (*reports)(hal_queue_t *queue);
  /* Reserves random numbers whose state is in device memory, so that each run has its own. HAL_UNIMPLEMENTED, without a
   * message: they are generated when the call is made. */
  hal_status_t (*draw)(hal_queue_t *queue, struct hal_generator_s *generator, uint64_t blocks,
                       struct hal_draw_s *out_draw);
  /* Writes where the caller of an operator with this origin was, "" if unknown. */
  void (*describe)(hal_queue_t *queue, uint64_t origin, char *text, size_t room);
  /* Called when memory of the stream was released to the allocator, which may use it for later work. Returns whether
   * deferred work may still use the memory: then the allocator uses it only for a request of the same size, until
   * hal_memory_end_hold. */
  int (*released)(hal_queue_t *queue, const void *address, size_t size);
  int (*is_recording)(hal_queue_t *queue); /* for hal_stream_is_recorded */
} hal_queue_calls_t;

struct hal_queue_s {
  const hal_queue_calls_t *calls;
  hal_queue_t *next; /* next queue of the list in which it is parked */
};

/* Adds a queue that is no longer used to a slot of its stream (device/slot.h), for the next recording. Any thread,
 * without a lock. */
void hal_queue_park(_Atomic(void *) *slot, hal_queue_t *queue);

/* Takes a queue from a slot; NULL = there is none. */
hal_queue_t *hal_queue_unpark(_Atomic(void *) *slot);

/* For queues that record: performs copies of rows and of several ranges by the queue's `copy`. */
hal_status_t hal_queue_copy_rows(hal_queue_t *queue, const hal_copy_2d_t *desc);
hal_status_t hal_queue_copy_each(hal_queue_t *queue, const hal_copy_t *copies, size_t count);

/* ---- the direct implementation ----------------------------------------------------------------------------------- */

/* Calls the plugin. Each stream has one, until the process ends. */
typedef struct hal_direct_s {
  hal_queue_t queue;
  hal_plugin_t *plugin;
  int32_t ordinal;
  hal_plugin_stream_t *handle; /* NULL if the plugin has no streams, and after the device was closed */
  uint32_t most_blocks;        /* of a launch along its first axis; UINT32_MAX: no limit */
} hal_direct_t;

extern const hal_queue_calls_t hal_direct_calls;

static inline hal_direct_t hal_direct_of(hal_plugin_t *plugin, int32_t ordinal, hal_plugin_stream_t *handle,
                                         uint32_t max_grid) {
  return (hal_direct_t){{.calls = &hal_direct_calls}, plugin, ordinal, handle, max_grid ? max_grid : UINT32_MAX};
}

/* Queues a launch of more than `most_blocks` blocks in parts, which differ in grid[0] and HAL_LAUNCH_FIRST_BLOCK.
 * HAL_UNIMPLEMENTED means that nothing was queued. */
hal_status_t hal_direct_launch_parts(const hal_direct_t *direct, hal_plugin_kernel_t *kernel,
                                     const hal_launch_t *launch);

/* Calls the plugin's kernel_launch, for every launch of a stream. The plugin's status, without a message. */
static inline hal_status_t hal_direct_launch(const hal_direct_t *direct, hal_plugin_kernel_t *kernel,
                                             const hal_launch_t *launch) {
  if (HAL_UNLIKELY(launch->grid[0] > direct->most_blocks)) return hal_direct_launch_parts(direct, kernel, launch);
  return hal_call_kernel_launch(direct->plugin, kernel, direct->handle, launch);
}

/* As hal_direct_launch, of at most `most_blocks` blocks. */
static inline hal_status_t hal_direct_launch_small(const hal_direct_t *direct, hal_plugin_kernel_t *kernel,
                                                   const hal_launch_t *launch) {
  return hal_call_kernel_launch(direct->plugin, kernel, direct->handle, launch);
}

/* Queries the launched work without waiting; HAL_NOT_READY also if the plugin has no query. Without a message. */
hal_status_t hal_direct_poll(hal_direct_t *direct);

#endif /* HAL_SRC_QUEUE_QUEUE_H_ */
