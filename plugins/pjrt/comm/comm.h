/* comm.h: collectives between devices of the client. The ranks of a communicator are threads of this process, with a
 * device each. A collective is one program with a replica on each device, which runs when all ranks have called it. */
#ifndef PLUGINS_PJRT_COMM_COMM_H_
#define PLUGINS_PJRT_COMM_COMM_H_

#include "../pjrt.h"

enum { COMM_PROGRAMS = 64 }; /* that a group keeps */

typedef struct comm_group_s comm_group_t;

/* A collective of one rank. */
typedef struct comm_call_s {
  comm_group_t *group;
  int32_t rank;
  uint32_t op, reduce; /* HAL_COMM_*, HAL_REDUCE_* */
  int32_t type;        /* PJRT_F32 ..., of the elements that the program sees */
  int32_t peer;
  int64_t count;
  void *send, *recv;
} comm_call_t;

typedef struct comm_program_s {
  uint32_t op, reduce;
  int32_t type, peer;
  int64_t count;
  uint64_t used; /* the round of the last use */
  pjrt_loaded_t *loaded;
} comm_program_t;

/* What the ranks of a communicator share. */
struct comm_group_s {
  comm_group_t *next; /* in the list of meeting.c */
  char id[32];
  int32_t size;
  int32_t come, users; /* ranks that have called comm_create; communicators and queued calls */
  int32_t devices[PJRT_MAX_DEVICES];
  int joined[PJRT_MAX_DEVICES];
  pthread_mutex_t lock; /* guards the members below */
  pthread_cond_t changed;
  int32_t ranks;                              /* that have joined */
  hal_status_t error;                         /* the first failure */
  char why[PJRT_WHY];                         /* of that failure */
  uint64_t round;                             /* of collectives that are done */
  const comm_call_t *calls[PJRT_MAX_DEVICES]; /* of the present round */
  int32_t arrived;                            /* ranks with a call */
  int running;                                /* the program of the round runs */
  uint64_t queued[PJRT_MAX_DEVICES], done[PJRT_MAX_DEVICES];
  comm_program_t programs[COMM_PROGRAMS]; /* used by the rank that runs the round */
};

struct hal_plugin_comm_s {
  comm_group_t *group;
  int32_t rank;
  atomic_int aborted; /* by this rank */
};

/* ---- meeting.c: where the ranks meet ---- */

/* Adds a rank to the group of an id, and waits until all have joined, at most `timeout_ns` (<= 0: no limit). */
hal_status_t comm_join(const hal_comm_desc_t *desc, int32_t device, comm_group_t **out_group);
/* Keeps the group until comm_leave. */
void comm_keep(comm_group_t *group);
void comm_leave(comm_group_t *group);
/* Returns when all ranks have called it and the program has run. After a failure `why`, PJRT_WHY bytes, has the
 * reason; the group has failed. */
hal_status_t comm_meet(const comm_call_t *call, char *why);
/* Ends all waits. The first failure remains. */
void comm_fail(comm_group_t *group, hal_status_t status, const char *why);
/* Waits until a rank's calls are done; HAL_NOT_READY after `timeout_ns` (<= 0: no limit), HAL_ABORTED if the group has
 * failed meanwhile. */
hal_status_t comm_wait(comm_group_t *group, int32_t rank, int64_t timeout_ns);

/* ---- program.c ---- */

/* Finds or compiles the program of a call. Only the rank that runs the round calls it. */
hal_status_t comm_program(comm_group_t *group, const comm_call_t *call, pjrt_loaded_t **out_program, char *why);
void comm_programs_release(comm_group_t *group);
/* Elements of the argument and the result of each rank. */
int64_t comm_argument_count(const comm_group_t *group, const comm_call_t *call);
int64_t comm_result_count(const comm_group_t *group, const comm_call_t *call);
/* Whether the argument and the result are the same memory. */
int comm_in_place(uint32_t op);

/* ---- replicas.c ---- */

/* Runs the collective that all ranks have called. Only the rank that runs the round calls it. */
hal_status_t comm_run(comm_group_t *group, char *why);

#endif /* PLUGINS_PJRT_COMM_COMM_H_ */
