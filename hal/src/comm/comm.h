/* comm.h: communicators, their lanes and works. Private to hal/src.
 *
 * A communicator has lanes. Each lane is a thread with a queue of jobs. Lane 0 runs collectives in the order of their
 * submission. SEND and RECV have one lane for each peer and direction, so that they wait only for their own peer. The
 * thread of a lane starts with its first job. One thread at a time runs the jobs of a lane. This is the lane's own
 * thread, or a thread that waits for a work whose caller allows it (HAL_COMM_WAITER_RUNS), which saves two thread
 * switches.
 *
 * A job passes host memory to the transport. If the host can access the device's memory, the transport uses this memory
 * directly. If the ranks share device memory (shm/device.h), the transport copies and reduces it on the device.
 * Otherwise the stream `in` copies the job's operands to page-locked memory at submission, and the stream `out` copies
 * the results back when the job is done. A result never waits for the operands of a later job.
 *
 * If a vendor's library runs collectives (vendor/vendor.h), lane 0 has few jobs: collectives that the library lacks,
 * and collectives of the library that follow an unfinished one of these. */
#ifndef HAL_SRC_COMM_COMM_H_
#define HAL_SRC_COMM_COMM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "comm/collective.h"
#include "hal/comm.h"
#include "hal/event.h"

#define HAL_COMM_MESSAGE 1024 /* bytes of a failure's text, as of any error's */
#define HAL_COMM_WHAT 224     /* bytes of a work's text */

/* A failure and its text, for all threads. Only the first failure is stored. `set` is written last. */
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

/* When a job's operands are copied to the host, and what runs the job. LATE, in lane 0 next to a vendor's library:
 * after all earlier collectives, which may write the operands. */
enum { HAL_COMM_JOB_STAGED, HAL_COMM_JOB_LATE, HAL_COMM_JOB_VENDOR };

typedef struct hal_comm_job_s {
  struct hal_comm_job_s *next; /* in the lane, or in the communicator's spare ones */
  hal_comm_work_t *work;
  int kind;           /* HAL_COMM_JOB_* */
  int is_on_device;   /* the transport moves device memory: nothing is staged */
  int follows;        /* HAL_COMM_FOLLOWS_*: its operands may be results of earlier jobs */
  uint64_t number;    /* among the jobs that order.c knows; 0 = none of them */
  hal_event_t *ready; /* the operands are on the host */
  int64_t timeout_ns;
  uint64_t *arrays; /* of the calls */
  uint32_t count;
  hal_comm_part_t calls[];
} hal_comm_job_t;

/* The communicator's lock guards all fields but `comm`. */
typedef struct hal_comm_lane_s {
  hal_comm_t *comm;
  pthread_t thread, runner; /* its own thread; the thread that runs a job while `busy` */
  pthread_cond_t changed;   /* wakes the lane's thread */
  int started, busy;
  int woken; /* the lane's thread runs the queued jobs */
  hal_comm_job_t *first, **last;
} hal_comm_lane_t;

/* What the operands of a job follow: nothing, copies of results that are queued already, or those that earlier jobs
 * have not queued yet. */
enum { HAL_COMM_FOLLOWS_NOTHING, HAL_COMM_FOLLOWS_QUEUED, HAL_COMM_FOLLOWS_LATER };

/* The results of a communicator's recent jobs: order.c. */
enum { HAL_COMM_RESULTS = 64 };
typedef struct hal_comm_order_s {
  struct {
    uintptr_t begin, end;
    uint64_t job;
  } results[HAL_COMM_RESULTS];
  uint32_t next;      /* the result that is replaced next */
  uint64_t jobs;      /* number of jobs */
  uint64_t queued;    /* the copies of the results of jobs up to this one are queued on `out` */
  uint64_t ordered;   /* work on `in` follows the results of jobs up to this one */
  uint64_t forgotten; /* the last job of which a result was replaced */
} hal_comm_order_t;

/* Works, and jobs of one call, that the next ones reuse with their events: drivers create events slowly. */
enum { HAL_COMM_SPARE = 32 };
typedef struct hal_comm_spare_s {
  hal_comm_work_t *works; /* linked by watched_next */
  hal_comm_job_t *jobs;
  uint32_t work_count, job_count; /* at most HAL_COMM_SPARE */
} hal_comm_spare_t;

