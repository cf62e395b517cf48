/* lazy.h: a lazy queue, for the files of this component. Private to hal/src. */
#ifndef HAL_SRC_LAZY_LAZY_H_
#define HAL_SRC_LAZY_LAZY_H_

#include <pthread.h>
#include <stddef.h>

#include "capture/program.h"
#include "compile/ir.h"
#include "fusion/access.h"
#include "fusion/fuse.h"
#include "hal/lazy.h"
#include "hal_op_ids.h"
#include "lazy/schedule.h"
#include "op/internal.h"

/* Bytes that a recorded copy reads, until it is done. */
typedef struct hal_upload_s {
  struct hal_upload_s *next;
  max_align_t bytes[];
} hal_upload_t;

#define HAL_LAZY_SEEN 32
#define HAL_LAZY_FIRST 16 /* operators: of the first piece for an asynchronous device that is idle */

/* The last operators of the list that ran as they were recorded, by one launch each: a ring buffer. */
typedef struct hal_lazy_seen_s {
  uint32_t count;
  uint32_t command[HAL_LAZY_SEEN];
  uint64_t hash[HAL_LAZY_SEEN];
} hal_lazy_seen_t;

/* Deferred work that failed: where it was called, and how many commands after it were discarded. */
typedef struct hal_lazy_failure_s {
  uint64_t origin;
  uint32_t discarded;
} hal_lazy_failure_t;

/* A queue that defers groups, for the thread that queues them when the program pauses. */
typedef struct hal_lazy_watched_s {
  struct hal_lazy_s *next;
  uint64_t id;              /* of the recording at the last tick */
  uint32_t commands, ticks; /* at the last tick; ticks with the same commands */
  uint32_t round;
} hal_lazy_watched_t;

struct hal_lazy_s {
  hal_recording_t front; /* first: a lazy queue is its recording */
  hal_program_t program; /* its command list is the one that is recorded now */
  /* Read for each operator, so they share cache lines. */
  uint64_t elementwise;         /* families of operators that may belong to groups */
  uint64_t known_accesses;      /* families whose launches determine what they access */
  atomic_uint_fast64_t flushed; /* operators that were recorded when the last command list was taken */
  hal_programs_t *programs;     /* of the device's compiler; NULL = it has none */
  atomic_uint piece;            /* operators after which the next one that is not element-wise flushes */
  int wants_calls;              /* calls are described, or compiled */
  int groups;                   /* constant: only groups are deferred (group.c) */
  hal_lazy_desc_t desc;
  hal_command_list_observer_t observer; /* calls the description's `compiled` */
  hal_lock_t queueing;     /* of all that follows: held while a list is submitted, in the order of recording */
  hal_command_list_t list; /* the command list that is submitted */
  hal_upload_t *uploads;   /* of the recorded copies; under the program's lock */
  hal_upload_t *queued;    /* of the submitted copies */
  hal_fuse_t *fuse;        /* of the device */
  hal_accesses_t accesses; /* of `list` */
  hal_lazy_seen_t seen;
  hal_schedules_t schedules;
  hal_lazy_info_t info;       /* counts; of `queueing` */
  hal_memory_pool_t *scratch; /* of the plugin's operators: the command list may still read free blocks of the stream */
  hal_lazy_watched_t watched; /* of idle.c, under its lock or by its thread */
  int warned;
  hal_lazy_failure_t failure; /* of the last flush that failed */
  atomic_uint calls;          /* of the description's functions, due or running; they retain `desc` (listener.c) */
};

static inline hal_lazy_t *hal_lazy_of(hal_queue_t *queue) { return (hal_lazy_t *)queue; }

/* Returns the queue of its stream that calls the plugin. */
static inline hal_queue_t *hal_lazy_direct(hal_lazy_t *lazy) { return &lazy->program.stream->direct.queue; }

/* Returns whether an operator may belong to a group. */
static inline int hal_lazy_is_fusable(const hal_lazy_t *lazy, uint32_t op) {
  return op < HAL_OP_ID_COUNT && lazy->elementwise >> hal_op_infos[op].family & 1;
}

/* Returns whether commands are recorded, or are being queued. Work that a queue passes on must wait for them. */
static inline int hal_lazy_is_open(const hal_lazy_t *lazy) {
  return atomic_load_explicit(&lazy->program.open, memory_order_acquire);
}

/* Returns whether a queue is lazy. */
int hal_lazy_is(const hal_queue_t *queue);

/* Returns the functions of a lazy queue (lazy.c) that defers all work, or only groups. */
const hal_queue_calls_t *hal_lazy_calls(int groups);

/* Sets the functions of a lazy queue that defers only groups (group.c). */
void hal_lazy_pass_most(hal_queue_calls_t *calls);

/* Sets the functions of a lazy queue that call the plugin immediately (direct.c). */
void hal_lazy_pass_on(hal_queue_calls_t *calls);

/* ---- record.c: functions of a lazy queue ---- */

