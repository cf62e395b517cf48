/* comm_shm_wait.c: how often a rank that waits for others is woken. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <sys/resource.h>

#include "comm_testing.h"

enum { SIZE = 4, ROUNDS = 5 };

static long sleeps(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/* Rank 0 waits for all others, which arrive one after another, in less time than it sleeps without being woken. */
static void arrive_in_order(int rank, int size, void *argument) {
  const hal_collective_t call = {.op = HAL_COMM_BARRIER};
  hal_comm_transport_t comm;
  long least = 1000;
  (void)argument;
  create("wait", rank, size, &comm);
  for (int round = 0; round < ROUNDS; round++) {
    CHECK_OK(run_one(&comm, call, SECOND));
    nanosleep(&(struct timespec){.tv_nsec = 15000000 * rank}, NULL);
    const long before = sleeps();
    CHECK_OK(run_one(&comm, call, SECOND));
    if (sleeps() - before < least) least = sleeps() - before;
  }
  CHECK(rank || least <= 1, "the rank slept %ld times in each of %d calls", least, ROUNDS);
  comm.destroy(comm.context);
}

Test(comm_shm_wait, a_rank_that_waits_for_all_is_woken_by_the_last) { run_ranks(SIZE, arrive_in_order, NULL); }