/* Ends the waits of streams for a work (semaphore.c). */
typedef struct hal_comm_signal_s hal_comm_signal_t;

struct hal_comm_s {
  atomic_int references; /* held by the owner and by works */
  int32_t device, rank, size;
  int direct;   /* the transport may access device memory */
  int is_alone; /* one rank without a transport: alone.c */
  int64_t timeout_ns;
  hal_comm_transport_t transport;
  hal_stream_t *in, *out; /* from the device's pool */
  /* used instead of `out` if a library runs collectives: the library's work waits for other ranks, which may wait for
   * another communicator's work on the same stream. NULL = none */
  hal_stream_t *owned;
  struct hal_comm_vendor_s *vendor; /* the library's communicator; NULL = none. Set before the first collective */
  hal_comm_failure_t failure;
  _Atomic uint64_t sequence;
  _Atomic uint32_t log_group; /* 1 + the communicator's number in the log; 0 = none yet */
  uint64_t brackets;          /* brackets that hal_comm_agree has compared; used by lane 0 */
  /* Guarded by `lock`, as the queues of all lanes are. `ended` wakes the threads that wait for a work or for the end of
   * all works. */
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint64_t pending; /* jobs that have not ended */
  hal_comm_order_t order;
  int ending;
  hal_comm_signal_t *signals; /* not used by a work */
  hal_comm_spare_t spare;
  uint32_t lane_count;
  char name[64];
  hal_comm_lane_t lanes[]; /* 1 + 2 * size */
};

/* A stream that waits for a work of a vendor's library. */
typedef struct hal_comm_waiter_s {
  struct hal_comm_waiter_s *next;
  hal_stream_t *stream;
} hal_comm_waiter_t;

struct hal_comm_work_s {
  atomic_int references; /* held by the caller and by jobs */
  hal_comm_t *comm;
  hal_event_t *end;
  int64_t timeout_ns;
  hal_comm_done_fn_t done;
  void *user_data;
  hal_comm_lane_t *lane; /* lane of its only job; NULL: the work has several jobs, which threads of the HAL run */
  uint32_t flags;        /* HAL_COMM_WAITER_RUNS, _CALLER_WAITS, _IS_ORDERED */
  uint64_t log;          /* number of its log entry */
  uint64_t launch;       /* the profile's number for the call; 0 = no profile */
  uint64_t sequence;     /* the work's number in its group, as the caller counts */
  struct {
    uint64_t sequence, count;
    uint32_t op, calls, tag;
    int32_t peer;
    hal_dtype_t dtype;
  } what;            /* of the first call, for hal_comm_work_text */
  uint32_t jobs;     /* jobs that have not ended; under the communicator's lock */
  atomic_int queued; /* all jobs have ended: the copies of their results are queued */
  int is_recorded;   /* recorded in a program, whose runs submit the collectives: there is nothing to wait for */
  /* Used for a vendor's library (vendor/watch.c). */
  atomic_int is_watched; /* the library has a part of the work, and its end was not observed yet */
  int64_t deadline_ns;
  uint64_t position; /* on `out`, among the works of the library (failure.h) */
  hal_comm_work_t *watched_next;
  hal_comm_waiter_t *waiters; /* streams that wait for it; under the communicator's lock */
  hal_comm_signal_t *signal;  /* set under the lock, before `queued`; NULL = no stream waits without the host */
  hal_comm_failure_t failure; /* the last field, because its text is not cleared */
};

/* ---- order.c ---- */

/* Adds a job of collectives, whose calls are not staged yet, and sets what it follows. */
void hal_comm_order_add(hal_comm_t *comm, hal_comm_job_t *job);
/* Makes work on `in` follow the copies of results that are queued on `out`. */
hal_status_t hal_comm_order_follow(hal_comm_t *comm);
/* The copies of a job's results are queued. */
void hal_comm_order_queued(hal_comm_t *comm, const hal_comm_job_t *job);

/* ---- check.c ---- */

/* Checks one call without other ranks. Errors: HAL_INVALID_ARGUMENT, HAL_UNIMPLEMENTED, HAL_OUT_OF_RANGE, with the
 * operator and the value. */
hal_status_t hal_comm_check(const hal_comm_t *comm, const hal_collective_t *call);
/* Returns the spans of memory in bytes that a checked call reads and writes on this rank. */
uint64_t hal_comm_send_bytes(const hal_comm_t *comm, const hal_collective_t *call);
uint64_t hal_comm_recv_bytes(const hal_comm_t *comm, const hal_collective_t *call);
/* Returns a number that is equal on ranks whose calls match. */
uint64_t hal_comm_fingerprint(const hal_comm_t *comm, const hal_collective_t *call);

