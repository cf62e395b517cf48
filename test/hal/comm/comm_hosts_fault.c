/* Tests of several hosts while system calls, calls of the store and allocations of one rank fail: the n-th call, for
 * n = 1, 2, ... until the rank makes fewer calls. Each rank gets a correct result or an error with a message, in
 * time. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/host_malloc.h"
#include "comm_hosts_testing.h"

enum { MOST = 400 };
static const int64_t timeout_ns = 2 * (int64_t)SECOND;

typedef struct case_s {
  int rank, of_malloc; /* the rank whose calls fail, and the failing calls */
  long calls, reached; /* the n-th call; whether it was made, in words[0] */
} case_t;

static void check_error(hal_status_t status) {
  CHECK(strlen(hal_error_message()) > 20, "%s: '%s' is no message", hal_status_name(status), hal_error_message());
  CHECK(strstr(hal_error_message(), "communicator 'fault"), "'%s' does not name the communicator", hal_error_message());
}

static void create_with_a_fault(int rank, int size, void *argument) {
  const case_t *const fault = argument;
  const int is_it = rank == fault->rank;
  hal_comm_transport_t comm;
  char name[32];
  snprintf(name, sizeof name, "fault%d.%ld", fault->rank, fault->calls);
  const hal_comm_hosts_t config = hosts_config(name, rank, size, timeout_ns);
  const int64_t start = hal_clock_ns();
  if (is_it && fault->of_malloc) hal_malloc_fail_after(fault->calls);
  if (is_it && !fault->of_malloc) hal_shm_fail_after(fault->calls);
  hal_status_t status = try_hosts(&config, &comm);
  float one = 1, sum = 0;
  const hal_collective_t call = {.dtype = HAL_FLOAT32, .send = &one, .recv = &sum, .count = 1};
  const int is_created = !status;
  if (is_created) status = run_one(&comm, call, timeout_ns);
  if (is_it) atomic_store(&board->reports[rank].words[0], fault->of_malloc ? 1 : !hal_shm_fail_after(0));
  if (status) check_error(status);
  CHECK(status || sum == (float)size, "the sum is %f", (double)sum);
  CHECK(hal_clock_ns() - start < 2 * timeout_ns, "it took %.3f s", (double)(hal_clock_ns() - start) / 1e9);
  atomic_store(&board->reports[rank].words[1], !status);
  if (is_created) comm.destroy(comm.context);
}

/* Returns the ranks with a result. */
static int run_case(const char *hosts, case_t *fault) {
  int done = 0;
  make_board();
  run_hosts(hosts, create_with_a_fault, fault);
  fault->reached = (long)atomic_load(&board->reports[fault->rank].words[0]);
  for (int rank = 0; rank < (int)strlen(hosts); rank++) done += (int)atomic_load(&board->reports[rank].words[1]);
  munmap(board, sizeof *board);
  return done;
}

static void sweep(int rank) {
  for (long calls = 1;; calls++) {
    cr_assert_lt(calls, MOST, "rank %d still makes calls", rank);
    case_t fault = {.rank = rank, .calls = calls};
    const int done = run_case("011", &fault);
    if (fault.reached) continue;
    cr_assert_eq(done, 3, "%d ranks have a result without a fault", done);
    cr_assert_gt(calls, 20, "only %ld calls", calls);
    return;
  }
}
Test(comm_hosts_fault, of_rank_0) { sweep(0); }
Test(comm_hosts_fault, of_rank_1) { sweep(1); }
Test(comm_hosts_fault, of_rank_2) { sweep(2); }

Test(comm_hosts_fault, no_memory) {
  for (int rank = 0; rank < 3; rank++)
    for (long calls = 1; calls <= 14; calls++) {
      case_t fault = {.rank = rank, .of_malloc = 1, .calls = calls};
      run_case("011", &fault);
    }
}
