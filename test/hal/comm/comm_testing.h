/* comm_testing.h: ranks as child processes, a store in memory that they share, and the reports of the ranks. */
#ifndef TEST_HAL_COMM_TESTING_H_
#define TEST_HAL_COMM_TESTING_H_

#include <criterion/criterion.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/dtype.h"
#include "comm/shm/shm.h"
#include "comm/shm/system.h"
#include "comm_store.h"
#include "hal/status.h"

enum { RANKS = 64, SECOND = 1000000000 };

typedef struct report_s {
  _Atomic int failed;
  char text[1200];
  _Atomic uint64_t words[8]; /* for values that a test compares */
} report_t;

typedef struct board_s {
  store_t store;
  report_t reports[RANKS];
  _Atomic int stage; /* for tests that need a separate order */
} board_t;
static board_t *board;

/* On the shared board, after it is created. */
static hal_comm_store_t test_store = {.struct_size = sizeof test_store, .set = store_set, .get = store_get};

static inline void make_board(void) {
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(board, MAP_FAILED);
  test_store.context = &board->store;
}

/* ---- in a child ---- */

static int own_rank;

static inline void HAL_PRINTF(1, 2) fail_rank(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(board->reports[own_rank].text, sizeof board->reports[own_rank].text, format, arguments);
  va_end(arguments);
  atomic_store(&board->reports[own_rank].failed, 1);
  _exit(1);
}

#define CHECK(condition, ...)                 \
  do {                                        \
    if (!(condition)) fail_rank(__VA_ARGS__); \
  } while (0)
#define CHECK_OK(call)                                                                                      \
  do {                                                                                                      \
    const hal_status_t status_ = (call);                                                                    \
    CHECK(!status_, "line %d: %s: %s: %s", __LINE__, #call, hal_status_name(status_), hal_error_message()); \
  } while (0)
/* The call must fail with the code, and its message must contain each of the texts, up to NULL. */
static inline void check_fails(int line, hal_status_t status, hal_status_t code, const char *const *texts) {
  CHECK(status == code, "line %d: %s instead of %s: %s", line, hal_status_name(status), hal_status_name(code),
        hal_error_message());
  for (; *texts; texts++)
    CHECK(strstr(hal_error_message(), *texts), "line %d: message '%s' lacks '%s'", line, hal_error_message(), *texts);
}
#define CHECK_FAILS(call, code, ...) check_fails(__LINE__, (call), (code), (const char *const[]){__VA_ARGS__, NULL})

static inline hal_status_t run_one(hal_comm_transport_t *comm, hal_collective_t call, int64_t timeout_ns) {
  call.struct_size = sizeof call;
  return comm->run(comm->context, &call, 1, timeout_ns);
}

static inline void wait_stage(int stage) {
  while (atomic_load(&board->stage) < stage) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* ---- in the parent ---- */

typedef void (*rank_t)(int rank, int size, void *argument);

static inline pid_t start_rank(int rank, int size, rank_t function, void *argument) {
  fflush(NULL);
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid) return pid;
  own_rank = rank;
  alarm(100); /* a rank that hangs is terminated, and is reported by its signal */
  function(rank, size, argument);
  _exit(0);
}

/* Waits for a rank. It must exit with success, or by `signal_number`. */
static inline void join_rank(int rank, pid_t pid, int signal_number) {
  int status = 0;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  if (signal_number) {
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == signal_number, "rank %d was to end by signal %d: status %x",
              rank, signal_number, status);
    return;
  }
  cr_assert(!atomic_load(&board->reports[rank].failed), "rank %d: %s", rank, board->reports[rank].text);
  cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "rank %d ended with status %x", rank, status);
}

static inline void run_ranks(int size, rank_t function, void *argument) {
  pid_t pids[RANKS];
  if (!board) make_board();
  for (int rank = 0; rank < size; rank++) pids[rank] = start_rank(rank, size, function, argument);
  int all = 1;
  for (int rank = 0; rank < size; rank++) {
    int status = 0;
    waitpid(pids[rank], &status, 0);
    if (WIFEXITED(status) && !WEXITSTATUS(status)) continue;
    all = 0;
    fprintf(stderr, "rank %d ended with status %x: %s\n", rank, (unsigned)status, board->reports[rank].text);
  }
  cr_assert(all, "a rank has failed");
}

static inline void create(const char *name, int rank, int size, hal_comm_transport_t *out) {
  CHECK_OK(hal_comm_shm_create(&test_store, name, rank, size, 20 * (int64_t)SECOND, out));
}

#endif /* TEST_HAL_COMM_TESTING_H_ */
