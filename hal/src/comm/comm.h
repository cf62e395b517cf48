/* comm.h: communicators, their lanes and works. Private to hal/src.
 *
 * A communicator has lanes, each a thread with a queue of jobs: lane 0 runs collectives in the order in which they were submitted, and
 * there is one more lane for each peer and direction of SEND and RECV, so that they wait for nothing but their own peer. A lane's thread
 * starts with its first job.
 *
 * A job moves host memory by the transport. Memory of a device that the host can touch is moved where it lies. Otherwise the job's operands
 * are copied to page-locked memory on the stream `in` when it is submitted, and its results back on the stream `out` when it is done: a
 * result never waits for the operands of a later job. */
#ifndef HAL_SRC_COMM_COMM_H_
#define HAL_SRC_COMM_COMM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "comm/collective.h"
#include "hal/comm.h"
#include "hal/event.h"

#define HAL_COMM_MESSAGE 1024 /* bytes of a failure's text, as of any error's */

/* A failure with its text, kept for all threads: the first one stays. `set` is written last. */
typedef struct hal_comm_failure_s {
  atomic_int set;
  hal_status_t status;
  char message[HAL_COMM_MESSAGE];
} hal_comm_failure_t;

/* One collective of a job, with copies of its arrays. */
typedef struct hal_comm_call_s {
  hal_collective_t on_host;        /* as the transport gets it */
  void *result;                    /* device memory that `staged_result` is copied to; NULL = none */
  void *staged, *staged_result;    /* page-locked memory, NULL where the device's own is used */
  uint64_t send_bytes, recv_bytes; /* spans from the first to the last byte */
  uint64_t scale[2];               /* a copy of the number */
} hal_comm_call_t;

typedef struct hal_comm_job_s {
  struct hal_comm_job_s *next;
  hal_comm_work_t *work;
  hal_event_t *ready; /* the operands are on the host */
  int64_t timeout_ns;
  uint64_t *arrays; /* of the calls */
  uint32_t count;
  hal_comm_call_t calls[];
} hal_comm_job_t;

typedef struct hal_comm_lane_s {
  hal_comm_t *comm;
  pthread_t thread;
  int started;
  hal_comm_job_t *first, **last;
} hal_comm_lane_t;

struct hal_comm_s {
  atomic_int references; /* of the owner and of works */
  int32_t device, rank, size;
  int direct; /* the transport may touch device memory */
  int64_t timeout_ns;
  hal_comm_transport_t transport;
  hal_stream_t *in, *out;
  hal_comm_failure_t failure;
  _Atomic uint64_t sequence;
  uint64_t brackets; /* that hal_comm_agree compared; of lane 0 */
  /* Under `lock`, as all lanes' queues are. `changed` wakes lanes, and who waits for a work. */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t pending; /* jobs that have not ended */
  int ending;
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
  char what[160];    /* "all_reduce #12 of group 'dp' (float32, 1024)", for messages */
  uint32_t jobs;     /* that have not ended; under the communicator's lock */
  atomic_int queued; /* all have ended: the copies of their results are queued */
  hal_comm_failure_t failure;
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

/* Compares a bracket of collectives with those of the other ranks. Errors: HAL_INVALID_ARGUMENT, on all ranks; those of the transport. */
hal_status_t hal_comm_agree(hal_comm_t *comm, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns);

/* ---- job.c ---- */

/* Creates a job of checked calls and queues the copies of their operands behind the work of `stream`. Destroyed by hal_comm_job_destroy. */
hal_status_t hal_comm_job_create(hal_comm_work_t *work, hal_stream_t *stream, const hal_collective_t *calls,
                                 uint32_t count, hal_comm_job_t **out_job);
void hal_comm_job_destroy(hal_comm_job_t *job);
/* Waits for the operands, runs the collectives, and queues the copies of their results. */
hal_status_t hal_comm_job_run(hal_comm_job_t *job);

/* ---- work.c ---- */

hal_status_t hal_comm_work_create(hal_comm_t *comm, int64_t timeout_ns, hal_comm_work_t **out_work);
/* Notes the end of one job, with the thread's message where `status` is a failure. After the last job of the work `done` runs. */
void hal_comm_work_finish(hal_comm_work_t *work, hal_status_t status);

/* ---- communicator.c ---- */

void hal_comm_failure_set(hal_comm_failure_t *failure, hal_status_t status);
/* Returns the failure as the thread's error, or HAL_OK. */
hal_status_t hal_comm_failure_get(hal_comm_failure_t *failure);
void hal_comm_release(hal_comm_t *comm);
/* Returns the time on CLOCK_MONOTONIC `ns` from now. */
struct timespec hal_comm_deadline(int64_t ns);

/* ---- lane.c ---- */

/* Queues the job on a lane; starts its thread if need be. */
hal_status_t hal_comm_lane_push(hal_comm_lane_t *lane, hal_comm_job_t *job);

#endif /* HAL_SRC_COMM_COMM_H_ */
