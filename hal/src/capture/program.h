/* program.h: a program's commands, for the files of this component and of those above. Private to hal/src. */
#ifndef HAL_SRC_CAPTURE_PROGRAM_H_
#define HAL_SRC_CAPTURE_PROGRAM_H_

#include "capture/arena.h"
#include "device/device.h"
#include "hal/lazy.h"
#include "op/own.h"

#define HAL_NO_OP UINT32_MAX

enum {
  HAL_COMMAND_LAUNCH,
  HAL_COMMAND_COPY,
  HAL_COMMAND_FILL,
  HAL_COMMAND_RANDOM,
  HAL_COMMAND_OWN_OP,
  HAL_COMMAND_HOST_CALL,
  HAL_COMMAND_SUBMISSION, /* the host submits work in each run */
  HAL_COMMAND_DRAW,       /* writes the random state of a run, which later kernels read */
  HAL_COMMAND_FREED,      /* lazy work: no command, but a note that memory was released */
  HAL_COMMAND_KINDS
};

typedef struct hal_command_s {
  uint32_t kind; /* HAL_COMMAND_* */
  uint32_t op;   /* index of the operator that queued it, in `ops`; HAL_NO_OP = none */
  union {
    struct {
      hal_plugin_kernel_t *kernel;
      const hal_launch_t *launch;
      uint64_t
          codes; /* of its arguments, if their values are consecutive words (hal_arg_code); 0 = they are not, or are too
                  * many */
    } launch;
    struct {
      void *dst;
      const void *src;
      size_t size;
      int32_t dst_device, src_device;
    } copy;
    struct {
      void *dst;
      size_t size;
      uint32_t pattern_size;
      uint8_t pattern[16];
    } fill;
    hal_random_t *random;
    struct {
      const hal_op_own_t *own;
      const char *name;
      hal_op_call_t *call;
    } own_op;
    struct {
      hal_host_fn_t fn;
      void *user_data;
    } host_call;
    const hal_submission_t *submission;
    const struct hal_program_source_s *draw;
    struct {
      const void *address;
      size_t size;
    } freed;
  } u;
  uint64_t profiled; /* lazy work: hal_profile_stamp when it was recorded; 0 = there was no profile */
} hal_command_t;

enum { HAL_ARG_CODES = 32 }; /* arguments whose codes fill a word */

/* Returns the kind of an argument, in two bits: 8 bytes, an address, 4 bytes; 0 = another. */
static inline uint64_t hal_arg_code(uint32_t size, uint32_t kind) {
  if (HAL_LIKELY(size == 8 && kind != HAL_ARG_LOCAL)) return kind == HAL_ARG_POINTER ? 2 : 1;
  return size == 4 && kind == HAL_ARG_VALUE ? 3 : 0;
}

/* Memory that an operator reads or writes. */
typedef struct hal_span_s {
  uint64_t low, high;
  uint32_t writes;
  uint32_t dense; /* 1 = there are no gaps between its elements */
} hal_span_t;

/* An operator of the recording; operators within operators follow theirs. */
typedef struct hal_program_op_s {
  uint32_t op;         /* HAL_OP_ID_* or a library's */
  const char *text;    /* its operands, if they are described; else NULL */
  uint64_t origin;     /* lazy work: where the caller was (hal_lazy_desc_t.origin) */
  hal_op_call_t *call; /* lazy work of a device with a compiler that accepts the operator: its call; else NULL */
  const hal_span_t
      *spans; /* lazy work: its operands and results, if its launches do not determine them; NULL: unknown */
  uint32_t span_count;
  uint32_t first, last; /* its commands in the list, if all of them are known: see `complete` (hal_compiler_prepare) */
  int complete;         /* the operator has ended, so the command list has all its commands */
} hal_program_op_t;

/* The recorded commands, in order. */
typedef struct hal_command_list_s {
  hal_arena_t arena; /* for data that commands point to */
  hal_command_t *commands;
  hal_program_op_t *ops;
  uint32_t command_count, command_room, op_count, op_room;
} hal_command_list_t;

