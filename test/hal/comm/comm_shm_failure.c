/* Tests of failures in shared memory: calls that do not match, and ranks that exit, are silent or abort. Each
 * surviving rank gets an error that names the cause, in time, and the same one afterwards. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_failures.h"

/* Rank 1 of three calls something else, and aborts. */
static void run_three(rank_t function, void *argument) {
  make_board();
  run_ranks(3, function, argument);
  munmap(board, sizeof *board);
}
static const failures_t shared_memory = {create, run_three};

/* ---- calls that do not match ---- */

Test(comm_shm_failure, calls_that_do_not_match) { every_mismatch(&shared_memory); }
Test(comm_shm_failure, counts_of_a_pair_differ) {
  static const uint64_t sends[] = {1, 2, 3}, others[] = {2, 2, 2}, receives[] = {1, 2, 1};
  /* Each rank passes 1, 2, 3, and rank 1 passes 2 each. */
  const mismatch_t mismatch = {CALL(ALL_TO_ALL, FLOAT32, 0, .send_counts = sends, .recv_counts = receives),
                               CALL(ALL_TO_ALL, FLOAT32, 0, .send_counts = others, .recv_counts = receives),
                               "has 2 elements for rank 1", "takes 1"};
  check_mismatch(&shared_memory, &mismatch);
}
Test(comm_shm_failure, a_root_is_out_of_range) {
  const mismatch_t mismatch = {CALL(REDUCE, FLOAT32, 8, .peer = 0), CALL(REDUCE, FLOAT32, 8, .peer = 3),
                               "rank 1: reduce: peer 3 is out of range", "3 ranks"};
  check_mismatch(&shared_memory, &mismatch);
}

/* The collectives that both brackets have are the same: only the lengths differ. */
static void differ_in_length(int rank, int size, void *argument) {
  const uint32_t *const lengths = argument; /* of rank 1, and of the others */
  hal_comm_transport_t comm;
  hal_collective_t calls[3] = {sum_of(3), sum_of(4), sum_of(5)};
  char own[2][96];
  (void)size;
  for (int i = 0; i < 3; i++) calls[i].struct_size = sizeof calls[i];
  for (int i = 0; i < 2; i++) {
    snprintf(own[i], sizeof own[i], "a bracket of %u collectives that begins with", (unsigned)lengths[i]);
    if (lengths[i] == 1) snprintf(own[i], sizeof own[i], "one collective,");
  }
  create("length", rank, size, &comm);
  CHECK_OK(comm.run(comm.context, calls, 3, 20 * (int64_t)SECOND));
  memset(result, 0x5a, sizeof result);
  const int64_t start = hal_clock_ns();
  const hal_status_t status = comm.run(comm.context, calls, lengths[rank != 1], 20 * (int64_t)SECOND);
  CHECK(seconds_since(start) < 1, "the error comes after %.3f s", seconds_since(start));
  CHECK_FAILS(status, HAL_INVALID_ARGUMENT, own[0], own[1], "all_reduce #4 (sum, float32, 3 elements)",
              "rank 1 called");
  for (size_t i = 0; i < sizeof result; i++) CHECK(((unsigned char *)result)[i] == 0x5a, "data has moved");
  comm.destroy(comm.context);
}
Test(comm_shm_failure, brackets_differ_in_length) {
  uint32_t lengths[][2] = {{2, 3}, {3, 2}, {1, 3}, {2, 1}};
  for (int i = 0; i < 4; i++) run_three(differ_in_length, lengths[i]);
}

static void too_many(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const uint64_t count = *(const uint64_t *)argument;
  create("many", rank, size, &comm);
  hal_collective_t call = sum_of(count);
  call.op = HAL_COMM_ALL_GATHER;
  CHECK_FAILS(run_one(&comm, call, SECOND), HAL_OUT_OF_RANGE, "all_gather", "do not fit");
  comm.destroy(comm.context);
}
Test(comm_shm_failure, sizes_overflow) {
  uint64_t counts[] = {UINT64_MAX, UINT64_MAX / 2, UINT64_C(1) << 62, (UINT64_C(1) << 61) - 1};
  for (int i = 0; i < 4; i++) run_ranks(2, too_many, &counts[i]);
}

