/* lazy.h: deferred work: it is recorded, optimized, and then queued together.
 *
 * While a stream is lazy, operators, copies, fills and kernel launches are checked, get their memory and are recorded. They are
 * queued when something needs them: a synchronization, a copy to the host, an event, a wait, a host function, hal_lazy_flush; or in
 * pieces, when enough was recorded to keep the device busy. Results, addresses and random numbers are those of the same work queued at once,
 * bit for bit; only float32 functions (exp, tanh ...) may be rounded differently if kernels are compiled from source. The gain: adjacent
 * element-wise operators, copies and fills within the device run as one kernel, also across independent other commands; common
 * subexpressions of such a group are computed once; and unused results are eliminated. The stream is lazy, not the thread: work that any
 * thread queues on it is deferred. */
#ifndef HAL_LAZY_H_
#define HAL_LAZY_H_

#include "hal/program.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_lazy_s hal_lazy_t;

/* The functions of a description are called while the thread holds no lock of the HAL; hal_lazy_end waits for those that run or are due.
 *
 * Returns where the calling thread is, as a number of the caller's own; 0 = unknown. Called for each operator that is recorded: it must be
 * quick, and call no function of the HAL. */
typedef uint64_t (*hal_lazy_origin_fn_t)(void *state);

/* Writes what such a number stands for, as text with its 0 ("train.py:17"). */
typedef void (*hal_lazy_describe_fn_t)(void *state, uint64_t origin, char *text, size_t room);

/* Called for each group of operators that was compiled, when the work in which it was found has been queued: `text` describes it and what
 * distinguishes it from the nearest known group, `origin` is that of its first operator. */
typedef void (*hal_lazy_compiled_fn_t)(void *state, uint64_t origin, const char *text);

/* Called when deferred work has been queued: with the cause, and the work as text in `format` of the description, as by hal_lazy_text. Not
 * called when the host has no memory for the text. */
typedef void (*hal_lazy_queueing_fn_t)(void *state, const char *cause, const char *text);

/* hal_lazy_desc_t.flags */
#define HAL_LAZY_PLAIN (1u << 0)     /* queue what was recorded as it was recorded, without improving it */
#define HAL_LAZY_DESCRIBED (1u << 1) /* keep the operands' dtypes and sizes for texts */

typedef struct hal_lazy_desc_s {
  size_t struct_size;
  uint32_t flags; /* HAL_LAZY_* */
  uint32_t limit; /* operators that are recorded before they are queued without a flush; 0 = 16384 */
  uint32_t
      piece; /* operators behind which the next one that is not element-wise queues what was recorded, so that the device works while the
                   * rest is recorded; 0 = 128, UINT32_MAX = never. On an asynchronous device the first pieces after a synchronization
                   * are smaller: of 16 operators, and each next one of twice as many */
  uint32_t format;                 /* HAL_PROGRAM_LINES or HAL_PROGRAM_DOT (hal/program.h): for `queueing` */
  hal_lazy_origin_fn_t origin;     /* NULL: unknown */
  hal_lazy_describe_fn_t describe; /* NULL: numbers are written */
  hal_lazy_compiled_fn_t compiled; /* NULL: not called */
  hal_lazy_queueing_fn_t queueing; /* NULL: not called, and no text is written */
  void *state;                     /* for all of them; they may be called until hal_lazy_end has returned */
  hal_lazy_origin_fn_t
      limit_origin; /* called for the warning that `limit` was reached, if `origin` is NULL; NULL: unknown */
} hal_lazy_desc_t;

/* Makes a stream lazy (NULL: current). `desc` may be NULL. Ended by hal_lazy_end. Any thread.
 * Errors: HAL_FAILED_PRECONDITION = the stream is lazy, or being recorded, already; HAL_INVALID_ARGUMENT = an unknown format;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_lazy_begin(hal_stream_t *stream, const hal_lazy_desc_t *desc, hal_lazy_t **out_lazy);

/* Queues what was recorded; does not wait for it. Any thread. Errors: the plugin's, naming the operator and where it was called:
 * earlier commands are queued, later ones are discarded, and the message has their number. The plugin's HAL_UNIMPLEMENTED and
 * HAL_NOT_READY are HAL_INTERNAL here and in every other call that flushes the work. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_lazy_flush(hal_lazy_t *lazy);

/* Queues what was recorded, and the stream is as before; `lazy` is destroyed for any result. NULL is allowed. No other thread may
 * queue work on the stream meanwhile. Errors: as of hal_lazy_flush. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_lazy_end(hal_lazy_t *lazy);

/* Returns what makes a stream (NULL: current) lazy, borrowed; NULL = it is not. Costs a load. Since 0.2. */
HAL_API hal_lazy_t *hal_lazy_of_stream(hal_stream_t *stream);

