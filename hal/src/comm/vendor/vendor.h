/* vendor.h: the collectives library of a device's plugin (group COMM), used in addition to a communicator's transport.
 * Private to hal/src.
 *
 * The library gets its calls on the stream `out` of the communicator, in the order of hal_comm_submit. The calling
 * thread passes them. While jobs of lane 0 have not ended, a job after these passes them. A job of the transport reads
 * its operands when all work of `out` is done (LATE). So calls keep their order on both ways. The order is the same on
 * all ranks: the way of a call depends only on the call and on hal_comm_info_t, which the ranks have compared. SEND and
 * RECV use the library if the caller has promised their order (HAL_COMM_IS_ORDERED).
 *
 * One thread of the process (watch.c) watches the works of all libraries: their ends, deadlines, and failures. */
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
  hal_lock_t order;     /* held while calls are passed to the library or to a lane; guards the fields below */
  uint64_t sequence;    /* calls of the library so far */
  hal_event_t *ready;   /* the caller's stream has reached the calls */
  hal_event_t *tail;    /* end of `out`; used by lane 0, then by hal_comm_destroy */
  atomic_uint on_lane;  /* jobs of lane 0 that have not ended; incremented under `order` */
  atomic_int is_aborted;
  /* Works of the library whose end was not observed yet, in order; under the communicator's lock. Only the watch
   * removes works. */
  hal_comm_work_t *first, **last;
  /* For memory.c, under its lock; `registers` is set before the first collective. */
  int registers;
  uint32_t segment_count, segment_capacity;
  hal_comm_segment_t *segments;
  hal_comm_vendor_t *next_user;
  /* Under the watch's lock. */
  hal_comm_vendor_t *next;
  uint64_t round; /* number of the watch's last look */
  int is_looked_at;
  int strikes; /* consecutive looks in which the transport reported a failure; used by the watch */
};

/* ---- translate.c: a call as the library gets it ---- */

typedef struct hal_comm_words_s {
  hal_dtype_t dtype;
  uint32_t reduce;
  uint32_t factor; /* elements of `dtype` for each of the call's */
} hal_comm_words_t;

/* Returns whether the library supports a checked call, and in which form. SEND and RECV also need the promise of their
 * order. */
int hal_comm_vendor_lists(const hal_comm_info_t *info, const hal_collective_t *call, hal_comm_words_t *out_words);
/* Translates a call that the library lists. Writes arrays of counts in other elements to `*next`, which it advances. */
void hal_comm_vendor_translate(const hal_comm_t *comm, const hal_comm_info_t *info, const hal_collective_t *call,
                               hal_collective_t *out, uint64_t **next);

/* ---- submit.c ---- */

/* Queues the calls of a work, each to the library or to the transport. */
hal_status_t hal_comm_vendor_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                  uint32_t count);
/* Passes calls to the library, on the stream `out`. The caller holds `order`, or runs a job of lane 0. */
hal_status_t hal_comm_vendor_submit(hal_comm_vendor_t *vendor, const hal_collective_t *calls, uint32_t count);
/* Runs a job of kind VENDOR: passes its calls to the library. */
hal_status_t hal_comm_vendor_run(hal_comm_job_t *job);
/* Waits until the operands of a job of kind LATE may be read. */
hal_status_t hal_comm_vendor_wait_operands(hal_comm_job_t *job);

/* ---- compare.c ---- */

/* Compares the SEND and RECV of a job with those of their other ranks, which the library exchanges. Errors:
 * HAL_INVALID_ARGUMENT = they do not match, on both ranks; those of the library; the communicator's failure. */
hal_status_t hal_comm_vendor_compare_messages(hal_comm_job_t *job, const hal_collective_t *calls);

/* ---- watch.c ---- */

/* Starts and stops watching a communicator. After the stop, no thread of the watch uses it, and none of its works is
 * watched. */
hal_status_t hal_comm_watch_begin(hal_comm_vendor_t *vendor);
void hal_comm_watch_end(hal_comm_vendor_t *vendor);
/* Adds a work before the library gets a part of it. Its deadline counts from now on. Does nothing if the work was added
 * already. */
void hal_comm_watch_add(hal_comm_vendor_t *vendor, hal_comm_work_t *work);

/* ---- fail.c ---- */

/* Ends the library's communicator after the communicator's failure: fails the works that are not done, and aborts the
 * library. Runs once; any thread may call it. */
void hal_comm_vendor_abort(hal_comm_vendor_t *vendor);
/* Fails the communicator with the thread's message, on all ranks that the transport can reach. */
void hal_comm_vendor_fail(hal_comm_vendor_t *vendor, hal_status_t status);

/* ---- join.c ---- */

/* Waits at most `timeout_ns` until the library's and the transport's queued work is done. Returns whether it is. */
int hal_comm_vendor_drain(hal_comm_vendor_t *vendor, int64_t timeout_ns);
/* Frees the library's communicator: within `timeout_ns` together with the other ranks, else alone. */
void hal_comm_vendor_destroy(hal_comm_vendor_t *vendor, int64_t timeout_ns);

#endif /* HAL_SRC_COMM_VENDOR_H_ */
