/* comm.h: communicators of the whole plugin. The ranks of a communicator share an unnamed file, the shared region,
 * which the process that created the id creates and the others open through /proc: comm_room.c. It contains a ring
 * of bytes for each pair of ranks, and each collective is a set of transfers through these rings: comm_transfer.c.
 * comm.c has the communicators' creation and destruction, comm_calls.c the calls, comm_reduce.c the numbers,
 * comm_divide.c splitting, shrinking and registered memory. */
#ifndef TEST_CTS_WHOLE_COMM_H_
#define TEST_CTS_WHOLE_COMM_H_

#include <pthread.h>
#include <stdatomic.h>

#include "whole.h"

enum { COMM_RANKS = 8, COMM_RING = 1 << 16, COMM_RECORDS = 4, COMM_TEXT = 160 };

/* The contents of the bytes of comm_unique_id. */
typedef struct comm_id_s {
  uint32_t magic;
  int32_t pid, file; /* of the process that created it */
  uint32_t reserved;
  uint64_t nonce; /* of the shared region: the number of a file is reused */
} comm_id_t;

/* ---- state shared by the ranks ---- */

typedef struct comm_ring_s { /* counts of bytes; the next one is at count % COMM_RING */
  _Atomic uint64_t written, read;
  uint8_t bytes[COMM_RING];
} comm_ring_t;

typedef struct comm_record_s { /* the request of a rank when a communicator is divided */
  _Atomic uint64_t number;     /* of the division, from 1 on */
  int32_t color, key;
  comm_id_t id; /* of the new communicator, if this rank becomes its first */
} comm_record_t;

enum { ROOM_WAITING, ROOM_COMPLETE, ROOM_GIVEN_UP };

typedef struct comm_room_s {
  uint64_t nonce;
  _Atomic int32_t size, joined,
      state;                  /* size: 0 until the first rank arrives. state: ROOM_*, which is the same for each rank */
  _Atomic int32_t aborted_by; /* rank + 1; then `reason` is complete */
  _Atomic int32_t aborting;
  char reason[COMM_TEXT];
  struct {
    _Atomic int32_t pid, left; /* left: it has destroyed its communicator */
    _Atomic uint64_t read;     /* the last division whose records it has read */
  } ranks[COMM_RANKS];
  comm_record_t records[COMM_RECORDS][COMM_RANKS];
  /* By from and to; messages (SEND, RECV) have their own. Unwritten pages use no memory. */
  comm_ring_t rings[2][COMM_RANKS][COMM_RANKS];
} comm_room_t;

/* ---- private state of a rank ---- */

typedef struct comm_job_s comm_job_t;
typedef struct comm_transfer_s comm_transfer_t;

/* What goes before the bytes of a message. */
typedef struct comm_head_s {
  uint64_t tag, size;
} comm_head_t;

/* A message that came before its RECV. */
typedef struct comm_early_s {
  struct comm_early_s *next;
  comm_head_t head;
  uint8_t bytes[];
} comm_early_t;

/* The message that is arriving from a rank. */
typedef struct comm_arrival_s {
  comm_head_t head;
  size_t head_done, done;
  comm_transfer_t *into; /* NULL: `early` */
  comm_early_t *early;
} comm_arrival_t;

struct hal_plugin_comm_memory_s { /* of comm_register */
  hal_plugin_comm_memory_t *next;
};

struct hal_plugin_comm_s {
  atomic_int users; /* the caller, each job, and a communicator that is created from this one */
  atomic_int state; /* HAL_COMM_* */
  int32_t device, rank, size;
  comm_id_t id;
  comm_room_t *_Atomic room;
  int watches[COMM_RANKS]; /* descriptors that report the exit of the other processes; -1 = none */
  int64_t deadline;        /* of the creation; 0 = none */
  atomic_int jobs;         /* that are queued, without captured ones */
  _Atomic uint64_t queued, started, done, divisions;
  unsigned busy[2][2]; /* of the running job: peers with an earlier transfer, of messages or not, by direction */
  comm_arrival_t arrivals[COMM_RANKS];
  comm_early_t *early[COMM_RANKS]; /* complete messages in the order of arrival */
  /* A communicator that is being created from another one. */
  atomic_flag looking;
  hal_plugin_comm_t *parent;
  uint64_t division;
  unsigned among; /* the parent's ranks that take part, as bits */
  int32_t color;
  /* Under `lock`. */
  pthread_mutex_t lock;
  hal_status_t error; /* the first failure */
  int32_t bad_rank;
  char name[64], message[COMM_TEXT];
  comm_job_t *captured; /* recorded jobs, which graphs may run again */
  hal_plugin_comm_memory_t *memories;
};

