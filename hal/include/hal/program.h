/* program.h: work that is recorded once and run again.
 *
 * While a stream is recorded, nothing that is queued on it runs. Operators, kernel launches, copies, fills, random
 * numbers and host functions are recorded, after all checks. hal_program_run queues them again, each with one call of
 * the plugin. If the plugin has graphs (its group CAPTURE), one call queues many of them; the graphs are created at the
 * second run. Addresses are those of the recording, so its memory comes from a private pool (hal/memory.h). A stream
 * that waits for an event of the recording joins it. A call that cannot be recorded, such as waiting for the stream,
 * fails and invalidates the recording. */
#ifndef HAL_PROGRAM_H_
#define HAL_PROGRAM_H_

#include "hal/generator.h"
#include "hal/memory.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_program_s hal_program_t;

/* hal_program_desc_t.flags */
#define HAL_PROGRAM_DESCRIBED (1u << 0) /* record the operands' dtypes and sizes for hal_program_text */
#define HAL_PROGRAM_COMMANDS (1u << 1)  /* queue each run command by command, even if the plugin has graphs */

typedef struct hal_program_desc_s { /* options of hal_program_begin */
  size_t struct_size;
  hal_memory_pool_t *pool; /* where the recording allocates; NULL = a new pool. The program adds a reference */
  uint32_t flags;          /* HAL_PROGRAM_* */
  uint32_t reserved;
} hal_program_desc_t;

/* Begins recording a stream (NULL: current). `desc` may be NULL. Ended by hal_program_end, and always destroyed by
 * hal_program_destroy. Errors: HAL_FAILED_PRECONDITION = the stream is already being recorded, or allocates from a
 * private pool; HAL_INVALID_ARGUMENT = a pool of another device; HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_program_begin(hal_stream_t *stream, const hal_program_desc_t *desc,
                                       hal_program_t **out_program);

/* Ends the recording of all its streams. Any thread. Errors: HAL_ABORTED = the recording was invalidated, with the
 * cause, and the program cannot run; HAL_FAILED_PRECONDITION = it had ended already. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_program_end(hal_program_t *program);

/* Invalidates a recording, with a message (copied). For callers whose work the recording cannot contain, such as a
 * computation of the host from values that are not computed yet. Later work and hal_program_end return the first such
 * message. Always returns HAL_FAILED_PRECONDITION with the message, even after the recording has ended. Any thread.
 * Since 0.2. */
HAL_API hal_status_t hal_program_refuse(hal_program_t *program, const char *message);

/* Queues the recorded work on a stream of the same device (NULL: current). Runs of one program are in order, even on
 * different streams; the caller must order other uses of its memory. Any thread. Errors: HAL_FAILED_PRECONDITION = the
 * program is not ended, or was invalidated, or the stream is being recorded; HAL_INVALID_ARGUMENT = a stream of another
 * device; the plugin's own, with the operator and its number: earlier commands are queued. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_program_run(hal_program_t *program, hal_stream_t *stream);

/* Destroys the program; NULL is allowed. A recording that has not ended is ended first. Queued runs complete; the
 * program's memory returns to the allocator after the last of them. Allowed at any time, even while another program
 * records a stream that this one used; that program is not affected. Does nothing after hal_registry_close and in a
 * forked child. Since 0.2. */
HAL_API void hal_program_destroy(hal_program_t *program);

/* Returns the program that records a stream (NULL: current), borrowed; NULL if the stream is not recorded. The call is
 * one load. Since 0.2. */
HAL_API hal_program_t *hal_program_of_stream(hal_stream_t *stream);

/* Returns the pool from which the recording allocates. It is valid as long as the program, or longer with
 * hal_memory_pool_retain. Since 0.2. */
HAL_API hal_memory_pool_t *hal_program_pool(const hal_program_t *program);

/* Returns the device of a program. Since 0.2. */
HAL_API int32_t hal_program_device(const hal_program_t *program);

/* The contents of a program. */
typedef struct hal_program_info_s {
  size_t struct_size;
  uint32_t recording, invalidated;                              /* 1 or 0 */
  uint32_t commands;                                            /* the sum of the following */
  uint32_t launches, copies, fills, draws, own_ops, host_calls; /* by kind */
  uint32_t streams;                                             /* streams that were recorded */
  uint64_t runs;                                                /* runs that have begun */
  uint64_t random;                                              /* Philox blocks that each run uses */
  uint64_t owned_bytes;                                         /* of host memory, for arguments and copied data */
  uint32_t graphs;      /* of the plugin, launched by a run: 0 before the second run, and if the plugin has no graphs */
  uint32_t captured;    /* commands in graphs */
  uint32_t submissions; /* collectives, which the host submits in each run; since 0.3 */
  uint32_t reserved;    /* 0 */
} hal_program_info_t;

/* Returns the counts of a program. The caller sets `out_info->struct_size`. Any thread. Since 0.2. */
HAL_API hal_status_t hal_program_info(const hal_program_t *program, hal_program_info_t *out_info);

/* hal_program_text's formats. */
enum { HAL_PROGRAM_LINES = 0, HAL_PROGRAM_DOT = 1 };

/* Writes the program as text, or as a graph in the language of Graphviz. The text has a line per operator, with what it
 * queues and its implementation: plugin, portable kernels, a library, the host, or native (copies, fills and random
 * numbers of the device alone). `*out_size` is its length in bytes with the terminating 0; it is written to `text` only
 * if `capacity` is at least that. Errors: HAL_FAILED_PRECONDITION = the program is being recorded; HAL_INVALID_ARGUMENT
 * = an unknown format; HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_program_text(const hal_program_t *program, uint32_t format, char *text, size_t capacity,
                                      size_t *out_size);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PROGRAM_H_ */
