/* Tests of failures over several hosts: calls that do not match, ranks that exit, are silent or abort, also on
 * another host, and while the transport is created. Each rank gets an error with the cause, in time, and the same
 * one afterwards. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>

#include "comm_hosts_testing.h"

static float data[64], result[64 * RANKS];

static hal_collective_t sum_of(uint64_t count) {
  return (hal_collective_t){.dtype = HAL_FLOAT32, .send = data, .recv = result, .count = count};
}

static double seconds_since(int64_t start) { return (double)(hal_clock_ns() - start) / 1e9; }

/* ---- calls that do not match: the last rank calls `other`, the others `one` ---- */

typedef struct pair_s {
  hal_collective_t one, other;
  const char *texts[3];
} pair_t;

static void differ(int rank, int size, void *argument) {
  const pair_t *const pair = argument;
  hal_comm_transport_t comm;
  create_hosts("differ", rank, size, &comm);
  CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
  memset(result, 0x5a, sizeof result);
  const int64_t start = hal_clock_ns();
  const hal_status_t status = run_one(&comm, rank == size - 1 ? pair->other : pair->one, 20 * (int64_t)SECOND);
  CHECK(seconds_since(start) < 5, "the error comes after %.3f s", seconds_since(start));
  check_fails(__LINE__, status, HAL_INVALID_ARGUMENT, pair->texts);
  for (size_t i = 0; i < sizeof result; i++) CHECK(((unsigned char *)result)[i] == 0x5a, "data has moved");
  check_fails(__LINE__, run_one(&comm, pair->one, SECOND), HAL_INVALID_ARGUMENT, pair->texts);
  comm.destroy(comm.context);
}

static void check_pair(hal_collective_t one, hal_collective_t other, const char *first, const char *second) {
  static const char *const layouts[] = {"0011", "0001"};
  pair_t pair = {one, other, {first, second, NULL}};
  for (int i = 0; i < 2; i++) {
    make_board();
    run_hosts(layouts[i], differ, &pair);
    munmap(board, sizeof *board);
  }
}

Test(comm_hosts_failure, counts_differ) {
  check_pair(sum_of(10), sum_of(11), "rank 0 called all_reduce #2 (sum, float32, 10 elements)",
             "rank 3 called all_reduce #2 (sum, float32, 11 elements)");
}
Test(comm_hosts_failure, types_differ) {
  hal_collective_t other = sum_of(8);
  other.dtype = HAL_INT32;
  check_pair(sum_of(8), other, "rank 0 called all_reduce #2 (sum, float32, 8 elements)",
             "rank 3 called all_reduce #2 (sum, int32, 8 elements)");
}
Test(comm_hosts_failure, operators_differ) {
  hal_collective_t other = sum_of(8);
  other.op = HAL_COMM_BROADCAST;
  check_pair(sum_of(8), other, "rank 0 called all_reduce #2 (sum, float32, 8 elements)",
             "rank 3 called broadcast #2 (float32, 8 elements, root 0)");
}
Test(comm_hosts_failure, roots_differ) {
  hal_collective_t one = sum_of(8), other;
  one.op = HAL_COMM_BROADCAST;
  other = one;
  other.peer = 2;
  check_pair(one, other, "root 0", "root 2");
}
Test(comm_hosts_failure, a_barrier_and_a_sum) {
  check_pair((hal_collective_t){.op = HAL_COMM_BARRIER}, sum_of(1), "rank 0 called barrier #2",
             "rank 3 called all_reduce #2");
}
Test(comm_hosts_failure, counts_of_a_pair_differ) {
  static const uint64_t two[] = {2, 2, 2, 2}, three[] = {2, 3, 2, 2};
  hal_collective_t one = {.op = HAL_COMM_ALL_TO_ALL,
                          .dtype = HAL_FLOAT32,
                          .send = data,
                          .recv = result,
                          .send_counts = two,
                          .recv_counts = two};
  hal_collective_t other = one;
  other.send_counts = three;
  check_pair(one, other, "rank 3 called all_to_all #2 (float32, uneven counts) and has 3 elements for rank 1",
             "takes 2");
}
Test(comm_hosts_failure, one_type_is_not_implemented) {
  hal_collective_t other = sum_of(8);
  other.dtype = HAL_FLOAT8_E5M2;
  check_pair(sum_of(8), other, "rank 0 called all_reduce #2 (sum, float32",
             "rank 3 called all_reduce #2 (sum, float8_e5m2");
}
/* An error that only one rank detects in its call also reaches the others. */
Test(comm_hosts_failure, a_pointer_is_missing) {
  hal_collective_t other = sum_of(8);
  other.send = NULL;
  check_pair(sum_of(8), other, "rank 3: all_reduce", "NULL");
}