/* Sets the thread's message and returns `status`. */
hal_status_t comm_refuse(hal_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t comm_now(void); /* nanoseconds */
void comm_nap(void);

/* ---- comm.c ---- */
/* Creates a communicator in the state CREATING, without a shared region. */
hal_status_t comm_new(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm);
void comm_keep(hal_plugin_comm_t *comm);
void comm_drop(hal_plugin_comm_t *comm); /* the last user frees it */
/* Completes a creation: waits for it unless the descriptor has NONBLOCKING; drops the communicator after a failure. */
hal_status_t comm_complete(hal_plugin_comm_t *comm, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm);
/* Records the first failure; the state becomes FAILED unless it is ABORTED. */
void comm_fail(hal_plugin_comm_t *comm, hal_status_t status, int32_t bad_rank, const char *text);
/* Continues the creation and checks for failures, without waiting. Returns the state. */
uint32_t comm_look(hal_plugin_comm_t *comm);
/* Returns HAL_OK if the communicator accepts calls, else the error. */
hal_status_t comm_check(hal_plugin_comm_t *comm, const char *op);
hal_status_t comm_check_flags(const char *op, uint32_t flags, uint32_t known);

/* ---- comm_room.c ---- */
hal_status_t comm_id_make(comm_id_t *out_id);
void comm_id_drop(const comm_id_t *id); /* closes the file, in the process that created it; others are not affected */
/* Opens the shared region and registers the rank in it. */
hal_status_t comm_room_join(hal_plugin_comm_t *comm, const comm_id_t *id);
void comm_room_leave(hal_plugin_comm_t *comm);
void comm_room_watch(hal_plugin_comm_t *comm);     /* the processes of all ranks, once all have arrived */
int comm_room_find_ended(hal_plugin_comm_t *comm); /* a rank whose process has exited without leaving; -1 = none */

/* ---- comm_divide.c ---- */
/* Continues a division: joins the new shared region once all ranks have written their requests. */
void comm_divide_look(hal_plugin_comm_t *comm);

/* ---- comm_message.c: SEND and RECV, which match by tag ---- */
/* Moves as many bytes as the ring has free, or has received. Returns their number. */
size_t comm_pass(comm_ring_t *ring, int sends, void *own, size_t size);
size_t comm_message_send(comm_ring_t *ring, comm_transfer_t *transfer);
/* Continues the message that is arriving from the transfer's rank, for this or another RECV of the job. */
size_t comm_message_receive(comm_job_t *job, comm_transfer_t *transfer);
void comm_message_free(hal_plugin_comm_t *comm);

/* ---- comm_transfer.c: jobs ---- */
typedef struct comm_work_s {
  hal_plugin_comm_t *comm;
  stream_t *stream;
  hal_collective_t call; /* a copy, whose arrays are `arrays` */
  uint64_t *arrays;
  uint8_t *scratch; /* the operands of all ranks, of a reduction */
  uint8_t scale[8];
  uint8_t token; /* what a barrier sends */
} comm_work_t;

struct comm_transfer_s {
  comm_work_t *work;
  int peer, sends, was_left;
  uint8_t *bytes;
  size_t size, done;
  int begun;        /* a message is arriving, or has arrived, for it */
  comm_head_t head; /* of a message that is sent */
  size_t head_done;
};

struct comm_job_s {
  comm_job_t *next;
  int captured;
  hal_status_t *out_status; /* of a caller that waits; NULL = the streams report a failure */
  size_t count, transfer_count;
  comm_transfer_t *transfers;
  comm_work_t works[];
};

size_t comm_dtype_size(hal_dtype_t dtype); /* bytes; 0 = unknown */
int comm_reduces(uint32_t op);
/* Plans the transfers of the job's works. */
hal_status_t comm_job_plan(comm_job_t *job);
void comm_job_run(void *job); /* a stream's host function */
void comm_job_free(comm_job_t *job);

/* ---- comm_reduce.c ---- */
extern const uint64_t comm_reduce_dtypes[16]; /* HAL_DTYPE_BIT by HAL_REDUCE_* */
/* Writes the reduction of `ranks` blocks of `count` elements, in the order of the ranks. `scale`: of PREMUL_SUM. */
void comm_reduce(const hal_collective_t *call, const uint8_t *blocks, int ranks, size_t count, const void *scale);

/* ---- stream_failure.c ---- */
/* The stream's next synchronization or query reports this failure, once. */
void whole_stream_failed(int32_t device, stream_t *stream, hal_status_t status, const char *text);

#endif /* TEST_CTS_WHOLE_COMM_H_ */