/* ---- a rank ends ---- */

enum { LARGE = 1 << 24 };

/* Rank `size - 1` is killed by SIGKILL during a large sum that is called repeatedly, or it has destroyed its
 * communicator. */
static void survive(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  float *const in = calloc(LARGE, sizeof *in), *const out = calloc(LARGE, sizeof *out);
  (void)argument;
  CHECK(in && out, "no memory");
  create("survive", rank, size, &comm);
  hal_status_t status = HAL_OK;
  for (int i = 0; !status && i < 100000; i++) {
    if (i == 2) atomic_fetch_add(&board->stage, 1);
    status = run_one(&comm, (hal_collective_t){.dtype = HAL_FLOAT32, .send = in, .recv = out, .count = LARGE},
                     60 * (int64_t)SECOND);
  }
  CHECK_FAILS(status, HAL_UNAVAILABLE, "has ended during all_reduce #", "(sum, float32, 16777216 elements)");
  char text[32];
  snprintf(text, sizeof text, "rank %d (pid %d)", size - 1, (int)atomic_load(&board->reports[size - 1].words[0]));
  CHECK(strstr(hal_error_message(), text), "'%s' lacks '%s'", hal_error_message(), text);
  atomic_store(&board->reports[rank].words[1], (uint64_t)hal_clock_ns());
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, SECOND), HAL_UNAVAILABLE, text);
  comm.destroy(comm.context);
}

static void kill_one_of(int size) {
  pid_t pids[RANKS];
  make_board();
  for (int rank = 0; rank < size; rank++) pids[rank] = start_rank(rank, size, survive, NULL);
  atomic_store(&board->reports[size - 1].words[0], (uint64_t)pids[size - 1]);
  wait_stage(size);
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  const int64_t killed = hal_clock_ns();
  kill(pids[size - 1], SIGKILL);
  for (int rank = 0; rank < size - 1; rank++) join_rank(rank, pids[rank], 0); /* the killed process remains a zombie */
  join_rank(size - 1, pids[size - 1], SIGKILL);
  for (int rank = 0; rank < size - 1; rank++) {
    const double seconds = (double)((int64_t)atomic_load(&board->reports[rank].words[1]) - killed) / 1e9;
    cr_assert_lt(seconds, 1.0, "rank %d noticed after %.3f s", rank, seconds);
  }
}
Test(comm_shm_failure, a_rank_is_killed) { kill_one_of(2); }
Test(comm_shm_failure, a_rank_of_three_is_killed) { kill_one_of(3); }

/* At any time during or after the join: the surviving ranks get an error in time, and no other result. */
static void run_until_an_error(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  static float in[200000], out[200000];
  const char *const name = argument;
  const int64_t start = hal_clock_ns();
  hal_status_t status = hal_comm_shm_create(&test_store, name, rank, size, SECOND, &comm);
  if (!status) {
    while (!status) {
      status = run_one(&comm, (hal_collective_t){.dtype = HAL_FLOAT32, .send = in, .recv = out, .count = 200000},
                       20 * (int64_t)SECOND);
    }
    CHECK(status == HAL_UNAVAILABLE, "%s: %s", hal_status_name(status), hal_error_message());
    comm.destroy(comm.context);
  }
  CHECK(status == HAL_UNAVAILABLE || status == HAL_NOT_READY, "%s: %s", hal_status_name(status), hal_error_message());
  CHECK(seconds_since(start) < 4, "the error comes after %.3f s: %s", seconds_since(start), hal_error_message());
}
Test(comm_shm_failure, a_rank_is_killed_at_any_moment) {
  for (int i = 0; i < 15; i++) {
    pid_t pids[RANKS];
    char name[16];
    const int victim = i % 3;
    make_board();
    snprintf(name, sizeof name, "any%d", i);
    for (int rank = 0; rank < 3; rank++) pids[rank] = start_rank(rank, 3, run_until_an_error, name);
    nanosleep(&(struct timespec){.tv_nsec = 150000 * i * i}, NULL); /* up to 29 ms */
    kill(pids[victim], SIGKILL);
    for (int rank = 0; rank < 3; rank++) join_rank(rank, pids[rank], rank == victim ? SIGKILL : 0);
    munmap(board, sizeof *board);
  }
}