/* A generator of the program: its state in device memory, and the numbers of a run. */
typedef struct hal_program_source_s {
  struct hal_program_source_s *next;
  hal_generator_t *generator;
  hal_block_t *state; /* two numbers: seed and first block of the run */
  uint64_t blocks;    /* of each run */
} hal_program_source_t;

/* Consecutive commands that a run queues in the same way. */
typedef struct hal_program_part_s {
  uint32_t begin, end;            /* commands */
  hal_plugin_graph_exec_t *graph; /* the plugin's graph of all of them; NULL: they are queued one by one */
} hal_program_part_t;

enum { HAL_GRAPHS_LATER, HAL_GRAPHS_MADE, HAL_GRAPHS_NOT };

/* A program as graphs of the plugin (graph.c): zero until they are created. */
typedef struct hal_program_graphs_s {
  int state; /* HAL_GRAPHS_* */
  uint32_t count, part_count;
  hal_program_part_t *parts;
  /* of the plugin's operators in them; its stream is that of the run in which they were created */
  hal_op_kept_t scratch;
} hal_program_graphs_t;

/* A stream that was recorded. */
typedef struct hal_program_stream_s {
  struct hal_program_stream_s *next;
  hal_stream_t *stream;
} hal_program_stream_t;

/* The queue of the streams of a recording: threads may still use it after the recording has ended, or its program is
 * destroyed. */
typedef struct hal_recording_s {
  hal_queue_t queue;
  hal_lock_t lock;        /* for the following fields, and for the program */
  uint64_t id;            /* unique among the recordings of the process; never 0 */
  hal_program_t *program; /* NULL = it is destroyed */
} hal_recording_t;

struct hal_program_s {
  hal_recording_t *front;
  hal_device_t *device;
  /* The fields that each command accesses, in the same cache lines: 128 bytes with the above. All of it is protected by
   * the front's lock. */
  int is_deferred;          /* 1 = a lazy stream's, which are launched once */
  hal_status_t invalidated; /* HAL_OK, or the status that hal_program_end returns, with `cause` */
  int recording, reports;   /* reports: kernels may write the stream's error record */
  hal_command_list_t list;
  atomic_uint_fast64_t recorded; /* lazy work: operators that recorded a command; also read without the lock */
  /* lazy work: 1 from the first command of a list until the list was queued; also read without the lock */
  atomic_int open;
  uint32_t current_op; /* the operator that records now */
  uint32_t flags, stream_count;
  hal_memory_pool_t *pool;
  void ***patches; /* pointer arguments that are the address of the error record of a run's stream */
  uint32_t patch_count, patch_room;
  hal_program_stream_t *streams; /* the recorded streams; the last one is that of hal_program_begin */
  hal_stream_t *stream;          /* that of hal_program_begin */
  hal_program_source_t *sources;
  char cause[HAL_FAILURE_BYTES];
  hal_event_t *done;  /* orders a run after one of another stream; created when it is first needed */
  hal_stream_t *last; /* of the last run; NULL = none */
  uint64_t runs;
  hal_program_graphs_t graphs; /* written under the lock by the run that creates them, which reads them without */
  hal_lock_t turn;             /* of a run: for `done`, `last`, and the memory that commands and graphs write */
};

static inline hal_recording_t *hal_recording_of(hal_queue_t *queue) { return (hal_recording_t *)queue; }

static inline void hal_program_lock(const hal_program_t *program) { hal_lock(&program->front->lock); }
static inline void hal_program_unlock(const hal_program_t *program) { hal_unlock(&program->front->lock); }

/* The functions of a queue that records a program (record.c). Lazy work shares some of them. */
extern const hal_queue_calls_t hal_program_calls;

/* Returns the number of a recording, which is unique. */
uint64_t hal_program_new_id(void);

