/* comm_shm.c: ranks as threads of one process, with random calls, equal on all ranks, after different pauses. For
 * the thread sanitizer: state private to a rank, and an abort from another thread at any time. Each rank checks its
 * results. The argument is the host of each rank, such as 0011: collectives over several hosts. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checks.h"
#include "comm/comm_store.h"
#include "comm/hierarchy/hierarchy.h"
#include "comm/shm/shm.h"
#include "hal/status.h"

enum { RANKS = 4, CALLS = 400, MOST = 1 << 20, ABORTS = 30 };
static const int64_t timeout_ns = INT64_C(60000000000);

/* ---- transports ---- */

static store_t keys;
static hal_comm_store_t store = {.struct_size = sizeof store, .context = &keys, .set = store_set, .get = store_get};
static const char *hosts; /* the host of each rank, such as "0011"; NULL: shared memory alone */

static hal_status_t connect_ranks(void *context, const char *use, int32_t rank, int32_t size,
                                  const hal_comm_store_t *of, int64_t limit_ns, hal_comm_transport_t *out) {
  char name[128];
  snprintf(name, sizeof name, "%s/%s", (const char *)context, use);
  return hal_comm_shm_create(of, name, rank, size, limit_ns, out);
}

static hal_status_t make_transport(const char *name, int rank, hal_comm_transport_t *out) {
  const hal_comm_hosts_t config = {.struct_size = sizeof config,
                                   .store = &store,
                                   .name = name,
                                   .rank = rank,
                                   .size = RANKS,
                                   .timeout_ns = timeout_ns,
                                   .context = (void *)(uintptr_t)name,
                                   .connect = connect_ranks};
  if (!hosts) return hal_comm_shm_create(&store, name, rank, RANKS, timeout_ns, out);
  return hal_hier_create(&config, (const char[]){hosts[rank], '\0'}, out);
}

/* ---- random calls ---- */

typedef struct rank_s {
  int number;
  const char *name;
  hal_comm_transport_t comm;
  uint64_t shared, own; /* states of random numbers: the same on all ranks, and another on each */
  int32_t *send, *recv;
  pthread_t thread;
} rank_t;

static uint32_t draw(uint64_t *state, uint32_t below) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33) % below;
}

/* Element i that rank `from` has for rank `to` in a call. */
static int32_t element(int from, int to, int call, uint64_t i) {
  return (int32_t)i * 7 + from * 1000003 + to * 101 + call;
}

static hal_status_t run(rank_t *rank, hal_collective_t call) {
  call.struct_size = sizeof call;
  call.dtype = HAL_INT32;
  call.send = rank->send;
  call.recv = rank->recv;
  return rank->comm.run(rank->comm.context, &call, 1, timeout_ns);
}

static void reduce(rank_t *rank, int call, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) rank->send[i] = element(rank->number, 0, call, i) % 1000;
  CHECK_OK(run(rank, (hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .count = count}));
  int wrong = 0;
  for (uint64_t i = 0; i < count; i++) {
    int32_t sum = 0;
    for (int r = 0; r < RANKS; r++) sum += element(r, 0, call, i) % 1000;
    wrong += rank->recv[i] != sum;
  }
  CHECK(!wrong);
}

static void exchange(rank_t *rank, int call, uint64_t count) {
  for (int to = 0; to < RANKS; to++)
    for (uint64_t i = 0; i < count; i++) rank->send[(uint64_t)to * count + i] = element(rank->number, to, call, i);
  CHECK_OK(run(rank, (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL, .count = count}));
  int wrong = 0;
  for (int from = 0; from < RANKS; from++)
    for (uint64_t i = 0; i < count; i++)
      wrong += rank->recv[(uint64_t)from * count + i] != element(from, rank->number, call, i);
  CHECK(!wrong);
}

