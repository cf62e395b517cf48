/* recorder.h: what takes the work of a stream that is being recorded, in the plugin's place. Private to hal/src.
 *
 * Whoever queues work on a stream asks `stream->recorder` first. A recorder copies what it is given: arguments and descriptors are
 * borrowed for the call. The functions may be called by any thread.
 *
 * There are two kinds: a program is recorded to be run later, again and again; lazy work (`lazy`) is only put off, and is queued as soon
 * as something needs its results. */
#ifndef HAL_SRC_RECORDER_H_
#define HAL_SRC_RECORDER_H_

#include "device/device.h"

typedef struct hal_recorder_s hal_recorder_t;

/* An operator that a thread runs on a recorded stream, for as long as it runs: `hal_thread.recorded_op` is the innermost. */
typedef struct hal_recorded_op_s {
  struct hal_recorded_op_s *outer; /* that runs this one as a part of its own; NULL = none */
  uint32_t op;
  /* The recorder's. A program: which operator recorded before. Lazy work puts the operator on a tape with its first command, and again
   * when that tape was queued meanwhile. */
  uint32_t index;            /* on the tape of `recording` */
  uint64_t recording;        /* 0: not yet on a tape */
  uint64_t origin;           /* where the caller is */
  const hal_op_call_t *call; /* when it is described, accepted by the compiler, or its spans are noted; else NULL */
  uint8_t described, accepted, spans;
} hal_recorded_op_t;

typedef struct hal_recorder_calls_s {
  /* An operator begins, of which `outer` and `op` are set: the work until it ends is its own. Operators may run others. `call` may be
   * NULL. 0 = it is a part of the one that runs it, and does not end. */
  int (*begin_op)(hal_recorder_t *recorder, hal_recorded_op_t *op, const hal_op_call_t *call);
  void (*end_op)(hal_recorder_t *recorder, hal_recorded_op_t *op);
  /* `op`: of the thread; NULL = none. */
  hal_status_t (*launch)(hal_recorder_t *recorder, hal_recorded_op_t *op, hal_plugin_kernel_t *kernel,
                         const hal_launch_t *launch);
  /* Devices are the plugin's ordinals, or HAL_HOST. HAL_UNIMPLEMENTED = what was recorded is queued, and the caller queues the copy
   * itself. */
  hal_status_t (*copy)(hal_recorder_t *recorder, void *dst, int32_t dst_device, const void *src, int32_t src_device,
                       size_t size);
  hal_status_t (*fill)(hal_recorder_t *recorder, void *dst, const void *pattern, size_t pattern_size, size_t size);
  hal_status_t (*random)(hal_recorder_t *recorder, const hal_random_t *desc);
  /* A plugin's own operator, which will not decline. `function` is called with `state` and the call. */
  hal_status_t (*own_op)(hal_recorder_t *recorder, const void *own, const char *name, const hal_op_call_t *call);
  hal_status_t (*host_call)(hal_recorder_t *recorder, hal_host_fn_t fn, void *user_data);
  /* Another stream of the device waits for the recorded work: it is recorded from now on. */
  hal_status_t (*join)(hal_recorder_t *recorder, hal_stream_t *stream);
  /* Kernels that were launched may report bad values. */
  void (*reported)(hal_recorder_t *recorder);
  /* Random numbers whose state lies in device memory, so that each run draws its own: hal_generator_draw. NULL: numbers are drawn when they
   * are recorded. */
  hal_status_t (*draw)(hal_recorder_t *recorder, hal_generator_t *generator, uint64_t blocks, hal_draw_t *out_draw);
  /* Writes where the caller of an operator with this origin was, "" where nobody knows. NULL: nobody does. */
  void (*describe)(hal_recorder_t *recorder, uint64_t origin, char *text, size_t room);
  /* Memory of the stream was given back to the allocator: later work may be given it. NULL: of no interest. */
  void (*freed)(hal_recorder_t *recorder, const void *address, size_t size);
  /* Something needs the recorded work done, or queued before it ("hal_stream_synchronize"). A program that is recorded is spoiled by
   * that, and the error given. Lazy work is queued: HAL_OK = the caller goes on with the stream as if it were not recorded. */
  hal_status_t (*settle)(hal_recorder_t *recorder, const char *what);
} hal_recorder_calls_t;

struct hal_recorder_s {
  const hal_recorder_calls_t *calls;
  uint64_t id;   /* no other recording of the process has it; never 0 */
  uint32_t lazy; /* 1 = its work is only put off */
};

/* Keeps a generator until hal_generator_destroy was called once more. */
void hal_generator_retain(hal_generator_t *generator);

/* Gives who records the stream, NULL = nobody. */
static inline hal_recorder_t *hal_stream_recorder(const hal_stream_t *stream) {
  return atomic_load_explicit(&stream->recorder, memory_order_acquire);
}

/* Gives who records the stream to run it later, NULL = nobody. */
static inline hal_recorder_t *hal_stream_program(const hal_stream_t *stream) {
  hal_recorder_t *const recorder = hal_stream_recorder(stream);
  return HAL_LIKELY(!recorder || recorder->lazy) ? NULL : recorder;
}

/* Before what waits for a stream's work, or goes past its recorder: lazy work is queued; a program cannot have it. */
static inline hal_status_t hal_stream_settle(const hal_stream_t *stream, const char *what) {
  hal_recorder_t *const recorder = hal_stream_recorder(stream);
  return HAL_LIKELY(!recorder) ? HAL_OK : recorder->calls->settle(recorder, what);
}

/* The same for lazy work alone. What meets a failure of it is told at the next synchronisation of the stream. */
void hal_stream_settle_lazy_slow(hal_stream_t *stream, hal_recorder_t *recorder, const char *what);
static inline void hal_stream_settle_lazy(hal_stream_t *stream, const char *what) {
  hal_recorder_t *const recorder = hal_stream_recorder(stream);
  if (HAL_UNLIKELY(recorder && recorder->lazy)) hal_stream_settle_lazy_slow(stream, recorder, what);
}

/* The same for all streams of a device. */
void hal_stream_settle_lazy_all(hal_device_t *device);

#endif /* HAL_SRC_RECORDER_H_ */
