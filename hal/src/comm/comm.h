/* comm.h: communicators, their lanes and works. Private to hal/src.
 *
 * A communicator has lanes, each a thread with a queue of jobs: lane 0 runs collectives in the order in which they were
 * submitted, and there is one more lane for each peer and direction of SEND and RECV, so that they wait for nothing but
 * their own peer. A lane's thread starts with its first job. One thread at a time runs the jobs of a lane: its own, or
 * one that waits for a work whose caller allows it (HAL_COMM_WAITER_RUNS), which saves two changes of threads.
 *
 * A job moves host memory by the transport. Memory of a device that the host can touch is moved where it lies.
 * Otherwise the job's operands are copied to page-locked memory on the stream `in` when it is submitted, and its
 * results back on the stream `out` when it is done: a result never waits for the operands of a later job.
 *
 * Where a vendor's library runs collectives (vendor/vendor.h), jobs of lane 0 are rare: collectives that the library
 * lacks, and those of the library that come after them and are not done yet. */
#ifndef HAL_SRC_COMM_COMM_H_
#define HAL_SRC_COMM_COMM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "comm/collective.h"
#include "hal/comm.h"
#include "hal/event.h"

#define HAL_COMM_MESSAGE 1024 /* bytes of a failure's text, as of any error's */
#define HAL_COMM_WHAT 160     /* bytes of a work's text */

/* A failure with its text, kept for all threads: the first one stays. `set` is written last. */
typedef struct hal_comm_failure_s {
  atomic_int set;
  hal_status_t status;
  char message[HAL_COMM_MESSAGE];
} hal_comm_failure_t;

/* Flags of a work that concern the thread that runs it. */
#define HAL_COMM_RUN_FLAGS (HAL_COMM_WAITER_RUNS | HAL_COMM_CALLER_WAITS)

/* One collective of a job, with copies of its arrays. */
typedef struct hal_comm_part_s {
  hal_collective_t on_host;        /* as the transport gets it */
  void *result;                    /* device memory that `staged_result` is copied to; NULL = none */
  void *staged, *staged_result;    /* page-locked memory, NULL where the device's own is used */
  uint64_t send_bytes, recv_bytes; /* spans from the first to the last byte */
  uint64_t scale[2];               /* a copy of the number */
} hal_comm_part_t;

/* When a job's operands are copied to the host, and who runs it. LATE, of lane 0 beside a vendor's library: when all
 * earlier collectives are done, which may write them. */
enum { HAL_COMM_JOB_STAGED, HAL_COMM_JOB_LATE, HAL_COMM_JOB_VENDOR };

typedef struct hal_comm_job_s {
  struct hal_comm_job_s *next;
  hal_comm_work_t *work;
  int kind;           /* HAL_COMM_JOB_* */
  hal_event_t *ready; /* the operands are on the host */
  int64_t timeout_ns;
  uint64_t *arrays; /* of the calls */
  uint32_t count;
  hal_comm_part_t calls[];
} hal_comm_job_t;

/* All but `comm` under the communicator's lock. */
typedef struct hal_comm_lane_s {
  hal_comm_t *comm;
  pthread_t thread, runner; /* its own; the one that runs a job while `busy` */
  pthread_cond_t changed;   /* wakes its thread */
  int started, busy;
  int woken; /* its thread is to run the jobs that are queued */
  hal_comm_job_t *first, **last;
} hal_comm_lane_t;

/* What ends the waits of streams for a work: semaphore.c. */
typedef struct hal_comm_signal_s hal_comm_signal_t;

struct hal_comm_s {
  atomic_int references; /* of the owner and of works */
  int32_t device, rank, size;
  int direct;   /* the transport may touch device memory */
  int is_alone; /* one rank without a transport: alone.c */
  int64_t timeout_ns;
  hal_comm_transport_t transport;
  hal_stream_t *in, *out; /* of the device's pool */
  hal_stream_t *owned; /* in place of `out` where a library runs collectives: its work waits for other ranks, and work
                           * of another communicator on the same stream could be what they wait for. NULL = none */
  struct hal_comm_vendor_s *vendor; /* the library's communicator; NULL = none. Set before the first collective */
  hal_comm_failure_t failure;
  _Atomic uint64_t sequence;
  _Atomic uint32_t log_group; /* 1 + its number in the log; 0 = none yet */
  uint64_t brackets;          /* that hal_comm_agree compared; of lane 0 */
  /* Under `lock`, as all lanes' queues are. `ended` wakes the threads that wait for a work, or for the end of all. */
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint64_t pending; /* jobs that have not ended */
  int ending;
  hal_comm_signal_t *signals; /* that no work uses */
  uint32_t lane_count;
  char name[64];
  hal_comm_lane_t lanes[]; /* 1 + 2 * size */
};