static void broadcast(rank_t *rank, int call, uint64_t count, int root) {
  for (uint64_t i = 0; i < count; i++) rank->send[i] = element(rank->number, 0, call, i);
  CHECK_OK(run(rank, (hal_collective_t){.op = HAL_COMM_BROADCAST, .count = count, .peer = root}));
  int wrong = 0;
  for (uint64_t i = 0; i < count; i++) wrong += rank->recv[i] != element(root, 0, call, i);
  CHECK(!wrong);
}

/* To the next rank and from the one before. */
static void pass_on(rank_t *rank, int call, uint64_t count) {
  const int next = (rank->number + 1) % RANKS, last = (rank->number + RANKS - 1) % RANKS;
  for (uint64_t i = 0; i < count; i++) rank->send[i] = element(rank->number, next, call, i);
  const hal_collective_t both[] = {{.struct_size = sizeof both[0],
                                    .op = HAL_COMM_SEND,
                                    .dtype = HAL_INT32,
                                    .peer = next,
                                    .send = rank->send,
                                    .count = count},
                                   {.struct_size = sizeof both[0],
                                    .op = HAL_COMM_RECV,
                                    .dtype = HAL_INT32,
                                    .peer = last,
                                    .recv = rank->recv,
                                    .count = count}};
  CHECK_OK(rank->comm.run(rank->comm.context, both, 2, timeout_ns));
  int wrong = 0;
  for (uint64_t i = 0; i < count; i++) wrong += rank->recv[i] != element(last, rank->number, call, i);
  CHECK(!wrong);
}

static void start(rank_t *rank) { CHECK_OK(make_transport(rank->name, rank->number, &rank->comm)); }

static void *run_rank(void *argument) {
  rank_t *const rank = argument;
  start(rank);
  for (int call = 0; call < CALLS; call++) {
    const uint32_t kind = draw(&rank->shared, 4), root = draw(&rank->shared, RANKS);
    const uint64_t count = draw(&rank->shared, draw(&rank->shared, 6) ? 3000 : MOST / RANKS);
    if (!draw(&rank->own, 8)) nanosleep(&(struct timespec){.tv_nsec = draw(&rank->own, 400000)}, NULL);
    if (kind == 0) reduce(rank, call, count);
    if (kind == 1) exchange(rank, call, count);
    if (kind == 2) broadcast(rank, call, count, (int)root);
    if (kind == 3 && !hosts) pass_on(rank, call, count); /* over several hosts SEND and RECV come alone */
  }
  rank->comm.destroy(rank->comm.context);
  return NULL;
}

/* ---- messages of other threads during the collectives ---- */

enum { MESSAGES = 40 };

typedef struct courier_s {
  rank_t *rank;
  int peer, is_sender;
  pthread_t thread;
} courier_t;

/* All messages of one rank to another one, with sizes that both compute. A receiver receives the tags of each four
 * in another order. */
static void *carry(void *argument) {
  courier_t *const courier = argument;
  const int own = courier->rank->number;
  const int from = courier->is_sender ? own : courier->peer, to = courier->is_sender ? courier->peer : own;
  uint64_t state = (uint64_t)(from * RANKS + to);
  int32_t *const data = malloc(MOST / 8 * sizeof *data);
  uint64_t counts[MESSAGES];
  for (int i = 0; i < MESSAGES; i++) counts[i] = draw(&state, draw(&state, 4) ? 2000 : MOST / 8);
  for (int i = 0; data && i < MESSAGES; i++) {
    const int number = courier->is_sender ? i : i ^ 3;
    int wrong = 0;
    for (uint64_t k = 0; k < counts[number] && courier->is_sender; k++) data[k] = element(from, to, number, k);
    const hal_collective_t call = {.struct_size = sizeof call,
                                   .op = courier->is_sender ? HAL_COMM_SEND : HAL_COMM_RECV,
                                   .dtype = HAL_INT32,
                                   .peer = courier->peer,
                                   .tag = (uint32_t)number,
                                   .send = data,
                                   .recv = data,
                                   .count = counts[number]};
    CHECK_OK(courier->rank->comm.run(courier->rank->comm.context, &call, 1, timeout_ns));
    for (uint64_t k = 0; k < counts[number] && !courier->is_sender; k++)
      wrong += data[k] != element(from, to, number, k);
    CHECK(!wrong);
  }
  CHECK(data);
  free(data);
  return NULL;
}