static void receive_from_the_dead(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create("dead", rank, size, &comm);
  hal_collective_t call = sum_of(1);
  call.op = rank ? HAL_COMM_SEND : HAL_COMM_RECV;
  call.peer = !rank;
  /* Data that was sent before the exit must arrive. */
  CHECK_OK(run_one(&comm, call, 20 * (int64_t)SECOND));
  if (rank) _exit(0);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(run_one(&comm, call, 20 * (int64_t)SECOND), HAL_UNAVAILABLE, "rank 1 (pid ",
              "has ended during send and recv", "its last message is send #1");
  CHECK(seconds_since(start) < 1, "%.3f s", seconds_since(start));
  comm.destroy(comm.context);
}
Test(comm_shm_failure, a_sender_has_ended) { run_ranks(2, receive_from_the_dead, NULL); }

static void leave(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create("leave", rank, size, &comm);
  CHECK_OK(run_one(&comm, sum_of(3), 20 * (int64_t)SECOND));
  if (rank) {
    comm.destroy(comm.context);
    wait_stage(1);
    return;
  }
  CHECK_FAILS(run_one(&comm, sum_of(3), 20 * (int64_t)SECOND), HAL_UNAVAILABLE, "has destroyed its side",
              "all_reduce #2");
  atomic_store(&board->stage, 1);
  comm.destroy(comm.context);
}
Test(comm_shm_failure, a_rank_has_left) { run_ranks(2, leave, NULL); }

/* ---- silence ---- */

static void be_silent(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create("silent", rank, size, &comm);
  CHECK_OK(run_one(&comm, sum_of(64), 20 * (int64_t)SECOND));
  if (rank == 1) wait_stage(2);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(run_one(&comm, sum_of(5), SECOND / 2), HAL_NOT_READY,
              "all_reduce #2 (sum, float32, 5 elements) is not done within 0.500 s",
              "rank 1, whose last call is all_reduce #1 (sum, float32, 64 elements)");
  const double seconds = seconds_since(start);
  CHECK(rank == 1 || (seconds > 0.4 && seconds < 1.5), "the time was over after %.3f s", seconds);
  atomic_fetch_add(&board->stage, 1);
  comm.destroy(comm.context);
}
Test(comm_shm_failure, a_rank_is_silent) { run_ranks(3, be_silent, NULL); }

/* ---- a sleeping rank is woken, and does not only detect the failure at its next check ---- */

static void be_late(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create("late", rank, size, &comm);
  const int64_t start = hal_clock_ns();
  for (int i = 0; i < 100; i++) {
    hal_collective_t message = sum_of(1);
    message.op = rank ? HAL_COMM_RECV : HAL_COMM_SEND;
    message.peer = !rank;
    if (rank == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
    if (rank == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (rank < 2) CHECK_OK(run_one(&comm, message, 20 * (int64_t)SECOND));
  }
  CHECK(seconds_since(start) < 4, "200 waits of 1 ms took %.3f s", seconds_since(start));
  comm.destroy(comm.context);
}
Test(comm_shm_failure, a_sleeping_rank_is_woken) { run_ranks(3, be_late, NULL); }

/* ---- abort, and children ---- */

Test(comm_shm_failure, abort_from_another_thread_and_rank) { shared_memory.run(abort_all, (void *)&shared_memory); }
Test(comm_shm_failure, a_forked_child_is_refused) { shared_memory.run(fork_inside, (void *)&shared_memory); }