/* ---- agree.c ---- */

/* Compares a bracket of collectives, without its SEND and RECV, with the brackets of the other ranks. Errors:
 * HAL_INVALID_ARGUMENT, on all ranks; those of the transport. */
hal_status_t hal_comm_compare(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);
/* Compares the calls that the transport runs next. Does nothing if the transport compares calls itself. */
hal_status_t hal_comm_agree(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);

/* ---- message.c ---- */

/* Runs a SEND or RECV by a transport. If the transport does not compare calls, a header precedes the message.
 * Errors: HAL_INVALID_ARGUMENT = the receiver has found that they do not match; those of the transport. */
hal_status_t hal_comm_run_message(const hal_comm_transport_t *transport, int32_t rank, const hal_collective_t *call,
                                  int64_t timeout_ns);

/* ---- copy.c ---- */

/* Returns how many numbers the arrays of checked calls have. */
uint64_t hal_comm_array_numbers(const hal_comm_t *comm, const hal_collective_t *calls, uint32_t count);
/* Copies a checked call to a zeroed one. Writes its arrays to `*next`, which it advances, and its factor to 16 bytes at
 * `scale`. */
void hal_comm_copy_call(const hal_comm_t *comm, const hal_collective_t *from, hal_collective_t *to, uint64_t **next,
                        void *scale);

/* ---- job.c ---- */

/* Creates a job of checked calls. For the kind HAL_COMM_JOB_STAGED, queues the copies of their operands after the work
 * of `stream`. hal_comm_job_destroy frees the job. */
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
/* Queues checked calls as copies, after the work of `stream`. */
hal_status_t hal_comm_alone_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count);

/* ---- spare.c ---- */

/* Returns a work with an event and one reference, or a job of one call with an event, and zeroed fields. NULL: none is
 * spare. */
hal_comm_work_t *hal_comm_spare_take_work(hal_comm_t *comm);
hal_comm_job_t *hal_comm_spare_take_job(hal_comm_t *comm);
/* Keeps a work or job for later, or frees it. */
void hal_comm_spare_put_work(hal_comm_t *comm, hal_comm_work_t *work);
void hal_comm_spare_put_job(hal_comm_t *comm, hal_comm_job_t *job);
/* Frees all. No other thread uses the communicator. */
void hal_comm_spare_destroy(hal_comm_t *comm);

/* ---- work.c ---- */

hal_status_t hal_comm_work_create(hal_comm_t *comm, int64_t timeout_ns, hal_comm_work_t **out_work);
/* Writes "all_reduce #12 of group 'dp' (rank 0 of 2, float32, 1024 elements)", and returns it. */
const char *hal_comm_work_text(const hal_comm_work_t *work, char text[HAL_COMM_WHAT]);
/* Records the end of jobs, with the thread's message if `status` is a failure. `done` runs after the last job of the
 * work. */
void hal_comm_work_finish(hal_comm_work_t *work, uint32_t jobs, hal_status_t status);

/* Records a failure of a work for a stream that waits for it. A failure of the group is not one of the device, and the
 * stream's work is done: HAL_UNAVAILABLE and HAL_NOT_READY are replaced by HAL_ABORTED. The thread has the message. */
void hal_comm_work_fail_stream(hal_stream_t *stream, hal_status_t status);

/* Wakes the lane's thread if the submission did not wake it. The submission omits this if the caller announces a wait;
 * call this if the caller does not wait now. */
void hal_comm_work_start(const hal_comm_work_t *work);

/* ---- communicator.c ---- */

void hal_comm_failure_set(hal_comm_failure_t *failure, hal_status_t status);
/* Returns the failure as the thread's error, or HAL_OK. */
hal_status_t hal_comm_failure_get(hal_comm_failure_t *failure);
void hal_comm_release(hal_comm_t *comm);
/* Shares device memory among the ranks if the host cannot access it, so that the transport moves it (shm/device.h). */
hal_status_t hal_comm_share_device(hal_comm_t *comm, int64_t timeout_ns);
/* For the vendor's library, while the submission counts as one of the work's jobs: queues collectives of the transport.
 * Consecutive calls without SEND and RECV are one job. Each SEND and RECV is one job of its own lane. */