/* Messages of a rank to itself go through shared memory alone. */
static int is_refused(const courier_t *courier) { return hosts && courier->peer == courier->rank->number; }

static void *run_during_messages(void *argument) {
  rank_t *const rank = argument;
  courier_t couriers[2 * RANKS];
  start(rank);
  for (int i = 0; i < 2 * RANKS; i++) {
    couriers[i] = (courier_t){.rank = rank, .peer = i / 2, .is_sender = i % 2};
    if (is_refused(&couriers[i])) continue;
    CHECK(pthread_create(&couriers[i].thread, NULL, carry, &couriers[i]) == 0);
  }
  for (int call = 0; call < CALLS / 4; call++) {
    const uint64_t count = draw(&rank->shared, draw(&rank->shared, 6) ? 3000 : MOST / RANKS);
    if (call % 2) reduce(rank, call, count);
    if (call % 2 == 0) exchange(rank, call, count);
  }
  for (int i = 0; i < 2 * RANKS; i++)
    if (!is_refused(&couriers[i])) pthread_join(couriers[i].thread, NULL);
  rank->comm.destroy(rank->comm.context);
  return NULL;
}

/* ---- aborts ---- */

static atomic_int joined;

static void *run_until_aborted(void *argument) {
  rank_t *const rank = argument;
  hal_status_t status = HAL_OK;
  start(rank);
  atomic_fetch_add(&joined, 1);
  while (!status) status = run(rank, (hal_collective_t){.op = HAL_COMM_ALL_REDUCE, .count = 10000});
  CHECK(status == HAL_ABORTED && strstr(hal_error_message(), "rank 2 aborted: stop"));
  return NULL;
}

static void start_all(rank_t *ranks, const char *name, uint64_t seed, void *(*function)(void *)) {
  memset(&keys, 0, sizeof keys); /* no rank runs */
  for (int r = 0; r < RANKS; r++) {
    ranks[r].number = r;
    ranks[r].name = name;
    ranks[r].shared = seed;
    ranks[r].own = seed + (uint64_t)r + 1;
    CHECK(pthread_create(&ranks[r].thread, NULL, function, &ranks[r]) == 0);
  }
}

static void join_all(rank_t *ranks) {
  for (int r = 0; r < RANKS; r++) pthread_join(ranks[r].thread, NULL);
}

int main(int argument_count, char **arguments) {
  static rank_t ranks[RANKS];
  hosts = argument_count > 1 ? arguments[1] : NULL;
  for (int r = 0; r < RANKS; r++) {
    ranks[r].send = malloc(MOST * sizeof(int32_t));
    ranks[r].recv = malloc(MOST * sizeof(int32_t));
    if (!ranks[r].send || !ranks[r].recv) return 1;
  }
  start_all(ranks, "random", 1, run_rank);
  join_all(ranks);
  start_all(ranks, "during", 3, run_during_messages);
  join_all(ranks);
  for (int i = 0; i < ABORTS; i++) {
    atomic_store(&joined, 0);
    start_all(ranks, "abort", 2, run_until_aborted);
    while (atomic_load(&joined) < RANKS) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = i * 50000}, NULL);
    ranks[2].comm.abort(ranks[2].comm.context, "stop");
    join_all(ranks);
    for (int r = 0; r < RANKS; r++) ranks[r].comm.destroy(ranks[r].comm.context);
  }
  for (int r = 0; r < RANKS; r++) {
    free(ranks[r].send);
    free(ranks[r].recv);
  }
  return atomic_load(&mistakes) != 0;
}
