/* comm_latency.c: the cost of one collective through hal/comm.h, between processes of this machine, on a device.
 *
 *   HAL_PLUGIN_PATH=<folder of libhal_fake.so> bench_comm_latency [calls per row] [plugin] [row]
 *
 * A row is an operator, a size and a number of ranks. It has the median microseconds of a call with its wait, and of
 * the submission alone, of the slowest rank. It also has the voluntary context switches of a rank's threads per
 * call, which depend less on the load of the machine. A row's name selects only that row, for example for perf or
 * strace. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../hal/comm/comm_store.h"
#include "base/clock.h"
#include "hal/hal.h"

enum { RANKS = 4, MOST = 20000 };
static const int64_t timeout_ns = INT64_C(60000000000);

/* Shared by the ranks of a row: a store, and the measurements of each rank. */
typedef struct board_s {
  store_t store;
  double call_us[RANKS], submit_us[RANKS], switches[RANKS];
} board_t;
static board_t *board;

static void must(hal_status_t status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", what, hal_error_message());
  _exit(1);
}

/* ---- a rank ---- */

typedef struct row_s {
  const char *name;
  uint32_t op;
  size_t bytes; /* of the memory that a rank passes */
  int ranks, synchronous, staged;
} row_t;

typedef struct rank_s {
  const row_t *row;
  int number;
  hal_comm_t *comm;
  hal_stream_t *stream;
  hal_block_t *in, *out;
} rank_t;

static void start(rank_t *rank, const char *plugin) {
  const hal_comm_store_t store = store_of(&board->store);
  hal_comm_config_t config = {.struct_size = sizeof config, .rank = rank->number, .size = rank->row->ranks};
  config.name = "bench";
  must(hal_registry_open(plugin), "opening the plugin");
  must(hal_stream_acquire(0, 0, &rank->stream), "a stream");
  must(hal_memory_allocate(0, rank->stream, rank->row->bytes * RANKS, &rank->in), "memory");
  must(hal_memory_allocate(0, rank->stream, rank->row->bytes * RANKS, &rank->out), "memory");
  must(hal_comm_transport_shared_memory(&store, rank->row->name, rank->number, rank->row->ranks, timeout_ns,
                                        &config.transport),
       "the transport");
  must(hal_comm_create(&config, &rank->comm), "the communicator");
}

static hal_comm_work_t *submit(rank_t *rank, int synchronous) {
  const row_t *const row = rank->row;
  const int divides = row->op == HAL_COMM_REDUCE_SCATTER || row->op == HAL_COMM_ALL_TO_ALL;
  const hal_collective_t call = {.struct_size = sizeof call,
                                 .op = row->op,
                                 .dtype = HAL_FLOAT32,
                                 .send = hal_memory_block_address(rank->in),
                                 .recv = hal_memory_block_address(rank->out),
                                 .count = row->bytes / sizeof(float) / (size_t)(divides ? row->ranks : 1)};
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = synchronous ? HAL_COMM_CALLER_WAITS : 0};
  hal_comm_work_t *work;
  must(hal_comm_submit_logged(rank->comm, rank->stream, &call, 1, 0, &entry, NULL, NULL, &work), "submitting");
  return work;
}

static void finish(rank_t *rank, hal_comm_work_t *work) {
  must(hal_comm_work_wait(work, rank->stream, 0), "waiting");
  hal_comm_work_release(work);
  must(hal_stream_synchronize(rank->stream), "synchronizing");
}

