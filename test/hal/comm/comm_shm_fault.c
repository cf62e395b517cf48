/* Tests of shared memory while system calls, calls of the store and allocations of one rank fail: the n-th call, for
 * n = 1, 2, ... until the rank makes fewer calls. Each rank gets a correct result or an error with a message, in
 * time. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/host_malloc.h"
#include "comm_testing.h"

enum { SIZE = 3, MOST = 200, TIMEOUT = SECOND / 4 };

typedef struct case_s {
  int rank;   /* whose call fails */
  long calls; /* which one */
} case_t;

static void check_error(hal_status_t status) {
  CHECK(strlen(hal_error_message()) > 20, "%s: '%s' is no message", hal_status_name(status), hal_error_message());
  CHECK(strstr(hal_error_message(), "communicator 'fault"), "'%s' does not name the communicator", hal_error_message());
}

/* words[0]: 1 = the call was reached; words[1]: 1 = joined */
static void join_with_a_fault(int rank, int size, void *argument) {
  const case_t *const fault = argument;
  hal_comm_transport_t comm;
  char name[32];
  snprintf(name, sizeof name, "fault%d.%ld", fault->rank, fault->calls);
  const int64_t start = hal_clock_ns();
  if (rank == fault->rank) hal_shm_fail_after(fault->calls);
  const hal_status_t status = hal_comm_shm_create(&test_store, name, rank, size, TIMEOUT, &comm);
  if (rank == fault->rank) atomic_store(&board->reports[rank].words[0], !hal_shm_fail_after(0));
  CHECK(hal_clock_ns() - start < 3 * (int64_t)SECOND, "the join took %.3f s", (double)(hal_clock_ns() - start) / 1e9);
  atomic_store(&board->reports[rank].words[1], !status);
  if (status) {
    check_error(status);
    return;
  }
  int32_t one = 1, sum = 0;
  const hal_collective_t call = {.dtype = HAL_INT32, .send = &one, .recv = &sum, .count = 1};
  const hal_status_t ran = run_one(&comm, call, 2 * (int64_t)SECOND);
  if (ran) check_error(ran);
  CHECK(ran || sum == size, "the sum is %d", (int)sum);
  comm.destroy(comm.context);
}

static void sweep(int rank) {
  for (long calls = 1;; calls++) {
    cr_assert_lt(calls, MOST, "rank %d still makes calls", rank);
    case_t fault = {rank, calls};
    make_board();
    run_ranks(SIZE, join_with_a_fault, &fault);
    const int reached = (int)atomic_load(&board->reports[rank].words[0]);
    int joined = 0;
    for (int r = 0; r < SIZE; r++) joined += (int)atomic_load(&board->reports[r].words[1]);
    munmap(board, sizeof *board);
    if (reached) continue;
    cr_assert_eq(joined, SIZE, "%d ranks joined without a fault", joined);
    cr_assert_gt(calls, 5, "only %ld calls", calls);
    return;
  }
}
Test(comm_shm_fault, of_rank_0_in_the_join) { sweep(0); }
Test(comm_shm_fault, of_rank_1_in_the_join) { sweep(1); }

/* A failed futex, or a failed check of a process, is not a failure of the collective. */
static void wait_with_a_fault(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  (void)argument;
  create("fault", rank, size, &comm);
  for (int i = 1; i <= 6; i++) {
    int32_t one = 1, sum = 0;
    const hal_collective_t call = {.dtype = HAL_INT32, .send = &one, .recv = &sum, .count = 1};
    if (rank == 1) nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
    if (rank == 0) hal_shm_fail_after(i);
    CHECK_OK(run_one(&comm, call, 20 * (int64_t)SECOND));
    CHECK(sum == size, "the sum is %d", (int)sum);
    if (rank == 0) CHECK(!hal_shm_fail_after(0) || i > 2, "call %d was not reached", i);
  }
  comm.destroy(comm.context);
}
Test(comm_shm_fault, in_a_wait) { run_ranks(2, wait_with_a_fault, NULL); }

/* Out of memory: in the transport, and for a message that arrives before the one that is received. */
static void no_memory(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data = 7;
  (void)argument;
  if (rank == 0) {
    hal_malloc_fail_after(1);
    CHECK_FAILS(hal_comm_shm_create(&test_store, "fault", rank, size, TIMEOUT, &comm), HAL_RESOURCE_EXHAUSTED,
                "no host memory");
  }
  create("fault", rank, size, &comm);
  hal_collective_t call = {.op = rank ? HAL_COMM_RECV : HAL_COMM_SEND,
                           .dtype = HAL_INT32,
                           .peer = !rank,
                           .send = &data,
                           .recv = &data,
                           .count = 1,
                           .tag = 1};
  if (rank == 0) CHECK_OK(run_one(&comm, call, 20 * (int64_t)SECOND));
  if (rank == 1) hal_malloc_fail_after(1);
  call.tag = 2;
  if (rank == 1)
    CHECK_FAILS(run_one(&comm, call, 20 * (int64_t)SECOND), HAL_RESOURCE_EXHAUSTED,
                "rank 1 has no memory for 4 bytes of a message from rank 0 with tag 1");
  const hal_collective_t barrier = {.op = HAL_COMM_BARRIER};
  CHECK_FAILS(run_one(&comm, barrier, 20 * (int64_t)SECOND), HAL_RESOURCE_EXHAUSTED, "rank 1 has no memory");
  comm.destroy(comm.context);
}
Test(comm_shm_fault, no_memory) { run_ranks(2, no_memory, NULL); }