/* Sets the size of the next piece for a device that has nothing else to do. */
void hal_lazy_begin_pieces(hal_lazy_t *lazy);

int hal_lazy_begin_op(hal_queue_t *queue, hal_recorded_op_t *op, const hal_op_call_t *call);

/* Marks an operator whose commands are all recorded, if it is still in the command list. */
void hal_lazy_end_op(hal_queue_t *queue, hal_recorded_op_t *op);

/* Records that memory was released. Returns 0 when no commands are recorded that may use it. */
int hal_lazy_record_release(hal_queue_t *queue, const void *address, size_t size);

/* ---- idle.c: queues groups for devices that have nothing else to do ---- */

/* Adds or removes a lazy queue; `remove` waits for a flush of it. No HAL lock is held. */
void hal_lazy_idle_watch(hal_lazy_t *lazy);
void hal_lazy_idle_forget(hal_lazy_t *lazy);

/* Called before devices are closed: removes all queues, and waits for a flush that is running. */
void hal_lazy_idle_close(void);

/* Called when a group begins. */
void hal_lazy_idle_notice(void);

/* In the child of a fork: the thread and its queues belong to the parent. */
void hal_lazy_after_fork(void);

/* ---- copy.c ---- */

hal_status_t hal_lazy_record_copy(hal_queue_t *queue, void *dst, int32_t dst_device, const void *src,
                                  int32_t src_device, size_t size);

/* Frees the bytes of the copies that were submitted, when these are done. `queueing` is held. */
void hal_lazy_release_uploads(hal_lazy_t *lazy);

/* Frees the bytes of the copies that are recorded. The program's lock is held. */
void hal_lazy_discard_uploads(hal_lazy_t *lazy);

/* ---- flush.c ---- */

/* Submits the recorded commands. `needed`: their results are needed now; 0 = the caller, or their number, requested the
 * flush. */
hal_status_t hal_lazy_flush_because(hal_lazy_t *lazy, const char *cause, int needed);

/* As hal_lazy_flush_because; a failure is recorded, and returned by the stream's next synchronization. */
void hal_lazy_flush_quietly(hal_lazy_t *lazy, const char *cause);

/* The same for a function of the queue that needs the results. */
hal_status_t hal_lazy_flush_for(hal_queue_t *queue, const char *what);

/* Returns whether the calling thread is submitting the command list of `lazy`, so that it holds `queueing`. */
int hal_lazy_is_submitting_here(const hal_lazy_t *lazy);

/* ---- submit.c ---- */

/* Submits `lazy->list` to the plugin. `queueing` is held. Errors: the plugin's; `lazy->failure` completes its message
 * (hal_lazy_failed). */
hal_status_t hal_lazy_submit(hal_lazy_t *lazy);

/* Completes the message of a flush that failed. No HAL lock is held. Returns the status for the caller that triggered
 * the flush. */
hal_status_t hal_lazy_failed(const hal_lazy_desc_t *desc, const hal_lazy_failure_t *failure, hal_status_t status);

/* ---- listener.c ---- */

/* Keeps `desc` valid until hal_lazy_release_desc. `queueing` is held. */
void hal_lazy_retain_desc(hal_lazy_t *lazy);
void hal_lazy_release_desc(hal_lazy_t *lazy);

/* Takes the lock `queueing` when no call retains `desc`. No HAL lock is held. */
void hal_lazy_lock_quiet(hal_lazy_t *lazy);

/* Writes where the caller of an operator was: as `describe` of the description writes it, or its number if there is no
 * such function or the thread holds a lock (it defers callbacks); "" if that is unknown. */
void hal_lazy_describe(const hal_lazy_desc_t *desc, uint64_t origin, char *text, size_t room);

/* Writes " at train.py:17", where the calling thread is; "" if that is unknown. No HAL lock is held. */
void hal_lazy_write_position(const hal_lazy_desc_t *desc, char *text, size_t room);

/* Sets the observer that calls the description's `compiled` as a callback. `queueing` is held. */
void hal_lazy_observe(hal_lazy_t *lazy);

/* Returns it; NULL = the description has no `compiled`. */
static inline hal_command_list_observer_t *hal_lazy_observer(hal_lazy_t *lazy) {
  return lazy->observer.compiled ? &lazy->observer : NULL;
}

/* Calls the description's `queueing` for `lazy->list` as a callback. `queueing` is held. */
void hal_lazy_report_queueing(hal_lazy_t *lazy, const char *cause);

/* ---- cse.c ---- */

/* Queues copies of the results of the operator `earlier` to those of the operator `number`. Errors: the plugin's. */
hal_status_t hal_lazy_copy(hal_lazy_t *lazy, uint32_t number, uint32_t earlier);

/* Copies the results of an earlier operator that has computed the same as a command of `lazy->list`. `*out_done` = 0:
 * there is none, and the command must be queued. `queueing` is held. Errors: the plugin's. */
hal_status_t hal_lazy_share(hal_lazy_t *lazy, uint32_t number, int *out_done);

#endif /* HAL_SRC_LAZY_LAZY_H_ */
