/* comm_library.c: ranks as threads of one process, each with its own device, whose collectives run in a library: the
 * plugin `cuda` on the mock drivers. Random calls, of which some go through shared memory, and aborts from another
 * thread. For the thread sanitizer. Without these drivers it is skipped. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "checks.h"
#include "comm/comm_store.h"
#include "comm/shm/shm.h"
#include "timed.h"

enum { RANKS = 4, CALLS = 120, MOST = 4000, ABORTS = 6, SKIPPED = 77 };
static const int64_t timeout_ns = INT64_C(60000000000);

static store_t keys;
static hal_comm_store_t store = {.struct_size = sizeof store, .context = &keys, .set = store_set, .get = store_get};

typedef struct rank_s {
  int number;
  const char *name;
  uint64_t shared, own; /* states of random numbers: the same on all ranks, and another on each */
  hal_comm_t *_Atomic comm;
  hal_stream_t *stream;
  hal_block_t *block;
  int32_t *data; /* on the device */
  pthread_t thread;
} rank_t;

static uint32_t below(uint64_t *state, uint32_t bound) { return (uint32_t)(timed_random(state) >> 33) % bound; }

static void pause_for(uint32_t microseconds) {
  nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

static void start(rank_t *rank) {
  hal_comm_t *comm = NULL;
  hal_comm_config_t config = {.struct_size = sizeof config,
                              .device = rank->number,
                              .rank = rank->number,
                              .size = RANKS,
                              .timeout_ns = timeout_ns,
                              .name = rank->name};
  CHECK_OK(hal_comm_shm_create(&store, rank->name, rank->number, RANKS, timeout_ns, &config.transport));
  CHECK_OK(hal_comm_create(&config, &comm));
  CHECK_OK(hal_comm_connect_library(comm, 0, 0));
  CHECK_OK(hal_stream_acquire(rank->number, 0, &rank->stream));
  CHECK_OK(hal_memory_allocate(rank->number, rank->stream, 2 * MOST * sizeof(int32_t), &rank->block));
  rank->data = hal_memory_block_address(rank->block);
  atomic_store(&rank->comm, comm);
}

static void end(rank_t *rank) {
  hal_comm_destroy(atomic_load(&rank->comm), timeout_ns);
  CHECK_OK(hal_stream_synchronize(rank->stream));
  hal_memory_release(rank->block);
}

/* ---- random calls ------------------------------------------------------------------------------------------------ */

static int32_t element(int rank, int call, uint32_t i) {
  return (int32_t)(i * 7 + (uint32_t)(rank * 1003 + call)) % 1000;
}

static int32_t expected(const hal_collective_t *one, int rank, int call, uint32_t i) {
  int32_t sum = 0, most = element(0, call, i);
  if (one->op == HAL_COMM_BROADCAST) return element(one->peer, call, i);
  for (int r = 0; r < RANKS; r++) {
    const int32_t number = element(r, call, i);
    sum += number;
    most = number > most ? number : most;
  }
  (void)rank;
  return one->reduce == HAL_REDUCE_MAX ? most : sum;
}

/* Sums and broadcasts run in the library, maxima in shared memory or in the library; both keep the order of calls. */
static void call_once(rank_t *rank, int call) {
  static _Thread_local int32_t host[MOST];
  const uint32_t kind = below(&rank->shared, 3), count = 1 + below(&rank->shared, MOST),
                 flags = below(&rank->shared, 2);
  hal_comm_work_t *work = NULL;
  const hal_comm_entry_t entry = {.struct_size = sizeof entry, .flags = flags};
  const hal_collective_t one = {.struct_size = sizeof one,
                                .op = kind == 2 ? HAL_COMM_BROADCAST : HAL_COMM_ALL_REDUCE,
                                .reduce = kind == 1 ? HAL_REDUCE_MAX : HAL_REDUCE_SUM,
                                .dtype = HAL_INT32,
                                .peer = (int32_t)below(&rank->shared, RANKS),
                                .send = rank->data,
                                .recv = rank->data + MOST,
                                .count = count};
  for (uint32_t i = 0; i < count; i++) host[i] = element(rank->number, call, i);
  CHECK_OK(hal_memory_copy(rank->stream, rank->data, rank->number, host, HAL_HOST, count * sizeof *host));
  if (!below(&rank->own, 8)) pause_for(below(&rank->own, 400));
  hal_comm_t *const comm = atomic_load(&rank->comm);
  CHECK_OK(hal_comm_submit_logged(comm, rank->stream, &one, 1, 0, &entry, NULL, NULL, &work));
  if (below(&rank->own, 2)) CHECK_OK(hal_comm_work_synchronize(work, 0));
  CHECK_OK(hal_comm_work_wait(work, rank->stream, 0));
  CHECK_OK(hal_memory_copy(rank->stream, host, HAL_HOST, rank->data + MOST, rank->number, count * sizeof *host));
  CHECK_OK(hal_stream_synchronize(rank->stream));
  hal_comm_work_release(work);
  int wrong = 0;
  for (uint32_t i = 0; i < count; i++) wrong += host[i] != expected(&one, rank->number, call, i);
  CHECK(!wrong);
}

static void *run(void *argument) {
  rank_t *const rank = argument;
  start(rank);
  for (int call = 0; call < CALLS; call++) call_once(rank, call);
  end(rank);
  return NULL;
}

/* ---- aborts ------------------------------------------------------------------------------------------------------ */

static void *run_until_aborted(void *argument) {
  rank_t *const rank = argument;
  hal_status_t status = HAL_OK;
  start(rank);
  while (!status) {
    hal_comm_work_t *work = NULL;
    const hal_collective_t one = {.struct_size = sizeof one,
                                  .op = HAL_COMM_ALL_REDUCE,
                                  .dtype = HAL_INT32,
                                  .send = rank->data,
                                  .recv = rank->data,
                                  .count = MOST};
    status = hal_comm_submit(atomic_load(&rank->comm), rank->stream, &one, 1, 0, NULL, NULL, &work);
    if (!status) status = hal_comm_work_synchronize(work, 0);
    hal_comm_work_release(work);
  }
  CHECK(status == HAL_ABORTED);
  return NULL;
}

static void start_all(rank_t *ranks, const char *name, uint64_t seed, void *(*function)(void *)) {
  memset(&keys, 0, sizeof keys); /* no rank runs */
  for (int r = 0; r < RANKS; r++) {
    ranks[r].number = r;
    ranks[r].name = name;
    ranks[r].shared = seed;
    ranks[r].own = seed + (uint64_t)r + 1;
    atomic_store(&ranks[r].comm, NULL);
    CHECK(pthread_create(&ranks[r].thread, NULL, function, &ranks[r]) == 0);
  }
}

static void join_all(rank_t *ranks) {
  for (int r = 0; r < RANKS; r++) pthread_join(ranks[r].thread, NULL);
}

static int all_joined(rank_t *ranks) {
  int joined = 0;
  for (int r = 0; r < RANKS; r++) joined += atomic_load(&ranks[r].comm) != NULL;
  return joined == RANKS;
}

int main(void) {
  static rank_t ranks[RANKS];
  setenv("CUDA_MOCK_DEVICES", "4", 1);
  setenv("HAL_CUDA_NCCL", NCCL, 1);
  const hal_status_t status = hal_registry_open(PLUGIN_DIR "/libhal_cuda.so");
  if (status || hal_device_count() < RANKS) {
    fprintf(stderr, "SKIPPED: %s\n", status ? hal_error_message() : hal_registry_report());
    return SKIPPED;
  }
  start_all(ranks, "random", 1, run);
  join_all(ranks);
  for (int i = 0; i < ABORTS && !atomic_load(&mistakes); i++) {
    start_all(ranks, "abort", 2, run_until_aborted);
    while (!all_joined(ranks)) pause_for(100);
    pause_for((uint32_t)i * 500);
    hal_comm_abort(atomic_load(&ranks[2].comm), "stop");
    join_all(ranks);
    for (int r = 0; r < RANKS; r++) end(&ranks[r]);
  }
  hal_registry_close();
  printf("%d mistakes\n", atomic_load(&mistakes));
  return atomic_load(&mistakes) != 0;
}
