/* Tests of SEND and RECV over several hosts: between all pairs of ranks, from threads concurrent with collectives,
 * and of brackets that are refused. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>

#include "comm_hosts_testing.h"

enum { COUNT = 100003, ROUNDS = 5 };

static int32_t number_of(int from, int to, int round, int i) { return from * 1000003 + to * 10007 + round * 101 + i; }

typedef struct peer_s {
  hal_comm_transport_t *comm;
  int rank, peer;
  uint32_t op;
  pthread_t thread;
  int32_t *data;
  char error[256]; /* empty: none */
} peer_t;

static void *exchange(void *argument) {
  peer_t *const peer = argument;
  for (int round = 0; round < ROUNDS && !peer->error[0]; round++) {
    const int count = round ? COUNT / round : 0; /* an empty one, too */
    const int is_send = peer->op == HAL_COMM_SEND;
    for (int i = 0; is_send && i < count; i++) peer->data[i] = number_of(peer->rank, peer->peer, round, i);
    const hal_collective_t call = {.op = peer->op,
                                   .dtype = HAL_INT32,
                                   .peer = peer->peer,
                                   .send = peer->data,
                                   .recv = peer->data,
                                   .count = (uint64_t)count,
                                   .tag = 3};
    if (run_one(peer->comm, call, 20 * (int64_t)SECOND))
      snprintf(peer->error, sizeof peer->error, "%s", hal_error_message());
    for (int i = 0; !is_send && !peer->error[0] && i < count; i++)
      if (peer->data[i] != number_of(peer->peer, peer->rank, round, i))
        snprintf(peer->error, sizeof peer->error, "element %d of round %d from rank %d is %d", i, round, peer->peer,
                 (int)peer->data[i]);
  }
  return NULL;
}

static void exchange_all(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  static peer_t peers[2 * RANKS];
  (void)argument;
  create_hosts("pairs", rank, size, &comm);
  for (int i = 0; i < 2 * size; i++) {
    peers[i] = (peer_t){.comm = &comm, .rank = rank, .peer = i / 2, .op = i % 2 ? HAL_COMM_SEND : HAL_COMM_RECV};
    if (peers[i].peer == rank) continue;
    peers[i].data = malloc(COUNT * sizeof(int32_t));
    CHECK(peers[i].data && !pthread_create(&peers[i].thread, NULL, exchange, &peers[i]), "no thread");
  }
  for (int i = 0; i < 20; i++) {
    const int64_t one = i;
    int64_t sum = 0;
    CHECK_OK(run_one(&comm, (hal_collective_t){.dtype = HAL_INT64, .send = &one, .recv = &sum, .count = 1},
                     20 * (int64_t)SECOND));
    CHECK(sum == (int64_t)i * size, "the sum is %lld", (long long)sum);
  }
  for (int i = 0; i < 2 * size; i++) {
    if (peers[i].peer == rank) continue;
    pthread_join(peers[i].thread, NULL);
    CHECK(!peers[i].error[0], "%s", peers[i].error);
    free(peers[i].data);
  }
  comm.destroy(comm.context);
}
Test(comm_hosts_message, of_two_and_two) { run_hosts("0011", exchange_all, NULL); }
Test(comm_hosts_message, of_two_and_one) { run_hosts("010", exchange_all, NULL); }
Test(comm_hosts_message, of_one_and_one) { run_hosts("01", exchange_all, NULL); }

/* The error of a message that never arrives names the peer by the caller's number, and ends the communicator on all
   ranks. */
static void wait_in_vain(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const int *const pair = argument; /* who waits for whom */
  char text[96];
  create_hosts("vain", rank, size, &comm);
  snprintf(text, sizeof text, "recv from rank %d (int32, 3 elements) is not done within 1.000 s", pair[1]);
  int32_t data[3];
  const hal_collective_t call = {.op = HAL_COMM_RECV, .dtype = HAL_INT32, .peer = pair[1], .recv = data, .count = 3};
  if (rank == pair[0])
    CHECK_FAILS(run_one(&comm, call, SECOND), HAL_NOT_READY, text);
  else
    CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND), HAL_NOT_READY, text);
  comm.destroy(comm.context);
}
Test(comm_hosts_message, that_never_comes) {
  static int pairs[][2] = {{3, 2}, {3, 0}};
  for (int i = 0; i < 2; i++) {
    make_board();
    run_hosts("0011", wait_in_vain, pairs[i]);
    munmap(board, sizeof *board);
  }
}

static void bring_a_bracket(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data = 0;
  (void)argument;
  create_hosts("bracket", rank, size, &comm);
  hal_collective_t calls[2] = {{.op = HAL_COMM_SEND, .dtype = HAL_INT32, .peer = !rank, .send = &data, .count = 1},
                               {.op = HAL_COMM_RECV, .dtype = HAL_INT32, .peer = !rank, .recv = &data, .count = 1}};
  calls[0].struct_size = calls[1].struct_size = sizeof calls[0];
  CHECK_FAILS(comm.run(comm.context, calls, 2, SECOND), HAL_INVALID_ARGUMENT, "bracket of 2", "bring each SEND");
  calls[0].peer = rank;
  CHECK_FAILS(comm.run(comm.context, calls, 1, SECOND), HAL_INVALID_ARGUMENT, "is this rank");
  CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
  comm.destroy(comm.context);
}
Test(comm_hosts_message, in_a_bracket_is_refused) { run_hosts("01", bring_a_bracket, NULL); }