struct hal_comm_work_s {
  atomic_int references; /* of the caller and of jobs */
  hal_comm_t *comm;
  hal_event_t *end;
  int64_t timeout_ns;
  hal_comm_done_fn_t done;
  void *user_data;
  hal_comm_lane_t *lane; /* of its only job; NULL: it has several, which threads of the HAL run */
  uint32_t flags;        /* HAL_COMM_WAITER_RUNS, _CALLER_WAITS, _IS_ORDERED */
  uint64_t log;          /* number of its entry */
  uint64_t launch;       /* the profile's number for the call; 0 = no profile */
  uint64_t sequence;     /* the work's number in its group, as the caller counts */
  struct {
    uint64_t sequence, count;
    uint32_t op, calls;
    hal_dtype_t dtype;
  } what;            /* of the first call, for hal_comm_work_text */
  uint32_t jobs;     /* that have not ended; under the communicator's lock */
  atomic_int queued; /* all have ended: the copies of their results are queued */
  int is_recorded;   /* in a program, whose runs submit the collectives: there is nothing to wait for */
  /* Of a vendor's library (vendor/watch.c). */
  atomic_int is_watched; /* the library has a part of it, whose end was not seen yet */
  int64_t deadline_ns;
  hal_comm_work_t *watched_next;
  hal_comm_failure_t failure;
  hal_comm_signal_t *signal; /* set under the lock, before `queued`; NULL = no stream waits without the host */
};

/* ---- check.c ---- */

/* Checks one call by itself. Errors: HAL_INVALID_ARGUMENT, HAL_UNIMPLEMENTED, HAL_OUT_OF_RANGE, with the operator and the value. */
hal_status_t hal_comm_check(const hal_comm_t *comm, const hal_collective_t *call);
/* Returns the spans of memory in bytes that a checked call reads and writes on this rank. */
uint64_t hal_comm_send_bytes(const hal_comm_t *comm, const hal_collective_t *call);
uint64_t hal_comm_recv_bytes(const hal_comm_t *comm, const hal_collective_t *call);
/* Returns a number that ranks whose calls match have in common. */
uint64_t hal_comm_fingerprint(const hal_comm_t *comm, const hal_collective_t *call);

/* ---- agree.c ---- */

/* Compares a bracket of collectives with those of the other ranks, but for its SEND and RECV. Errors:
 * HAL_INVALID_ARGUMENT, on all ranks; those of the transport. */
hal_status_t hal_comm_compare(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);
/* The same for what the transport is about to run: nothing where it compares calls itself. */
hal_status_t hal_comm_agree(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);

/* ---- message.c ---- */

/* Runs a SEND or RECV by a transport, with a header in front of it where the transport does not compare calls itself.
 * Errors: HAL_INVALID_ARGUMENT = the receiver has found that they do not match; those of the transport. */
hal_status_t hal_comm_run_message(const hal_comm_transport_t *transport, int32_t rank, const hal_collective_t *call,
                                  int64_t timeout_ns);

/* ---- copy.c ---- */

/* Returns how many numbers the arrays of checked calls have. */
uint64_t hal_comm_array_numbers(const hal_comm_t *comm, const hal_collective_t *calls, uint32_t count);
/* Copies a checked call to a zeroed one: its arrays to `*room`, which moves on, and its factor to 16 bytes at `scale`. */
void hal_comm_copy_call(const hal_comm_t *comm, const hal_collective_t *from, hal_collective_t *to, uint64_t **room,
                        void *scale);

/* ---- job.c ---- */

/* Creates a job of checked calls and, of kind HAL_COMM_JOB_STAGED, queues the copies of their operands behind the work
 * of `stream`. Destroyed by hal_comm_job_destroy. */
hal_status_t hal_comm_job_create(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count, int kind, hal_comm_job_t **out_job);
void hal_comm_job_destroy(hal_comm_job_t *job);
/* Waits for the operands, runs the collectives, and queues the copies of their results. */
hal_status_t hal_comm_job_run(hal_comm_job_t *job);

/* ---- alone.c ---- */

/* Returns the transport of a group of one rank. */
hal_comm_transport_t hal_comm_alone_transport(hal_comm_t *comm);
/* Returns whether hal_comm_alone_push runs checked calls. */
int hal_comm_alone_copies(const hal_comm_t *comm, const hal_collective_t *calls, uint32_t count);
/* Queues the copies that checked calls are, behind the work of `stream`. */
hal_status_t hal_comm_alone_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count);