static int compare(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static double median_us(int64_t *times, int count) {
  qsort(times, (size_t)count, sizeof *times, compare);
  return (double)times[count / 2] / 1e3;
}

static long switches(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

static int run_rank(const row_t *row, int number, int calls, const char *plugin) {
  static int64_t all[MOST], submits[MOST];
  rank_t rank = {.row = row, .number = number};
  start(&rank, plugin);
  for (int i = 0; i < 20; i++) finish(&rank, submit(&rank, row->synchronous));
  const long before = switches();
  for (int i = 0; i < calls; i++) {
    const int64_t begin = hal_clock_ns();
    hal_comm_work_t *const work = submit(&rank, row->synchronous);
    submits[i] = hal_clock_ns() - begin;
    finish(&rank, work);
    all[i] = hal_clock_ns() - begin;
  }
  board->switches[number] = (double)(switches() - before) / calls;
  board->call_us[number] = median_us(all, calls);
  board->submit_us[number] = median_us(submits, calls);
  hal_comm_destroy(rank.comm, timeout_ns);
  hal_memory_release(rank.in);
  hal_memory_release(rank.out);
  hal_registry_close();
  return 0;
}

/* ---- rows ---- */

static double most(const double *of_ranks, int ranks) {
  double found = 0;
  for (int i = 0; i < ranks; i++) found = of_ranks[i] > found ? of_ranks[i] : found;
  return found;
}

static int run_row(const row_t *row, int calls, const char *plugin) {
  int failed = 0;
  memset(board, 0, sizeof *board);
  fflush(stdout); /* which each rank would write again */
  if (row->staged) setenv("HAL_FAKE_PROTECT", "1", 1);
  for (int number = 0; number < row->ranks; number++)
    if (fork() == 0) _exit(run_rank(row, number, calls, plugin));
  for (int number = 0, status; number < row->ranks; number++) failed |= wait(&status) < 0 || status != 0;
  unsetenv("HAL_FAKE_PROTECT");
  if (failed) return failed;
  printf("%-24s %5d %9zu %9.1f %9.1f %9.2f\n", row->name, row->ranks, row->bytes, most(board->call_us, row->ranks),
         most(board->submit_us, row->ranks), most(board->switches, row->ranks));
  fflush(stdout);
  return 0;
}

int main(int argument_count, char **arguments) {
  static const row_t rows[] = {
      {"all_reduce_1k", HAL_COMM_ALL_REDUCE, 1 << 10, 2, 1, 0},
      {"all_reduce_1k_4", HAL_COMM_ALL_REDUCE, 1 << 10, 4, 1, 0},
      {"async_all_reduce_1k", HAL_COMM_ALL_REDUCE, 1 << 10, 2, 0, 0},
      {"async_all_reduce_64k", HAL_COMM_ALL_REDUCE, 1 << 16, 2, 0, 0},
      {"staged_all_reduce_1k", HAL_COMM_ALL_REDUCE, 1 << 10, 2, 1, 1},
      {"all_reduce_64k", HAL_COMM_ALL_REDUCE, 1 << 16, 2, 1, 0},
      {"all_reduce_64k_4", HAL_COMM_ALL_REDUCE, 1 << 16, 4, 1, 0},
      {"all_reduce_1m", HAL_COMM_ALL_REDUCE, 1 << 20, 2, 1, 0},
      {"all_reduce_1m_4", HAL_COMM_ALL_REDUCE, 1 << 20, 4, 1, 0},
      {"all_gather_64k", HAL_COMM_ALL_GATHER, 1 << 16, 2, 1, 0},
      {"reduce_scatter_64k", HAL_COMM_REDUCE_SCATTER, 1 << 16, 2, 1, 0},
      {"all_to_all_64k", HAL_COMM_ALL_TO_ALL, 1 << 16, 2, 1, 0},
      {"all_to_all_64k_4", HAL_COMM_ALL_TO_ALL, 1 << 16, 4, 1, 0},
      {"all_to_all_1m", HAL_COMM_ALL_TO_ALL, 1 << 20, 2, 1, 0},
      {"broadcast_64k", HAL_COMM_BROADCAST, 1 << 16, 2, 1, 0},
      {"broadcast_1m", HAL_COMM_BROADCAST, 1 << 20, 2, 1, 0},
  };
  const int calls = argument_count > 1 ? atoi(arguments[1]) : 1000;
  const char *const plugin = argument_count > 2 ? arguments[2] : "fake";
  const char *const only = argument_count > 3 ? arguments[3] : NULL;
  if (calls < 1 || calls > MOST) {
    fprintf(stderr, "usage: %s [calls per row, 1 to %d] [plugin] [row]\n", arguments[0], MOST);
    return 2;
  }
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED) return 1;
  double load = 0;
  getloadavg(&load, 1);
  printf("%ld processors, load %.1f, %d calls\n", sysconf(_SC_NPROCESSORS_ONLN), load, calls);
  printf("%-24s ranks     bytes   call us submit us  switches\n", "row");
  int failed = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!only || !strcmp(only, rows[i].name)) failed |= run_row(&rows[i], calls, plugin);
  return failed;
}
