/* comm_failures.h: failures of collectives that are the same with every transport: calls that do not match, an abort,
 * and a forked child. */
#ifndef TEST_HAL_COMM_FAILURES_H_
#define TEST_HAL_COMM_FAILURES_H_

#include <pthread.h>

#include "comm_testing.h"

typedef struct failures_s {
  void (*create)(const char *name, int rank, int size, hal_comm_transport_t *out);
  void (*run)(rank_t function, void *argument); /* runs the ranks of each layout, on a board of their own */
} failures_t;

static float data[64], result[64 * RANKS];

static inline hal_collective_t sum_of(uint64_t count) {
  return (hal_collective_t){.dtype = HAL_FLOAT32, .send = data, .recv = result, .count = count};
}

static inline double seconds_since(int64_t start) { return (double)(hal_clock_ns() - start) / 1e9; }

/* ---- calls that do not match ---- */

/* One rank calls `other`, the others `one`. The message of every rank has both texts and the number of that rank. */
typedef struct mismatch_s {
  hal_collective_t one, other;
  const char *first, *second;
} mismatch_t;

typedef struct mismatch_run_s {
  const failures_t *transport;
  const mismatch_t *mismatch;
} mismatch_run_t;

static inline void call_differently(int rank, int size, void *argument) {
  const mismatch_run_t *const run = argument;
  const mismatch_t *const mismatch = run->mismatch;
  const int odd = size == 3 ? 1 : size - 1;
  hal_comm_transport_t comm;
  char number[32];
  snprintf(number, sizeof number, "rank %d", odd);
  const char *const texts[] = {mismatch->first, mismatch->second, number, NULL};
  run->transport->create("differ", rank, size, &comm);
  CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
  memset(result, 0x5a, sizeof result);
  const int64_t start = hal_clock_ns();
  const hal_status_t status = run_one(&comm, rank == odd ? mismatch->other : mismatch->one, 20 * (int64_t)SECOND);
  CHECK(seconds_since(start) < 5, "the error comes after %.3f s", seconds_since(start));
  check_fails(__LINE__, status, HAL_INVALID_ARGUMENT, texts);
  for (size_t i = 0; i < sizeof result; i++) CHECK(((unsigned char *)result)[i] == 0x5a, "data has moved");
  check_fails(__LINE__, run_one(&comm, mismatch->one, SECOND), HAL_INVALID_ARGUMENT, texts); /* from then on, too */
  comm.destroy(comm.context);
}

static inline void check_mismatch(const failures_t *transport, const mismatch_t *mismatch) {
  mismatch_run_t run = {transport, mismatch};
  transport->run(call_differently, &run);
}

