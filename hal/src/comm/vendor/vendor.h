/* vendor.h: the collectives library of a device's plugin (group COMM) beside a communicator's transport. Private to
 * hal/src/comm.
 *
 * The library gets its calls on the stream `out` of the communicator, in the order of hal_comm_submit: on the calling
 * thread, or, while jobs of lane 0 have not ended, by a job behind them. A job of the transport in turn reads its
 * operands when all of `out` is done (LATE). So the order is that of the calls on both ways, and it is the same on all
 * ranks, since the way of a call follows from the call and hal_comm_info_t alone, which the ranks have compared. SEND
 * and RECV go to the library where the caller has promised their order (HAL_COMM_IS_ORDERED).
 *
 * One thread of the process (watch.c) looks after the works of all libraries: their ends, deadlines, and failures. */
#ifndef HAL_SRC_COMM_VENDOR_H_
#define HAL_SRC_COMM_VENDOR_H_

#include "base/callback.h"
#include "comm/comm.h"
#include "plugin/plugin.h"

typedef struct hal_comm_vendor_s hal_comm_vendor_t;
typedef struct hal_comm_segment_s hal_comm_segment_t; /* memory.c */
struct hal_comm_vendor_s {
  hal_comm_t *comm;
  hal_plugin_t *plugin;
  hal_plugin_comm_t *handle;
  hal_comm_info_t info; /* the same on all ranks */
  uint32_t flags;       /* HAL_COMM_COMPARE_CALLS, HAL_COMM_REGISTER_MEMORY */
  hal_lock_t order;     /* held while calls are given to the library or to a lane; guards what follows */
  uint64_t sequence;    /* calls of the library */
  hal_event_t *ready;   /* the caller's stream has come to the calls */
  hal_event_t *tail;    /* of `out`: of lane 0, then of hal_comm_destroy */
  atomic_uint on_lane;  /* jobs of lane 0 that have not ended; raised under `order` */
  atomic_int is_aborted;
  /* Works of the library whose end was not seen yet, in their order; under the communicator's lock. Only the watch
   * takes works out. */
  hal_comm_work_t *first, **last;
  /* Of memory.c, under its lock; `registers` is set before the first collective. */
  int registers;
  uint32_t segment_count, segment_room;
  hal_comm_segment_t *segments;
  hal_comm_vendor_t *next_user;
  /* Under the watch's lock. */
  hal_comm_vendor_t *next;
  uint64_t round; /* of the watch's last look */
  int is_looked_at;
  int strikes; /* looks in a row at which the transport reported a failure; of the watch */
};

/* ---- translate.c: a call in the library's words ---- */

typedef struct hal_comm_words_s {
  hal_dtype_t dtype;
  uint32_t reduce;
  uint32_t factor; /* elements of `dtype` for each of the call's */
} hal_comm_words_t;

/* Returns whether the library runs a checked call, and in which words. SEND and RECV: if their order is the
 * library's. */
int hal_comm_vendor_lists(const hal_comm_info_t *info, const hal_collective_t *call, hal_comm_words_t *out_words);
/* Translates a call that the library lists. Arrays of counts in other elements go to `*room`, which moves on. */
void hal_comm_vendor_translate(const hal_comm_t *comm, const hal_comm_info_t *info, const hal_collective_t *call,
                               hal_collective_t *out, uint64_t **room);

/* ---- submit.c ---- */

/* Queues the calls of a work, each to the library or to the transport. */
hal_status_t hal_comm_vendor_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                  uint32_t count);
/* Runs a job of kind VENDOR: gives its calls to the library. */
hal_status_t hal_comm_vendor_run(hal_comm_job_t *job);
/* Waits until the operands of a job of kind LATE may be read. */
hal_status_t hal_comm_vendor_settle(hal_comm_job_t *job);

/* ---- watch.c ---- */

/* Starts and ends looking after a communicator. After the end no thread of the watch uses it, and none of its works is
 * watched. */
hal_status_t hal_comm_watch_begin(hal_comm_vendor_t *vendor);
void hal_comm_watch_end(hal_comm_vendor_t *vendor);
/* Adds a work of which the library is about to get a part. Its deadline counts from now on. Nothing happens for one
 * that was added. */
void hal_comm_watch_add(hal_comm_vendor_t *vendor, hal_comm_work_t *work);

/* ---- fail.c ---- */

/* Ends the library's communicator after the communicator's failure: works that are not done fail with it, and the
 * library is told. Once; any thread. */
void hal_comm_vendor_abort(hal_comm_vendor_t *vendor);
/* Fails the communicator with the thread's message, on all ranks as far as the transport can tell them. */
void hal_comm_vendor_fail(hal_comm_vendor_t *vendor, hal_status_t status);

/* ---- join.c ---- */

/* Waits at most `timeout_ns` until the library's and the transport's queued work is done. Returns whether it is. */
int hal_comm_vendor_drain(hal_comm_vendor_t *vendor, int64_t timeout_ns);
/* Frees the library's communicator: within `timeout_ns` together with the other ranks, else alone. */
void hal_comm_vendor_destroy(hal_comm_vendor_t *vendor, int64_t timeout_ns);

#endif /* HAL_SRC_COMM_VENDOR_H_ */