/* The first call of two brackets is the same. */
static void differ_in_length(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  hal_collective_t calls[2] = {sum_of(3), sum_of(4)};
  calls[0].struct_size = calls[1].struct_size = sizeof calls[0];
  create_hosts("length", rank, size, &comm);
  (void)argument;
  CHECK_OK(comm.run(comm.context, calls, 2, 20 * (int64_t)SECOND));
  CHECK_FAILS(comm.run(comm.context, calls, rank == 2 ? 1 : 2, 20 * (int64_t)SECOND), HAL_INVALID_ARGUMENT,
              "from collective #3 on, rank 0 called a bracket of 2, rank 2 one of 1");
  comm.destroy(comm.context);
}
Test(comm_hosts_failure, brackets_differ_in_length) { run_hosts("0011", differ_in_length, NULL); }

/* ---- a rank ends ---- */

enum { LARGE = 1 << 20 };

/* words[0]: pid of the killed rank; words[1]: the time of the error */
static void survive(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int victim = *(const int *)argument;
  float *const in = calloc(LARGE, sizeof *in), *const out = calloc(LARGE, sizeof *out);
  CHECK(in && out, "no memory");
  create_hosts("survive", rank, size, &comm);
  hal_status_t status = HAL_OK;
  for (int i = 0; !status && i < 100000; i++) {
    if (i == 2) atomic_fetch_add(&board->stage, 1);
    status = run_one(&comm, (hal_collective_t){.dtype = HAL_FLOAT32, .send = in, .recv = out, .count = LARGE},
                     60 * (int64_t)SECOND);
  }
  atomic_store(&board->reports[rank].words[1], (uint64_t)hal_clock_ns());
  char text[48];
  snprintf(text, sizeof text, "rank %d (pid %d)", victim, (int)atomic_load(&board->reports[victim].words[0]));
  /* Alone on its host, so that no other rank observes its process. */
  int alone = 1;
  for (int r = 0; r < size; r++) alone &= r == victim || layout[r] != layout[victim];
  if (alone) snprintf(text, sizeof text, "no connection to rank %d", victim);
  CHECK_FAILS(status, HAL_UNAVAILABLE, "all_reduce #", "(float32, 1048576 elements)", text);
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, SECOND), HAL_UNAVAILABLE, text);
  comm.destroy(comm.context);
}

static void kill_one(const char *hosts, int victim) {
  pid_t pids[RANKS];
  const int size = (int)strlen(hosts);
  layout = hosts;
  make_board();
  for (int rank = 0; rank < size; rank++) pids[rank] = start_rank(rank, size, survive, &victim);
  atomic_store(&board->reports[victim].words[0], (uint64_t)pids[victim]);
  wait_stage(size);
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  const int64_t killed = hal_clock_ns();
  kill(pids[victim], SIGKILL);
  for (int rank = 0; rank < size; rank++)
    if (rank != victim) join_rank(rank, pids[rank], 0);
  join_rank(victim, pids[victim], SIGKILL);
  for (int rank = 0; rank < size; rank++) {
    if (rank == victim) continue;
    const double seconds = (double)((int64_t)atomic_load(&board->reports[rank].words[1]) - killed) / 1e9;
    cr_assert_lt(seconds, 1.5, "rank %d noticed after %.3f s", rank, seconds);
  }
  munmap(board, sizeof *board);
}
Test(comm_hosts_failure, a_rank_is_killed) {
  kill_one("0011", 3);
  kill_one("0001", 2);
}
Test(comm_hosts_failure, a_leader_is_killed) {
  kill_one("0011", 0);
  kill_one("0011", 2);
}
Test(comm_hosts_failure, a_rank_alone_on_its_host_is_killed) { kill_one("0001", 3); }

/* ---- silence ---- */

typedef struct silent_s {
  int first, last; /* these ranks do not call it in time */
  const char *text;
} silent_t;

static void be_silent(int rank, int size, void *argument) {
  const silent_t *const silent = argument;
  hal_comm_transport_t comm;
  create_hosts("silent", rank, size, &comm);
  CHECK_OK(run_one(&comm, sum_of(64), 20 * (int64_t)SECOND));
  const int is_silent = rank >= silent->first && rank <= silent->last;
  if (is_silent) wait_stage(size - 1 - silent->last + silent->first);
  const int64_t start = hal_clock_ns();
  const hal_status_t status = run_one(&comm, sum_of(5), 2 * (int64_t)SECOND);
  const double seconds = seconds_since(start);
  CHECK_FAILS(status, HAL_NOT_READY, "all_reduce #2 (float32, 5 elements) is not done within 2.000 s", silent->text);
  CHECK(is_silent || (seconds > 1.9 && seconds < 2.6), "the time was over after %.3f s", seconds);
  atomic_fetch_add(&board->stage, 1);
  comm.destroy(comm.context);
}
Test(comm_hosts_failure, a_rank_is_silent) {
  silent_t silent = {3, 3, "waiting for rank 3, which has not called it"};
  run_hosts("0011", be_silent, &silent);
}
Test(comm_hosts_failure, a_leader_is_silent) {
  silent_t silent = {0, 0, "waiting for rank 0, which has not called it"};
  run_hosts("0011", be_silent, &silent);
}
Test(comm_hosts_failure, a_host_is_silent) {
  silent_t silent = {2, 3, "waiting for ranks 2, 3"};
  run_hosts("0011", be_silent, &silent);
}

