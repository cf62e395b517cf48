/* lazy.h: deferred work: it is recorded, optimized, and then queued together.
 *
 * While a stream is lazy, operators, copies, fills and kernel launches are checked, get their memory and are recorded.
 * They are queued when something needs them: a synchronization, a copy to the host, an event, a wait, a host function,
 * or hal_lazy_flush. They are queued in pieces when enough is recorded to occupy the device. Results, addresses and
 * random numbers are those of the same work queued at once, bit for bit. Only float32 functions (exp, tanh ...) may be
 * rounded differently if kernels are compiled from source.
 *
 * Deferred work is faster: adjacent element-wise operators, copies and fills within the device run as one kernel, also
 * across other commands that are independent. Common subexpressions of such a group are computed once, and unused
 * results are eliminated. The stream is lazy, not the thread: work that any thread queues on it is deferred. */
#ifndef HAL_LAZY_H_
#define HAL_LAZY_H_

#include "hal/program.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_lazy_s hal_lazy_t;

/* A thread that calls the functions of a description holds no lock of the HAL. hal_lazy_end waits for calls that are
 * running or pending.
 *
 * Returns the position in the calling thread's program, as a number that the caller chooses; 0 = unknown. Called for
 * each operator that is recorded: it must be fast, and call no function of the HAL. */
typedef uint64_t (*hal_lazy_origin_fn_t)(void *state);

/* Writes the description of such a number ("train.py:17"), as text with a terminating 0. */
typedef void (*hal_lazy_describe_fn_t)(void *state, uint64_t origin, char *text, size_t capacity);

/* Called for each group of operators that was compiled, after the work that contains it has been queued. `text`
 * describes it and how it differs from the nearest known group; `origin` is that of its first operator. */
typedef void (*hal_lazy_compiled_fn_t)(void *state, uint64_t origin, const char *text);

/* Called after deferred work has been queued: with the cause, and the work as text in `format` of the description, as
 * by hal_lazy_text. Not called if the host has no memory for the text. */
typedef void (*hal_lazy_queueing_fn_t)(void *state, const char *cause, const char *text);

/* hal_lazy_desc_t.flags */
#define HAL_LAZY_PLAIN (1u << 0)     /* queue the commands as they were recorded, without optimization */
#define HAL_LAZY_DESCRIBED (1u << 1) /* record the operands' dtypes and sizes for texts */
/* Defer only groups of operators that can run as one kernel; all other work is queued at once, after the group that is
 * deferred. A group begins with an operator over `least` elements. It ends before an operator that cannot be part of
 * it, after 64 operators, when its results are needed, and on an asynchronous device if the program pauses for about
 * 2 ms. A compiler of the device is not used. Since 0.5. */
#define HAL_LAZY_GROUPS (1u << 2)
/* With HAL_LAZY_GROUPS: a group begins only while an asynchronous device is busy, so that an idle one starts at once.
 * The groups of a program depend on the time then. Since 0.5. */
#define HAL_LAZY_BUSY (1u << 3)

typedef struct hal_lazy_desc_s { /* options of hal_lazy_begin */
  size_t struct_size;
  uint32_t flags; /* HAL_LAZY_* */
  uint32_t limit; /* operators that may be deferred before they are queued without a flush; 0 = 16384 */
  uint32_t
      piece; /* number of operators after which the next one that is not element-wise queues what was recorded, so that
              * the device works while the rest is recorded; 0 = 128, or never if the device's compiler has the flag
              * HAL_COMPILER_WHOLE; UINT32_MAX = never. On an asynchronous device the
              * first pieces after a synchronization are smaller: 16 operators, then twice as many in each next piece */
  uint32_t format;                 /* HAL_PROGRAM_LINES or HAL_PROGRAM_DOT (hal/program.h): for `queueing` */
  hal_lazy_origin_fn_t origin;     /* NULL: unknown */
  hal_lazy_describe_fn_t describe; /* NULL: the number itself is written */
  hal_lazy_compiled_fn_t compiled; /* NULL: not called */
  hal_lazy_queueing_fn_t queueing; /* NULL: not called, and no text is written */
  /* first argument of all functions; they may be called until hal_lazy_end has returned */
  void *state;
  hal_lazy_origin_fn_t
      limit_origin; /* called for the warning that `limit` was reached, if `origin` is NULL; NULL: unknown */
  uint64_t least;   /* HAL_LAZY_GROUPS: elements of an operator that begins a group; 0 = 32768. Since 0.5 */
} hal_lazy_desc_t;