hal_status_t hal_comm_push_all(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                               uint32_t count);
/* Queues calls as one job of a kind. LATE and VENDOR jobs belong to lane 0. */
hal_status_t hal_comm_push(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                           int kind);
/* Returns the time on CLOCK_MONOTONIC `ns` from now. */
struct timespec hal_comm_deadline(int64_t ns);

/* ---- event_wait.c ---- */

/* Returns HAL_OK, HAL_NOT_READY or the plugin's error, without a message. Does not return a failure of the stream,
 * which the stream's user gets. */
hal_status_t hal_comm_event_poll(const hal_event_t *event);
/* Waits on the host for an event, at most `timeout_ns`, and only until `failure` (NULL: none) is set. `what`: for the
 * message. Does not return a failure of the stream, which the stream's user gets. Errors: HAL_NOT_READY = the time is
 * over; the failure. */
hal_status_t hal_comm_event_await(const hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure,
                                  const char *what);
/* Does the same, and returns a failure of the stream, as hal_event_synchronize does. */
hal_status_t hal_comm_event_wait(hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure, const char *what);

/* ---- record.c ---- */

/* Records checked calls if the stream records a program, whose runs submit them. HAL_NOT_READY, without a message: the
 * stream does not record, and its deferred work was launched. */
hal_status_t hal_comm_record(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count,
                             int64_t timeout_ns);

/* ---- profile.c ---- */

/* Begins a submission in the running profile. Returns its number, for hal_comm_profile_end_call on the same thread; 0 =
 * no profile. */
uint64_t hal_comm_profile_begin(void);
void hal_comm_profile_end_call(uint64_t launch);
/* Adds the record of a job that has run, before its work ends. */
void hal_comm_profile_add(const hal_comm_job_t *job, int64_t start_ns, int64_t end_ns);
/* The record of collectives that a vendor's library runs. Functions of the host on the communicator's stream take its
 * times: `begin` before the calls are queued, `end` after that, also if they were refused. NULL = no record: no profile
 * is running, or the plugin has no stream_host_call. */
typedef struct hal_comm_row_s hal_comm_row_t;
hal_comm_row_t *hal_comm_profile_begin_row(const hal_comm_work_t *work, const hal_collective_t *calls, uint32_t count);
void hal_comm_profile_end_row(hal_comm_row_t *row);

/* ---- semaphore.c ---- */

/* Ends the waits of streams for a work that has ended: its jobs have run, and what they queued is on the stream `out`.
 * The caller holds no lock. */
void hal_comm_signal_raise(hal_comm_work_t *work);
/* Records a later failure of a vendor's library for these streams. The caller holds the communicator's lock. */
void hal_comm_signal_fail(const hal_comm_work_t *work, hal_status_t status);
/* Returns whether the stream waits for the work without the host. */
int hal_comm_signal_holds(const hal_comm_work_t *work, const hal_stream_t *stream);
/* Returns the signal of a work to the communicator, before the work is freed. */
void hal_comm_signal_release(hal_comm_work_t *work);
void hal_comm_signals_destroy(hal_comm_t *comm);

/* ---- lane.c ---- */

void hal_comm_lanes_init(hal_comm_t *comm, uint32_t count);
/* Queues the job on a lane. Starts the lane's thread if necessary, and wakes it unless the work's caller is about to
 * wait. */
hal_status_t hal_comm_lane_push(hal_comm_lane_t *lane, hal_comm_job_t *job);
/* Runs jobs of the work's lane on the calling thread, up to the job of the work. Stops if another thread runs the lane,
 * or if a job's work does not allow it. */
void hal_comm_lane_help(hal_comm_work_t *work);
/* Called in `done` of a work: runs later jobs of its lane on the calling thread, up to the job of `work`. No other
 * thread can run them, because the lane stays busy. */
void hal_comm_lane_resume(hal_comm_work_t *work);
/* Wakes the threads of all lanes that have jobs which no thread runs. */
void hal_comm_lanes_wake(hal_comm_t *comm);
/* Waits until the lanes have run their last jobs, and ends the lanes. */
void hal_comm_lanes_end(hal_comm_t *comm);
void hal_comm_lanes_destroy(hal_comm_t *comm);

#endif /* HAL_SRC_COMM_COMM_H_ */
