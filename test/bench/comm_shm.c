/* comm_shm.c: microseconds of all_reduce in shared memory, from C, between processes of this machine.
 *
 *   bench_comm_shm [seconds per row]
 *
 * Each row is the best of all repetitions, which last as long as their slowest rank: the elapsed time, and the
 * processor time of a rank, which depends less on other programs of the machine. Processor time includes the
 * spinning while a rank waits. "of the bound" compares both times with copies in the same run: all ranks copy the
 * message between private buffers at the same time. The algorithm must move at least (n - 1) / n of the message into
 * shared memory and as much out of it. It also reads 1 / n of the message n times and writes it once, in the part
 * that a rank reduces, which counts as (n + 1) / 2 copies of that part. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../hal/comm/comm_store.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "comm/shm/shm.h"
#include "hal/status.h"

enum { RANKS = 4, LARGEST = 64 << 20 };

/* Shared by all ranks: a store, and a barrier for the timing. */
typedef struct board_s {
  store_t store;
  _Atomic unsigned arrived, turn;
  _Atomic int64_t passed[RANKS], used_by[RANKS]; /* nanoseconds of the last repetition, and of the processor */
  _Atomic int goes_on;
} board_t;
static board_t *board;

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, hal_error_message());
  _exit(1);
}

typedef struct rank_s {
  hal_comm_transport_t comm;
  int rank, size;
  unsigned char *in, *out;
} rank_t;

static void barrier(rank_t *rank) {
  const hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_BARRIER};
  if (rank->comm.run(rank->comm.context, &call, 1, INT64_C(60000000000))) die("barrier");
}

static void reduce(rank_t *rank, hal_dtype_t dtype, size_t bytes) {
  const hal_collective_t call = {.struct_size = sizeof call,
                                 .dtype = dtype,
                                 .send = rank->in,
                                 .recv = rank->out,
                                 .count = bytes / hal_dtype_size(dtype)};
  if (rank->comm.run(rank->comm.context, &call, 1, INT64_C(60000000000))) die("all_reduce");
}

static void copy(rank_t *rank, hal_dtype_t dtype, size_t bytes) {
  (void)dtype;
  memcpy(rank->out, rank->in, bytes);
}

static int64_t processor_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

typedef struct times_s {
  double passed, used; /* microseconds of a call */
} times_t;

/* Keeps the better times of two, each of the slowest rank. */
static void keep_best(times_t *best, int size, int repeats) {
  times_t slowest = {0, 0};
  for (int r = 0; r < size; r++) {
    const double passed = (double)atomic_load(&board->passed[r]) / 1e3 / repeats;
    const double used = (double)atomic_load(&board->used_by[r]) / 1e3 / repeats;
    if (passed > slowest.passed) slowest.passed = passed;
    if (used > slowest.used) slowest.used = used;
  }
  if (slowest.passed < best->passed) best->passed = slowest.passed;
  if (slowest.used < best->used) best->used = slowest.used;
}

/* The best times of `repeats` calls in a row. */
static times_t best_of(rank_t *rank, void (*work)(rank_t *, hal_dtype_t, size_t), hal_dtype_t dtype, size_t bytes,
                       double seconds) {
  const int repeats = bytes <= 65536 ? 50 : bytes <= 1 << 20 ? 10 : 1;
  const int64_t begin = hal_clock_ns();
  times_t best = {1e300, 1e300};
  work(rank, dtype, bytes); /* the first use of memory is not measured */
  do {
    barrier(rank);
    const int64_t start = hal_clock_ns(), start_used = processor_ns();
    for (int i = 0; i < repeats; i++) work(rank, dtype, bytes);
    atomic_store(&board->used_by[rank->rank], processor_ns() - start_used);
    atomic_store(&board->passed[rank->rank], hal_clock_ns() - start);
    barrier(rank);
    keep_best(&best, rank->size, repeats);
    if (rank->rank == 0) atomic_store(&board->goes_on, (double)(hal_clock_ns() - begin) / 1e9 < seconds);
    barrier(rank);
  } while (atomic_load(&board->goes_on));
  return best;
}

static void rows(rank_t *rank, double seconds) {
  static const size_t sizes[] = {1 << 10, 1 << 16, 1 << 20, LARGEST};
  static const hal_dtype_t dtypes[] = {HAL_FLOAT32, HAL_BFLOAT16};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const times_t copied = best_of(rank, copy, HAL_UINT8, sizes[s], seconds);
    for (size_t d = 0; d < 2; d++) {
      const times_t time = best_of(rank, reduce, dtypes[d], sizes[s], seconds);
      const double n = rank->size, copies = 2 * (n - 1) / n + (n + 1) / 2 / n;
      if (rank->rank == 0)
        printf("%d ranks  %-9s %9zu bytes  %10.1f us  %5.2f of the bound   processor %10.1f us  %5.2f of the bound\n",
               rank->size, hal_dtype_name(dtypes[d]), sizes[s], time.passed, copied.passed * copies / time.passed,
               time.used, copied.used * copies / time.used);
      fflush(stdout);
    }
  }
}

static int run_rank(int number, int size, double seconds) {
  const hal_comm_store_t store = store_of(&board->store);
  rank_t rank = {.rank = number, .size = size, .in = malloc(LARGEST), .out = malloc(LARGEST)};
  if (!rank.in || !rank.out) return 1;
  memset(rank.in, 0x3f, LARGEST); /* numbers near 1 in both types */
  memset(rank.out, 0x3f, LARGEST);
  char name[16];
  snprintf(name, sizeof name, "bench%d", size);
  if (hal_comm_shm_create(&store, name, number, size, INT64_C(20000000000), &rank.comm)) die("hal_comm_shm_create");
  rows(&rank, seconds);
  rank.comm.destroy(rank.comm.context);
  free(rank.in);
  free(rank.out);
  return 0;
}

int main(int argument_count, char **arguments) {
  const double seconds = argument_count > 1 ? strtod(arguments[1], NULL) : 1;
  if (!(seconds > 0)) {
    fprintf(stderr, "usage: %s [seconds per row]\n", arguments[0]);
    return 2;
  }
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED) return 1;
  printf("all_reduce in shared memory, %ld processors, best of %.1f s per row\n", sysconf(_SC_NPROCESSORS_ONLN),
         seconds);
  int failed = 0;
  for (int size = 2; size <= RANKS; size += 2) {
    fflush(NULL);
    for (int rank = 0; rank < size; rank++)
      if (fork() == 0) _exit(run_rank(rank, size, seconds));
    for (int rank = 0, status; rank < size; rank++) failed |= wait(&status) < 0 || status != 0;
  }
  return failed;
}