/* Makes a stream lazy (NULL: current). `desc` may be NULL. Ended by hal_lazy_end. Any thread. Errors:
 * HAL_FAILED_PRECONDITION = the stream is already lazy or being recorded; HAL_INVALID_ARGUMENT = an unknown format;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_lazy_begin(hal_stream_t *stream, const hal_lazy_desc_t *desc, hal_lazy_t **out_lazy);

/* Queues the deferred work without waiting for it. Any thread. Errors: the plugin's, with the operator and where it was
 * called. Earlier commands are queued and later ones discarded; the message has their number. The plugin's
 * HAL_UNIMPLEMENTED and HAL_NOT_READY are returned as HAL_INTERNAL here and by every other call that flushes the work.
 * Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_lazy_flush(hal_lazy_t *lazy);

/* Queues the deferred work, and makes the stream immediate again; `lazy` is destroyed in any case. NULL is allowed. No
 * other thread may queue work on the stream during the call. Errors: as of hal_lazy_flush. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_lazy_end(hal_lazy_t *lazy);

/* Returns the object of a lazy stream (NULL: current), borrowed; NULL if the stream is not lazy. The call is one load.
 * Since 0.2. */
HAL_API hal_lazy_t *hal_lazy_of_stream(hal_stream_t *stream);

/* Statistics of a lazy stream. */
typedef struct hal_lazy_info_s {
  size_t struct_size;
  uint64_t pending;  /* commands that are deferred now */
  uint64_t recorded; /* operators that recorded a command, since hal_lazy_begin */
  uint64_t flushes;  /* flushes that queued something */
  uint64_t limits;   /* of these: because `limit` was reached */
  uint64_t queued;   /* commands, each a call of the plugin */
  uint64_t fused;    /* commands that ran as part of another kernel */
  uint64_t groups;   /* such kernels queued */
  uint64_t dropped;  /* commands whose results were unused */
  uint64_t compiled; /* groups that were compiled */
  uint64_t cached;   /* groups that were found in the cache */
  uint64_t programs; /* programs of the device's compiler that were queued (compiler.h) */
  uint64_t
      needed; /* flushes because something needed the results; the others were hal_lazy_flush, hal_lazy_end, `piece` and
               * `limit` */
  uint64_t common; /* commands whose result another one had computed: it was read instead, or copied */
  uint64_t
      held; /* results that were not released before they were queued, as far as the accesses of operators are known */
} hal_lazy_info_t;

/* Returns the statistics of a lazy stream. The caller sets `out_info->struct_size`. Any thread. Since 0.2. */
HAL_API hal_status_t hal_lazy_info(hal_lazy_t *lazy, hal_lazy_info_t *out_info);

/* Writes the deferred work as text, in a format of hal_program_text, with the operators' origins. `*out_size` is its
 * length in bytes with the terminating 0; it is written to `text` only if `capacity` is at least that. Any thread.
 * Errors: HAL_INVALID_ARGUMENT = an unknown format. Since 0.2. */
HAL_API hal_status_t hal_lazy_text(hal_lazy_t *lazy, uint32_t format, char *text, size_t capacity, size_t *out_size);

/* Returns how many times an operator was deferred, by all lazy streams since the start of the process: `recorded` of
 * hal_lazy_info_t, by operator. Any thread. Errors: HAL_OUT_OF_RANGE = unknown operator. Since 0.2. */
HAL_API hal_status_t hal_lazy_op_count(uint32_t op, uint64_t *out_count);

/* Measurements of the lazy work of a device, over all its recordings. */
enum {
  HAL_LAZY_QUEUE_NS = 0,   /* to queue the deferred work, per flush; on streams that are not asynchronous, to run it */
  HAL_LAZY_COMPILE_NS,     /* to compile a group */
  HAL_LAZY_LOCK_NS,        /* of waiting for another thread that queues */
  HAL_LAZY_UPLOAD_NS,      /* to read the bytes of a copy from the host */
  HAL_LAZY_DOWNLOAD_NS,    /* of a copy to the host's pageable memory, from the call until its source is computed */
  HAL_LAZY_COMMANDS,       /* commands queued together */
  HAL_LAZY_UPLOAD_BYTES,   /* of a copy from the host */
  HAL_LAZY_DOWNLOAD_BYTES, /* of a copy to the host */
  HAL_LAZY_METRICS
};

#define HAL_LAZY_PERCENTILES 9 /* 1, 5, 10, 20, 50, 80, 90, 95 and 99 */

typedef struct hal_lazy_metric_s { /* a measurement, see hal_lazy_metric */
  size_t struct_size;
  uint64_t count;                            /* of samples */
  uint64_t total, least, most;               /* of all */
  uint64_t percentile[HAL_LAZY_PERCENTILES]; /* of the last 1024 */
} hal_lazy_metric_t;

/* Returns a measurement (HAL_LAZY_*_NS ...) of a device since the last reset; zeros if nothing was deferred. The caller
 * sets `out_metric->struct_size`. Any thread. Errors: HAL_OUT_OF_RANGE = invalid device; HAL_INVALID_ARGUMENT = unknown
 * measurement. Since 0.2. */
HAL_API hal_status_t hal_lazy_metric(int32_t device, uint32_t metric, hal_lazy_metric_t *out_metric);

/* Discards the samples of a device. Any thread. Errors: HAL_OUT_OF_RANGE = invalid device. Since 0.2. */
HAL_API hal_status_t hal_lazy_reset_metrics(int32_t device);

#ifdef __cplusplus
}
#endif
#endif /* HAL_LAZY_H_ */
