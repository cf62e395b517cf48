/* Tests of one transport between all ranks that compares nothing itself and moves bytes, as Gloo does: of
 * HAL_COMM_HOSTS_FLAT, and handed to a communicator as a table. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/clock.h"
#include "comm/comm.h"
#include "comm_hosts_testing.h"

/* ---- the transport: types of messages are lost ---- */

static hal_comm_transport_t bytes_transport;

static hal_status_t run_bytes(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  hal_collective_t call = *calls;
  if (call.op == HAL_COMM_ALL_REDUCE && call.dtype == HAL_INT16)
    return hal_error_set(HAL_UNIMPLEMENTED, "no all_reduce of int16");
  if (call.op != HAL_COMM_SEND && call.op != HAL_COMM_RECV)
    return bytes_transport.run(context, calls, count, timeout_ns);
  call.count *= hal_dtype_size(call.dtype);
  call.dtype = HAL_UINT8;
  return bytes_transport.run(context, &call, 1, timeout_ns);
}

static hal_status_t connect_bytes(void *context, const char *use, int32_t rank, int32_t size,
                                  const hal_comm_store_t *store, int64_t timeout_ns, hal_comm_transport_t *out) {
  const hal_status_t status = connect_ranks(context, use, rank, size, store, timeout_ns, &bytes_transport);
  *out = bytes_transport;
  out->run = run_bytes;
  out->flags = 0;
  out->query = NULL;
  return status;
}

static void create_flat(const char *name, int rank, int size, hal_comm_transport_t *out) {
  hal_comm_hosts_t config = hosts_config(name, rank, size, 20 * (int64_t)SECOND);
  config.flags = HAL_COMM_HOSTS_FLAT;
  config.connect = connect_bytes;
  CHECK_OK(hal_comm_transport_hierarchical(&config, out));
}

static hal_collective_t message(uint32_t op, int peer, hal_dtype_t dtype, void *data, uint64_t count) {
  return (hal_collective_t){
      .op = op, .dtype = dtype, .peer = peer, .tag = 3, .send = data, .recv = data, .count = count};
}

/* ---- what matches ---- */

static void work(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t values[64] = {0}, sums[2] = {0};
  (void)argument;
  create_flat("work", rank, size, &comm);
  for (uint64_t count = 0; count < 4; count++)
    for (int to = 1; to < size; to++) { /* rank 0 to each other one, of no element, too */
      if (rank && rank != to) continue;
      if (!rank) values[0] = values[2] = to + (int)count;
      CHECK_OK(run_one(&comm, message(rank ? HAL_COMM_RECV : HAL_COMM_SEND, rank ? 0 : to, HAL_INT32, values, count),
                       20 * (int64_t)SECOND));
      CHECK(!count || values[0] == to + (int)count, "%d", (int)values[0]);
    }
  const int32_t own[2] = {rank, 1};
  hal_collective_t calls[2] = {{.dtype = HAL_INT32, .send = own, .recv = sums, .count = 2}, {.op = HAL_COMM_BARRIER}};
  calls[0].struct_size = calls[1].struct_size = sizeof calls[0];
  CHECK_OK(comm.run(comm.context, calls, 2, 20 * (int64_t)SECOND));
  CHECK(sums[0] == size * (size - 1) / 2 && sums[1] == size, "%d %d", (int)sums[0], (int)sums[1]);
  /* All ranks refuse it, and go on. */
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.dtype = HAL_INT16, .send = own, .recv = sums, .count = 2}, SECOND),
              HAL_UNIMPLEMENTED, "int16");
  CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
  CHECK_OK(comm.query(comm.context));
  CHECK(!strcmp(comm.name, "shm") && comm.flags & HAL_COMM_COMPARES_CALLS, "%s", comm.name);
  comm.destroy(comm.context);
}
Test(comm_hosts_flat, collectives_and_messages) { run_ranks(3, work, NULL); }

/* ---- what does not ---- */

typedef struct pair_s {
  hal_dtype_t dtypes[2]; /* of rank 0, which sends, and of rank 1 */
  uint64_t counts[2];
  const char *sent, *received;
} pair_t;

/* Rank 2 does not take part and gets the failure at its next call. */
static void differ(int rank, int size, void *argument) {
  const pair_t *const pair = argument;
  hal_comm_transport_t comm;
  static double data[1 << 18];
  create_flat("differ", rank, size, &comm);
  const int64_t begin = hal_clock_ns();
  if (rank < 2)
    CHECK_FAILS(
        run_one(&comm,
                message(rank ? HAL_COMM_RECV : HAL_COMM_SEND, 1 - rank, pair->dtypes[rank], data, pair->counts[rank]),
                60 * (int64_t)SECOND),
        HAL_INVALID_ARGUMENT, "rank 0 sends", pair->sent, "to rank 1, which receives", pair->received);
  else
    CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 60 * (int64_t)SECOND), HAL_INVALID_ARGUMENT,
                pair->sent, pair->received);
  CHECK(hal_clock_ns() - begin < 20 * (int64_t)SECOND, "it took too long");
  comm.destroy(comm.context);
}