/* ---- work.c ---- */

hal_status_t hal_comm_work_create(hal_comm_t *comm, int64_t timeout_ns, hal_comm_work_t **out_work);
/* Writes "all_reduce #12 of group 'dp' (rank 0 of 2, float32, 1024 elements)", and returns it. */
const char *hal_comm_work_text(const hal_comm_work_t *work, char text[HAL_COMM_WHAT]);
/* Notes the end of jobs, with the thread's message where `status` is a failure. After the last job of the work `done`
 * runs. */
void hal_comm_work_finish(hal_comm_work_t *work, uint32_t jobs, hal_status_t status);

/* Wakes the lane's thread where the submission did not, since its caller was to wait: it does not wait now. */
void hal_comm_work_start(const hal_comm_work_t *work);

/* ---- communicator.c ---- */

void hal_comm_failure_set(hal_comm_failure_t *failure, hal_status_t status);
/* Returns the failure as the thread's error, or HAL_OK. */
hal_status_t hal_comm_failure_get(hal_comm_failure_t *failure);
void hal_comm_release(hal_comm_t *comm);
/* For the vendor's library, while the submission has a share of the work's jobs: queues collectives of the transport;
 * runs of calls without SEND and RECV are one job, each SEND and RECV is one of its own lane. */
hal_status_t hal_comm_push_all(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                               uint32_t count);
/* Queues calls as one job of a kind; LATE and VENDOR are of lane 0. */
hal_status_t hal_comm_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                           int kind);
/* Returns the time on CLOCK_MONOTONIC `ns` from now. */
struct timespec hal_comm_deadline(int64_t ns);

/* ---- event_wait.c ---- */

/* Returns HAL_OK or HAL_NOT_READY, or the plugin's error, without a message. A failure of the stream is left to the
 * stream's user. */
hal_status_t hal_comm_event_poll(const hal_event_t *event);
/* Waits on the host for an event, at most `timeout_ns`, and no longer than until `failure` (NULL: none) is set. `what`:
 * for the message. A failure of the stream is left to the stream's user. Errors: HAL_NOT_READY = the time is over; the
 * failure. */
hal_status_t hal_comm_event_await(const hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure,
                                  const char *what);
/* The same, and returns a failure of the stream, as hal_event_synchronize. */
hal_status_t hal_comm_event_wait(hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure, const char *what);

/* ---- record.c ---- */

/* Records checked calls where the stream records a program, whose runs submit them. HAL_NOT_READY, without a message: it does not, and deferred work
 * of the stream was launched. */
hal_status_t hal_comm_record(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                             int64_t timeout_ns);

/* ---- profile.c ---- */

/* Begins a submission in the running profile: returns its number, which hal_comm_profile_end_call takes on the same thread; 0 = no profile. */
uint64_t hal_comm_profile_begin(void);
void hal_comm_profile_end_call(uint64_t launch);
/* Adds the record of a job that has run, before its work ends. */
void hal_comm_profile_add(const hal_comm_job_t *job, int64_t start_ns, int64_t end_ns);

/* ---- semaphore.c ---- */

/* Ends the waits of streams for a work that has ended. No lock is held. */
void hal_comm_signal_raise(hal_comm_work_t *work);
/* Gives the signal of a work that is about to be freed back to the communicator. */
void hal_comm_signal_release(hal_comm_work_t *work);
void hal_comm_signals_destroy(hal_comm_t *comm);

/* ---- lane.c ---- */

void hal_comm_lanes_init(hal_comm_t *comm, uint32_t count);
/* Queues the job on a lane; starts its thread if need be, and wakes it unless the work's caller is about to wait. */
hal_status_t hal_comm_lane_push(hal_comm_lane_t *lane, hal_comm_job_t *job);
/* Runs jobs of the work's lane on the calling thread, up to that of the work, as far as no other thread does and their
 * works allow it. */
void hal_comm_lane_help(hal_comm_work_t *work);
/* In `done` of a work: runs later jobs of its lane on the calling thread, up to that of `work`. No other thread can,
 * since the lane stays busy. */
void hal_comm_lane_resume(hal_comm_work_t *work);
/* Wakes the threads of all lanes that have jobs which no thread runs. */
void hal_comm_lanes_wake(hal_comm_t *comm);
/* Ends the lanes after their last jobs, and waits for that. */
void hal_comm_lanes_end(hal_comm_t *comm);
void hal_comm_lanes_destroy(hal_comm_t *comm);

#endif /* HAL_SRC_COMM_COMM_H_ */
