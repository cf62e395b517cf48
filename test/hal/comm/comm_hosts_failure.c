/* Tests of failures over several hosts: calls that do not match, ranks that exit, are silent or abort, also on
 * another host, and while the transport is created. Each rank gets an error with the cause, in time, and the same
 * one afterwards. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_failures.h"
#include "comm_hosts_testing.h"

static void run_layouts(rank_t function, void *argument) {
  static const char *const layouts[] = {"0011", "0001"};
  for (int i = 0; i < 2; i++) {
    make_board();
    run_hosts(layouts[i], function, argument);
    munmap(board, sizeof *board);
  }
}
static const failures_t several_hosts = {create_hosts, run_layouts};

/* ---- calls that do not match ---- */

Test(comm_hosts_failure, calls_that_do_not_match) { every_mismatch(&several_hosts); }
Test(comm_hosts_failure, counts_of_a_pair_differ) {
  static const uint64_t two[] = {2, 2, 2, 2}, three[] = {2, 3, 2, 2};
  const mismatch_t mismatch = {CALL(ALL_TO_ALL, FLOAT32, 0, .send_counts = two, .recv_counts = two),
                               CALL(ALL_TO_ALL, FLOAT32, 0, .send_counts = three, .recv_counts = two),
                               "called all_to_all #2 (float32, uneven counts) and has 3 elements for rank 1",
                               "takes 2"};
  check_mismatch(&several_hosts, &mismatch);
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

Test(comm_hosts_failure, abort_from_another_thread_and_rank) { run_hosts("0011", abort_all, (void *)&several_hosts); }
Test(comm_hosts_failure, abort_of_one_rank_for_each_host) { run_hosts("012", abort_all, (void *)&several_hosts); }

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

Test(comm_hosts_failure, a_forked_child_is_refused) { run_hosts("0011", fork_inside, (void *)&several_hosts); }