#define CALL(operation, type, elements, ...) \
  { .op = HAL_COMM_##operation, .dtype = HAL_##type, .send = data, .recv = result, .count = elements, __VA_ARGS__ }
#define SUM(type, elements) CALL(ALL_REDUCE, type, elements, .reduce = HAL_REDUCE_SUM)

static const mismatch_t mismatches[] = {
    {SUM(FLOAT32, 10), SUM(FLOAT32, 11), "rank 0 called all_reduce #2 (sum, float32, 10 elements)",
     "called all_reduce #2 (sum, float32, 11 elements)"},
    {SUM(FLOAT32, 8), SUM(INT32, 8), "rank 0 called all_reduce #2 (sum, float32, 8 elements)",
     "called all_reduce #2 (sum, int32, 8 elements)"},
    {SUM(FLOAT32, 8), CALL(BROADCAST, FLOAT32, 8, .peer = 0), "rank 0 called all_reduce #2 (sum, float32, 8 elements)",
     "called broadcast #2 (float32, 8 elements, root 0)"},
    {SUM(FLOAT32, 8), CALL(ALL_REDUCE, FLOAT32, 8, .reduce = HAL_REDUCE_MAX),
     "all_reduce #2 (sum, float32, 8 elements)", "all_reduce #2 (max, float32, 8 elements)"},
    {CALL(BROADCAST, FLOAT32, 8, .peer = 0), CALL(BROADCAST, FLOAT32, 8, .peer = 2), "root 0", "root 2"},
    {{.op = HAL_COMM_BARRIER}, SUM(FLOAT32, 1), "rank 0 called barrier #2", "called all_reduce #2"},
    {CALL(ALL_GATHER, FLOAT32, 8, .peer = 0), CALL(ALL_GATHER, FLOAT32, 9, .peer = 0),
     "all_gather #2 (float32, 8 elements)", "all_gather #2 (float32, 9 elements)"},
    {CALL(ALL_GATHER, FLOAT32, 8, .peer = 0), CALL(ALL_GATHER, INT32, 8, .peer = 0),
     "all_gather #2 (float32, 8 elements)", "all_gather #2 (int32, 8 elements)"},
    {CALL(GATHER, FLOAT32, 8, .peer = 0), CALL(GATHER, FLOAT32, 8, .peer = 1),
     "gather #2 (float32, 8 elements, root 0)", "gather #2 (float32, 8 elements, root 1)"},
    /* a type that only one of the calls has an operator for */
    {SUM(FLOAT32, 8), SUM(FLOAT8_E5M2, 8), "rank 0 called all_reduce #2 (sum, float32",
     "called all_reduce #2 (sum, float8_e5m2"},
    /* an error that only one rank detects in its call also reaches the others */
    {SUM(FLOAT32, 8), {.dtype = HAL_FLOAT32, .recv = result, .count = 8}, "all_reduce", "NULL"},
};

static inline void every_mismatch(const failures_t *transport) {
  for (size_t i = 0; i < sizeof mismatches / sizeof *mismatches; i++) check_mismatch(transport, &mismatches[i]);
}

/* ---- abort ---- */

static inline void *abort_soon(void *argument) {
  const hal_comm_transport_t *const comm = argument;
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  atomic_store(&board->reports[0].words[0], (uint64_t)hal_clock_ns());
  comm->abort(comm->context, "the caller pressed stop");
  return NULL;
}

/* Rank 1 aborts from another thread; all wait for the last rank, which never arrives. */
static inline void abort_all(int rank, int size, void *argument) {
  const failures_t *const transport = argument;
  hal_comm_transport_t comm;
  pthread_t thread;
  transport->create("abort", rank, size, &comm);
  if (rank == 1) CHECK(pthread_create(&thread, NULL, abort_soon, &comm) == 0, "no thread");
  if (rank == size - 1) wait_stage(size - 1);
  CHECK_FAILS(run_one(&comm, sum_of(5), 20 * (int64_t)SECOND), HAL_ABORTED, "rank 1 aborted: the caller pressed stop");
  const double seconds = seconds_since((int64_t)atomic_load(&board->reports[0].words[0]));
  CHECK(rank == size - 1 || seconds < 1, "%.3f s after the abort", seconds);
  atomic_fetch_add(&board->stage, 1);
  if (rank == 1) pthread_join(thread, NULL);
  CHECK_FAILS(run_one(&comm, sum_of(5), 20 * (int64_t)SECOND), HAL_ABORTED, "rank 1 aborted");
  comm.destroy(comm.context);
}

/* ---- children ---- */

static inline void fork_inside(int rank, int size, void *argument) {
  const failures_t *const transport = argument;
  hal_comm_transport_t comm;
  transport->create("fork", rank, size, &comm);
  const pid_t child = fork();
  if (!child) {
    const hal_status_t status = run_one(&comm, sum_of(3), SECOND);
    comm.abort(comm.context, "a child");
    comm.destroy(comm.context); /* does not affect the parent */
    _exit(status != HAL_FAILED_PRECONDITION);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %x", status);
  CHECK_OK(run_one(&comm, sum_of(3), 20 * (int64_t)SECOND));
  comm.destroy(comm.context);
}

#endif /* TEST_HAL_COMM_FAILURES_H_ */
