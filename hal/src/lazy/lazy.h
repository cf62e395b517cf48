/* lazy.h: a lazy queue, as the files of this component share it. Private to hal/src. */
#ifndef HAL_SRC_LAZY_LAZY_H_
#define HAL_SRC_LAZY_LAZY_H_

#include <pthread.h>
#include <stddef.h>

#include "capture/program.h"
#include "compile/ir.h"
#include "fusion/access.h"
#include "fusion/fuse.h"
#include "hal/lazy.h"
#include "lazy/schedule.h"

/* Bytes that a recorded copy reads: they live until it is done. */
typedef struct hal_upload_s {
  struct hal_upload_s *next;
  max_align_t bytes[];
} hal_upload_t;

#define HAL_LAZY_SEEN 32

/* The last operators of the tape that ran as they were recorded, by one launch each: in a ring. */
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

struct hal_lazy_s {
  hal_recording_t front; /* first: a lazy queue is its recording */
  hal_program_t program; /* what is recorded now is its tape */
  /* What each operator asks, side by side. */
  uint64_t families,
      told; /* of operators that may belong to groups; of these, whose launches define their memory accesses */
  atomic_uint_fast64_t settled; /* operators that were recorded when the last tape was taken */
  hal_programs_t *programs;     /* of the device's compiler; NULL = it has none */
  uint32_t first, due; /* operators of the smallest piece; behind which queueing may be due: that, or the limit */
  int shows;           /* calls are described, or compiled */
  hal_lazy_desc_t desc;
  hal_tape_observer_t observer;   /* calls the description's `compiled` */
  hal_lock_t queueing;            /* of all that follows: held while a tape is queued, in the order of recording */
  hal_tape_t tape;                /* that is queued */
  hal_upload_t *uploads, *queued; /* of what is recorded, under the program's lock; of what is queued */
  hal_fuse_t *fuse;               /* of the device */
  hal_accesses_t accesses;        /* of `tape` */
  hal_lazy_seen_t seen;
  hal_schedules_t schedules;
  atomic_uint_fast64_t look; /* at so many operators the device is asked again whether it has done all */
  atomic_int asynchronous;   /* 1 = it was seen to work while others go on */
  hal_lazy_info_t info;      /* counts; of `queueing` */
  hal_memory_pool_t
      *scratch; /* of the plugin's operators: what is free of the stream's memory may hold what the tape still reads */
  int warned;
  hal_lazy_failure_t failure; /* of the last flush that failed */
  atomic_uint calls;          /* of the description's functions, due or running; they keep `desc` (listener.c) */
};

static inline hal_lazy_t *hal_lazy_of(hal_queue_t *queue) { return (hal_lazy_t *)queue; }

/* Returns the queue of its stream that calls the plugin. */
static inline hal_queue_t *hal_lazy_direct(hal_lazy_t *lazy) { return &lazy->program.stream->direct.queue; }

/* Launches the deferred work, since something needs it. */
hal_status_t hal_lazy_flush_for(hal_queue_t *queue, const char *what);

/* Sets the functions of a lazy queue that give their work to the plugin (direct.c). */
void hal_lazy_pass_on(hal_queue_calls_t *calls);

/* Queues `lazy->tape` (flush.c). `queueing` is held. Errors: the plugin's; `lazy->failure` completes its message (hal_lazy_failed). */
hal_status_t hal_lazy_queue_tape(hal_lazy_t *lazy);

/* Completes the message of a flush that failed. No HAL lock is held. Returns the status for the caller that triggered the flush. */
hal_status_t hal_lazy_failed(const hal_lazy_desc_t *desc, const hal_lazy_failure_t *failure, hal_status_t status);

/* ---- listener.c ---- */

/* Keeps `desc` until hal_lazy_let_go. `queueing` is held. */
void hal_lazy_hold(hal_lazy_t *lazy);
void hal_lazy_let_go(hal_lazy_t *lazy);

/* Takes the lock `queueing` when nothing holds `desc`. No HAL lock is held. */
void hal_lazy_lock_quiet(hal_lazy_t *lazy);

/* Writes where the caller of an operator was: as it is described, or its number, also where this thread holds a lock (it defers
 * callbacks); "" where that is unknown. */
void hal_lazy_describe(const hal_lazy_desc_t *desc, uint64_t origin, char *text, size_t room);

/* Sets the observer that calls the description's `compiled` as a callback. `queueing` is held. */
void hal_lazy_observe(hal_lazy_t *lazy);

/* Returns it; NULL = the description has no `compiled`. */
static inline hal_tape_observer_t *hal_lazy_observer(hal_lazy_t *lazy) {
  return lazy->observer.compiled ? &lazy->observer : NULL;
}

/* Calls the description's `queueing` for `lazy->tape` as a callback. `queueing` is held. */
void hal_lazy_tell_queueing(hal_lazy_t *lazy, const char *cause);

/* Queues copies of the results of the operator of one command where that of another has its own. Errors: the plugin's. */
hal_status_t hal_lazy_copy(hal_lazy_t *lazy, uint32_t number, uint32_t earlier);

/* Copies the results of an operator that has computed what a command of `lazy->tape` would compute (cse.c). `*out_done` = 0: there is none, and
 * the command is to be queued. `queueing` is held. Errors: the plugin's. */
hal_status_t hal_lazy_share(hal_lazy_t *lazy, uint32_t number, int *out_done);

#endif /* HAL_SRC_LAZY_LAZY_H_ */