/* Statistics of a lazy stream. */
typedef struct hal_lazy_info_s {
  size_t struct_size;
  uint64_t pending;  /* commands that are recorded now */
  uint64_t recorded; /* operators that recorded a command, since it began */
  uint64_t flushes;  /* that queued something */
  uint64_t limits;   /* of these: since `limit` was reached */
  uint64_t queued;   /* commands, each a call of the plugin */
  uint64_t fused;    /* commands that ran as part of another kernel */
  uint64_t groups;   /* such kernels queued */
  uint64_t dropped;  /* commands whose results were unused */
  uint64_t compiled; /* groups that were new */
  uint64_t cached;   /* groups that were known */
  uint64_t programs; /* of the device's compiler that were queued (compiler.h) */
  uint64_t
      needed; /* of the flushes: since something needed the results; the others were hal_lazy_flush and hal_lazy_end, `piece` and `limit` */
  uint64_t common; /* commands whose result another one had computed: it was read in its place, or copied */
  uint64_t
      held; /* results that were not released before they were queued, as far as the accesses of operators are known */
} hal_lazy_info_t;

/* Returns the statistics of a lazy stream. The caller sets `out_info->struct_size`. Any thread. Since 0.2. */
HAL_API hal_status_t hal_lazy_info(hal_lazy_t *lazy, hal_lazy_info_t *out_info);

/* Writes what is recorded now as text, in a format of hal_program_text, with the operators' origins. `*out_size` is its length in bytes with the 0 that ends it;
 * it is written to `text` when `room` is at least that. Any thread. Errors: HAL_INVALID_ARGUMENT = an unknown format. Since 0.2. */
HAL_API hal_status_t hal_lazy_text(hal_lazy_t *lazy, uint32_t format, char *text, size_t room, size_t *out_size);

/* Returns how often an operator was deferred, by all lazy streams since the start of the process: `recorded` of hal_lazy_info_t, by operator. Any thread.
 * Errors: HAL_OUT_OF_RANGE = no such operator. Since 0.2. */
HAL_API hal_status_t hal_lazy_op_count(uint32_t op, uint64_t *out_count);

/* Measurements of the lazy work of a device, over all its recordings. */
enum {
  HAL_LAZY_QUEUE_NS = 0,   /* to queue what was recorded, each time; on streams that are not asynchronous, to run it */
  HAL_LAZY_COMPILE_NS,     /* to compile a group */
  HAL_LAZY_LOCK_NS,        /* of waiting for another thread that queues */
  HAL_LAZY_UPLOAD_NS,      /* to take the bytes of a copy from the host */
  HAL_LAZY_DOWNLOAD_NS,    /* of a copy to the host's ordinary memory, from the call until its source was computed */
  HAL_LAZY_COMMANDS,       /* commands queued together */
  HAL_LAZY_UPLOAD_BYTES,   /* of a copy from the host */
  HAL_LAZY_DOWNLOAD_BYTES, /* of a copy to the host */
  HAL_LAZY_METRICS
};

#define HAL_LAZY_PERCENTILES 9 /* 1, 5, 10, 20, 50, 80, 90, 95 and 99 */

typedef struct hal_lazy_metric_s {
  size_t struct_size;
  uint64_t count;                            /* of samples */
  uint64_t total, least, most;               /* of all */
  uint64_t percentile[HAL_LAZY_PERCENTILES]; /* of the last 1024 */
} hal_lazy_metric_t;

/* Returns a measurement (HAL_LAZY_*_NS ...) of a device since the last reset; zeros when nothing was deferred. The caller sets `out_metric->struct_size`. Any thread.
 * Errors: HAL_OUT_OF_RANGE = no such device; HAL_INVALID_ARGUMENT = no such measurement. Since 0.2. */
HAL_API hal_status_t hal_lazy_metric(int32_t device, uint32_t metric, hal_lazy_metric_t *out_metric);

/* Forgets the samples of a device. Any thread. Errors: HAL_OUT_OF_RANGE = no such device. Since 0.2. */
HAL_API hal_status_t hal_lazy_reset_metrics(int32_t device);

#ifdef __cplusplus
}
#endif
#endif /* HAL_LAZY_H_ */
