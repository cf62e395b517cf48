/* program.h: work that is recorded once and run again.
 *
 * While a stream is recorded, nothing that is queued on it runs: operators, kernel launches, copies, fills, random numbers and host functions
 * are recorded, below all checks, and hal_program_run queues them again, each with one call of the plugin, or many with one if the plugin has
 * graphs (its group CAPTURE), which are created at the second run. Addresses are those of the
 * recording, so its memory comes from a private pool (hal/memory.h). A stream that waits for an event of the recording joins it. A call that
 * cannot be recorded, such as waiting for the stream, fails and invalidates the recording. */
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
#define HAL_PROGRAM_DESCRIBED (1u << 0) /* keep the operands' dtypes and sizes for hal_program_text */
#define HAL_PROGRAM_COMMANDS (1u << 1)  /* queue each run command by command, also where the plugin has graphs */

typedef struct hal_program_desc_s {
  size_t struct_size;
  hal_memory_pool_t *pool; /* where the recording allocates; NULL = a pool of its own. The program takes a reference */
  uint32_t flags;          /* HAL_PROGRAM_* */
  uint32_t reserved;
} hal_program_desc_t;

/* Begins to record a stream (NULL: current). `desc` may be NULL. Ended by hal_program_end, and in any case destroyed by
 * hal_program_destroy. Errors: HAL_FAILED_PRECONDITION = the stream is being recorded, or allocates from a private pool, already;
 * HAL_INVALID_ARGUMENT = a pool of another device; HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_program_begin(hal_stream_t *stream, const hal_program_desc_t *desc,
                                       hal_program_t **out_program);

/* Ends the recording of all its streams. Any thread. Errors: HAL_ABORTED = the recording was invalidated, with the cause: the program
 * cannot run; HAL_FAILED_PRECONDITION = it had ended. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_program_end(hal_program_t *program);

/* Invalidates a recording, with a message (copied): for callers whose work it cannot contain, such as a computation of the host from values that
 * do not exist yet, so that no program lacks it. Later work and hal_program_end return the first such message. Always returns HAL_FAILED_PRECONDITION
 * with the message, also when the recording has ended. Any thread. Since 0.2. */
HAL_API hal_status_t hal_program_refuse(hal_program_t *program, const char *message);

/* Queues what was recorded on a stream of the same device (NULL: current). Runs of one program follow one another, also on different
 * streams; the caller orders other uses of its memory. Any thread. Errors: HAL_FAILED_PRECONDITION = the program is not
 * ended, or was invalidated, or the stream is being recorded; HAL_INVALID_ARGUMENT = a stream of another device; the plugin's own,
 * naming the operator and its number: earlier commands are queued. Since 0.2. */
HAL_API HAL_MUST_USE hal_status_t hal_program_run(hal_program_t *program, hal_stream_t *stream);

/* Ends the recording if need be, and destroys the program; NULL is allowed. Queued runs complete, and the program's memory returns to the
 * allocator after the last of them. Allowed at any time, also while a stream that the program used is recorded by another program, which
 * is not affected. Silent after hal_registry_close and in a forked child. Since 0.2. */
HAL_API void hal_program_destroy(hal_program_t *program);

/* Returns the program that records a stream (NULL: current), borrowed; NULL = none does. Costs a load. Since 0.2. */
HAL_API hal_program_t *hal_program_of_stream(hal_stream_t *stream);

/* Returns the pool that the recording allocates from; valid as long as the program, longer with hal_memory_pool_retain. Since 0.2. */
HAL_API hal_memory_pool_t *hal_program_pool(const hal_program_t *program);

/* Returns the device of a program. Since 0.2. */
HAL_API int32_t hal_program_device(const hal_program_t *program);

/* What a program holds. */
typedef struct hal_program_info_s {
  size_t struct_size;
  uint32_t recording, invalidated; /* 1 or 0 */
  uint32_t commands;               /* all of the following */
  uint32_t launches, copies, fills, draws, own_ops,
      host_calls;       /* draws: random numbers, or random states of a generator for kernels */
  uint32_t streams;     /* that were recorded */
  uint64_t runs;        /* begun */
  uint64_t random;      /* Philox blocks that each run uses */
  uint64_t owned_bytes; /* of host memory, for arguments and copied data */
  uint32_t graphs;      /* of the plugin that a run launches: 0 before the second run, and where there are none */
  uint32_t captured;    /* commands that are in them */
  uint32_t submissions; /* collectives, which the host submits in each run; since 0.3 */
  uint32_t reserved;    /* 0 */
} hal_program_info_t;

/* Returns the counts of a program. The caller sets `out_info->struct_size`. Any thread. Since 0.2. */
HAL_API hal_status_t hal_program_info(const hal_program_t *program, hal_program_info_t *out_info);

/* hal_program_text's formats. */
enum { HAL_PROGRAM_LINES = 0, HAL_PROGRAM_DOT = 1 };

/* Writes the program as text: a line per operator, with its implementation (plugin, portable kernels, a library, the host, or native: copies, fills and random numbers of
 * the device alone), and what it queues, or a graph in the language of Graphviz. `*out_size` is its length in bytes with the 0
 * that ends it; it is written to `text` when `room` is at least that, else nothing is. Not while it is being recorded.
 * Errors: HAL_FAILED_PRECONDITION; HAL_INVALID_ARGUMENT = an unknown format; HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_program_text(const hal_program_t *program, uint32_t format, char *text, size_t room,
                                      size_t *out_size);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PROGRAM_H_ */