/* They do not fit into the buffers of the transport, so that the sender waits. */
Test(comm_hosts_flat, sizes_of_messages_differ) {
  pair_t pair = {
      {HAL_FLOAT32, HAL_FLOAT32}, {1 << 19, 16384}, "(float32, 524288 elements, tag 3)", "(float32, 16384 elements)"};
  run_ranks(3, differ, &pair);
}

/* A small one is sent by the time that its receiver finds out. */
static void differ_small(int rank, int size, void *argument) {
  const pair_t *const pair = argument;
  hal_comm_transport_t comm;
  double data[16] = {0};
  create_flat("small", rank, size, &comm);
  if (rank == 0) {
    CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, pair->dtypes[0], data, pair->counts[0]), 20 * (int64_t)SECOND));
    atomic_store(&board->stage, 1);
    int64_t left_ns = 20 * (int64_t)SECOND; /* the failure is known without a call */
    for (; !comm.query(comm.context) && left_ns > 0; left_ns -= 10000000)
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    CHECK_FAILS(comm.query(comm.context), HAL_INVALID_ARGUMENT, pair->sent, pair->received);
  } else {
    wait_stage(1);
    CHECK_FAILS(run_one(&comm, message(HAL_COMM_RECV, 0, pair->dtypes[1], data, pair->counts[1]), 20 * (int64_t)SECOND),
                HAL_INVALID_ARGUMENT, "rank 0 sends", pair->sent, "to rank 1, which receives", pair->received);
  }
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, SECOND), HAL_INVALID_ARGUMENT, pair->sent);
  comm.destroy(comm.context);
}
Test(comm_hosts_flat, types_of_messages_differ) {
  pair_t pair = {{HAL_FLOAT32, HAL_INT32}, {8, 8}, "(float32, 8 elements, tag 3)", "(int32, 8 elements)"};
  run_ranks(2, differ_small, &pair);
}
Test(comm_hosts_flat, a_message_of_no_element_differs) {
  pair_t pair = {{HAL_FLOAT32, HAL_FLOAT32}, {0, 1}, "(float32, 0 elements, tag 3)", "(float32, 1 elements)"};
  run_ranks(2, differ_small, &pair);
}

static void differ_in_counts(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  const uint64_t sends[3] = {1, 2, 3}, receives[3] = {(uint64_t)rank + 1, (uint64_t)rank + 1, rank == 1 ? 5 : 2};
  int32_t out[6] = {0}, in[16];
  (void)argument;
  create_flat("counts", rank, size, &comm);
  CHECK_FAILS(run_one(&comm,
                      (hal_collective_t){.op = HAL_COMM_ALL_TO_ALL,
                                         .dtype = HAL_INT32,
                                         .send = out,
                                         .recv = in,
                                         .send_counts = sends,
                                         .recv_counts = receives},
                      20 * (int64_t)SECOND),
              HAL_INVALID_ARGUMENT, "rank 2 called all_to_all #1", "has", "elements for rank");
  comm.destroy(comm.context);
}
Test(comm_hosts_flat, counts_differ) { run_ranks(3, differ_in_counts, NULL); }

/* ---- a communicator over such a table ---- */

static void send_by_table(int rank, int size, void *argument) {
  const int matches = *(const int *)argument;
  hal_comm_transport_t table;
  float data[8] = {0};
  int32_t numbers[8] = {7};
  (void)size;
  CHECK_OK(connect_bytes((void *)(uintptr_t) "table", "all", rank, 2, &test_store, 20 * (int64_t)SECOND, &table));
  if (rank == 0) {
    data[7] = 3;
    CHECK_OK(hal_comm_run_message(&table, rank,
                                  &(hal_collective_t){.struct_size = sizeof(hal_collective_t),
                                                      .op = HAL_COMM_SEND,
                                                      .dtype = HAL_FLOAT32,
                                                      .peer = 1,
                                                      .send = data,
                                                      .count = 8},
                                  SECOND));
  } else {
    const hal_status_t status = hal_comm_run_message(&table, rank,
                                                     &(hal_collective_t){.struct_size = sizeof(hal_collective_t),
                                                                         .op = HAL_COMM_RECV,
                                                                         .dtype = matches ? HAL_FLOAT32 : HAL_INT32,
                                                                         .peer = 0,
                                                                         .recv = matches ? (void *)data : numbers,
                                                                         .count = 8},
                                                     20 * (int64_t)SECOND);
    if (matches) CHECK(!status && data[7] == 3, "%s", hal_error_message());
    if (!matches) CHECK_FAILS(status, HAL_INVALID_ARGUMENT, "(float32, 8 elements, tag 0)", "(int32, 8 elements)");
    CHECK(matches || numbers[0] == 7, "data has moved");
  }
  table.destroy(table.context);
}
Test(comm_hosts_flat, a_table_that_compares_nothing) {
  int matches = 1;
  run_ranks(2, send_by_table, &matches);
  munmap(board, sizeof *board);
  board = NULL;
  matches = 0;
  run_ranks(2, send_by_table, &matches);
}