/* Locks a recording. Errors: it was invalidated, or has ended meanwhile. */
hal_status_t hal_program_enter(hal_queue_t *queue, hal_program_t **out_program);

/* Unlocks it; a failure invalidates the recording, which would lack the work. Returns `status`. */
hal_status_t hal_program_leave(hal_program_t *program, hal_status_t status);

/* Appends an empty command of the operator that records now; NULL = no memory. The caller holds the lock. */
hal_command_t *hal_program_append(hal_program_t *program, uint32_t kind);

/* Frees the memory of a command list. */
void hal_command_list_destroy(hal_command_list_t *list);

/* Queues one command of a command list on a stream; `pool`: of scratch memory of the plugin's operators, NULL = the
 * stream's; `profiled`: with the operator's brackets of the profile. Errors name command and operator. */
HAL_MUST_USE hal_status_t hal_command_list_queue(const hal_command_list_t *list, uint32_t number, hal_stream_t *stream,
                                                 hal_memory_pool_t *pool, int profiled);

/* Brackets of the profile around a call that submits the work of a command: under the operator `op`, HAL_PROFILE_NO_OP
 * = none, and the caller's number that the command was recorded with. */
typedef struct hal_command_bracket_s {
  uint32_t outer;
  int has_id;
} hal_command_bracket_t;
void hal_command_begin_call(const hal_command_t *command, uint32_t op, hal_command_bracket_t *out_bracket);
void hal_command_end_call(const hal_command_bracket_t *bracket);

/* Queues one command on a stream that the plugin captures; the plugin's operators keep their scratch memory. Errors as
 * of hal_command_list_queue. */
HAL_MUST_USE hal_status_t hal_command_list_capture(const hal_command_list_t *list, uint32_t number,
                                                   hal_stream_t *stream, hal_op_kept_t *kept);

/* Queues the whole program on a stream, as graphs of the plugin if there are any. The caller holds the turn. */
HAL_MUST_USE hal_status_t hal_program_queue(hal_program_t *program, hal_stream_t *stream);

/* Destroys the plugin's graphs of a program. None of them is queued: the last run is done, or none was launched. */
void hal_program_drop_graphs(hal_program_t *program);

/* Invalidates a recording with the thread's message. Returns `status`. The caller holds the lock. */
hal_status_t hal_program_invalidate(hal_program_t *program, hal_status_t status);

/* Begins to record a stream, with its memory from the program's pool. The caller holds the lock. */
hal_status_t hal_program_take_stream(hal_program_t *program, hal_stream_t *stream);

/* Errors: HAL_INVALID_ARGUMENT = not one of hal_program_text's formats. */
hal_status_t hal_command_list_check_format(uint32_t format);

/* Events that are reported to the owner of a command list while its commands are launched. */
typedef struct hal_command_list_observer_s hal_command_list_observer_t;
struct hal_command_list_observer_s {
  /* A group of kernels or a program was compiled. `origin`: where its first operator was called; 0 = unknown. */
  void (*compiled)(hal_command_list_observer_t *observer, uint64_t origin, const char *text);
};

/* In a text that is written under a lock, an origin is a number between two such bytes. */
enum { HAL_ORIGIN_MARK = 1 };

/* Writes a command list as text with a title, as hal_program_text does. `desc`: of a lazy stream whose operators have
 * origins, which are marked; may be NULL. */
hal_status_t hal_command_list_text(const hal_command_list_t *list, const char *title, const hal_lazy_desc_t *desc,
                                   uint32_t format, char *text, size_t room, size_t *out_size);

/* Copies a call with everything that it points to, into the arena. NULL = no memory. */
hal_op_call_t *hal_program_copy_call(hal_arena_t *arena, const hal_op_call_t *call);

/* Describes a call's operands, in the arena; NULL = no memory. */
const char *hal_program_describe(hal_arena_t *arena, const hal_op_call_t *call);

#endif /* HAL_SRC_CAPTURE_PROGRAM_H_ */