/* ---- abort ---- */

static void *abort_soon(void *argument) {
  const hal_comm_transport_t *const comm = argument;
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  atomic_store(&board->reports[0].words[0], (uint64_t)hal_clock_ns());
  comm->abort(comm->context, "the caller pressed stop");
  return NULL;
}

/* Rank 1 aborts from another thread; all wait for the last rank, which never arrives. */
static void abort_all(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  pthread_t thread;
  (void)argument;
  create_hosts("abort", rank, size, &comm);
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
Test(comm_hosts_failure, abort_from_another_thread_and_rank) { run_hosts("0011", abort_all, NULL); }
Test(comm_hosts_failure, abort_of_one_rank_for_each_host) { run_hosts("012", abort_all, NULL); }

/* ---- creation ---- */

/* "missing": the last rank never arrives. */
static void miss_one(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  const hal_comm_hosts_t config = hosts_config("missing", rank, size, 2 * (int64_t)SECOND);
  if (rank == size - 1) return;
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(try_hosts(&config, &comm), HAL_NOT_READY, "communicator 'missing'", "rank 3 did not join within 2.000 s");
  CHECK(seconds_since(start) < 3, "%.3f s", seconds_since(start));
}
Test(comm_hosts_failure, a_rank_is_missing) { run_hosts("0011", miss_one, NULL); }

static hal_status_t refuse(void *context, const char *use, int32_t rank, int32_t size, const hal_comm_store_t *store,
                           int64_t timeout_ns, hal_comm_transport_t *out) {
  (void)context, (void)use, (void)rank, (void)size, (void)store, (void)timeout_ns, (void)out;
  return hal_error_set(HAL_UNAVAILABLE, "no interface eth7");
}

/* One rank cannot connect; the others wait for it, and are notified long before their timeout. */
static void fail_to_connect(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int failing = *(const int *)argument;
  hal_comm_hosts_t config = hosts_config("refused", rank, size, 20 * (int64_t)SECOND);
  char text[32];
  if (rank == failing) config.connect = refuse;
  snprintf(text, sizeof text, "rank %d: ", failing);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(try_hosts(&config, &comm), HAL_UNAVAILABLE, "communicator 'refused'", text, "no interface eth7");
  CHECK(seconds_since(start) < 2, "%.3f s", seconds_since(start));
}
Test(comm_hosts_failure, a_rank_cannot_connect) {
  for (int failing = 0; failing < 4; failing++) {
    make_board();
    run_hosts("0011", fail_to_connect, &failing);
    munmap(board, sizeof *board);
  }
}

static void differ_in_size(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  const hal_comm_hosts_t config = hosts_config("sizes", rank, rank == 1 ? size + 1 : size, 5 * (int64_t)SECOND);
  layout = "0000111";
  CHECK_FAILS(try_hosts(&config, &comm), HAL_INVALID_ARGUMENT, "size of", "use the same size on all ranks");
}
Test(comm_hosts_failure, sizes_differ) { run_hosts("0011", differ_in_size, NULL); }

/* ---- which hosts ---- */

static void be_on_one_host(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create_hosts("one", rank, size, &comm);
  CHECK(strcmp(comm.name, "shm") == 0, "the transport is %s", comm.name);
  CHECK_OK(run_one(&comm, sum_of(3), 20 * (int64_t)SECOND));
  comm.destroy(comm.context);
}
Test(comm_hosts_failure, one_host_has_shared_memory_alone) { run_hosts("000", be_on_one_host, NULL); }

static void be_apart(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  hal_comm_hosts_t config = hosts_config("apart", rank, size, 20 * (int64_t)SECOND);
  config.flags = HAL_COMM_HOSTS_SHARED;
  CHECK_FAILS(try_hosts(&config, &comm), HAL_UNIMPLEMENTED, "no two of the 3 ranks are on one host");
}
Test(comm_hosts_failure, ranks_apart_are_refused_on_request) { run_hosts("012", be_apart, NULL); }

static void fork_inside(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create_hosts("fork", rank, size, &comm);
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
Test(comm_hosts_failure, a_forked_child_is_refused) { run_hosts("0011", fork_inside, NULL); }
