/* Tests of SEND and RECV in shared memory. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm/shm/internal.h"
#include "comm_testing.h"

static hal_collective_t message(uint32_t op, int peer, uint32_t tag, void *data, uint64_t count) {
  return (hal_collective_t){.struct_size = sizeof(hal_collective_t),
                            .op = op,
                            .dtype = HAL_INT32,
                            .peer = peer,
                            .tag = tag,
                            .send = op == HAL_COMM_SEND ? data : NULL,
                            .recv = op == HAL_COMM_RECV ? data : NULL,
                            .count = count};
}

/* Each rank sends 64 MiB to each other one and receives as much, in one bracket, the sends first. */
static void crossed(int rank, int size, void *argument) {
  const uint64_t count = *(const uint64_t *)argument;
  hal_comm_transport_t comm;
  hal_collective_t calls[2 * RANKS];
  uint32_t messages = 0;
  int32_t *const out = malloc(count * sizeof *out), *const in = malloc((uint64_t)size * count * sizeof *in);
  CHECK(out && in, "no memory");
  for (uint64_t i = 0; i < count; i++) out[i] = (int32_t)i * 8 + rank;
  create("crossed", rank, size, &comm);
  for (int peer = 0; peer < size; peer++)
    if (peer != rank) calls[messages++] = message(HAL_COMM_SEND, peer, 0, out, count);
  for (int peer = 0; peer < size; peer++)
    if (peer != rank) calls[messages++] = message(HAL_COMM_RECV, peer, 0, in + (uint64_t)peer * count, count);
  CHECK_OK(comm.run(comm.context, calls, messages, 60 * (int64_t)SECOND));
  for (int peer = 0; peer < size; peer++)
    for (uint64_t i = 0; i < count && peer != rank; i++)
      CHECK(in[(uint64_t)peer * count + i] == (int32_t)i * 8 + peer, "element %llu from rank %d is wrong",
            (unsigned long long)i, peer);
  comm.destroy(comm.context);
  free(in);
  free(out);
}
Test(comm_shm_message, crossed_pairs_of_64_mib) {
  uint64_t count = UINT64_C(1) << 24;
  run_ranks(2, crossed, &count);
}
Test(comm_shm_message, crossed_pairs_of_four) {
  uint64_t count = 1000003;
  run_ranks(4, crossed, &count);
}

/* Messages between two ranks do not concern a third one, which calls nothing. Small ones do not wait for the
 * receiver. */
static void two_of_three(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data = rank;
  (void)argument;
  create("two", rank, size, &comm);
  if (rank == 0)
    for (int i = 0; i < 3; i++) CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 2, 0, &data, 1), 20 * (int64_t)SECOND));
  if (rank == 0) atomic_store(&board->stage, 1);
  if (rank == 2) wait_stage(1);
  for (int i = 0; rank == 2 && i < 3; i++)
    CHECK_OK(run_one(&comm, message(HAL_COMM_RECV, 0, 0, &data, 1), 20 * (int64_t)SECOND));
  CHECK(data == (rank == 1), "%d", (int)data);
  CHECK_OK(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND));
  comm.destroy(comm.context);
}
Test(comm_shm_message, of_two_ranks_alone) { run_ranks(3, two_of_three, NULL); }

/* Tags: what is received first may have been sent last; messages of one tag stay in their order. One is of no
 * elements. */
static void tags(int rank, int size, void *argument) {
  enum { LONG = 400000 };
  hal_comm_transport_t comm;
  static int32_t data[4][LONG], got[4][LONG];
  (void)argument;
  (void)size;
  for (int i = 0; i < 4; i++) data[i][0] = 10 + i, data[i][LONG - 1] = 20 + i;
  create("tags", rank, size, &comm);
  if (rank == 0) {
    for (int i = 0; i < 4; i++) {
      const hal_status_t status =
          run_one(&comm, message(HAL_COMM_SEND, 1, (uint32_t)(i < 2 ? 7 : i), data[i], LONG), 20 * (int64_t)SECOND);
      CHECK(!status, "send %d: %s", i, hal_error_message());
    }
    CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, 9, NULL, 0), 20 * (int64_t)SECOND));
  } else {
    CHECK_OK(run_one(&comm, message(HAL_COMM_RECV, 0, 9, NULL, 0), 20 * (int64_t)SECOND));
    CHECK_OK(run_one(&comm, message(HAL_COMM_RECV, 0, 3, got[3], LONG), 20 * (int64_t)SECOND));
    CHECK_OK(run_one(&comm, message(HAL_COMM_RECV, 0, 7, got[0], LONG), 20 * (int64_t)SECOND));
    const hal_collective_t both[] = {message(HAL_COMM_RECV, 0, 2, got[2], LONG),
                                     message(HAL_COMM_RECV, 0, 7, got[1], LONG)};
    CHECK_OK(comm.run(comm.context, both, 2, 20 * (int64_t)SECOND));
    for (int i = 0; i < 4; i++)
      CHECK(got[i][0] == 10 + i && got[i][LONG - 1] == 20 + i, "message %d has %d and %d", i, (int)got[i][0],
            (int)got[i][LONG - 1]);
  }
  comm.destroy(comm.context);
}
Test(comm_shm_message, tags_in_any_order) { run_ranks(2, tags, NULL); }

/* A rank sends to itself more than the capacity of the channel. */
static void to_itself(int rank, int size, void *argument) {
  enum { LONG = 1 << 20 };
  hal_comm_transport_t comm;
  static int32_t out[LONG], in[LONG];
  (void)argument;
  for (int i = 0; i < LONG; i++) out[i] = i ^ rank;
  create("itself", rank, size, &comm);
  const hal_collective_t both[] = {message(HAL_COMM_SEND, rank, 0, out, LONG),
                                   message(HAL_COMM_RECV, rank, 0, in, LONG)};
  CHECK_OK(comm.run(comm.context, both, 2, 20 * (int64_t)SECOND));
  CHECK(memcmp(in, out, sizeof in) == 0, "wrong elements");
  comm.destroy(comm.context);
}
Test(comm_shm_message, to_itself) { run_ranks(2, to_itself, NULL); }

/* A message of another count or type is an error: where the RECV waits already, of both calls; else of the receiver's
 * call, and of the sender's next one. `early`: a message of another tag comes between. */
typedef struct mismatch_s {
  int recv_first, early;
} mismatch_t;

/* Returns when rank 1 waits for message `number` of rank 0, counted from 1. */
static void wait_for_recv(const hal_comm_transport_t *comm, uint64_t number) {
  const hal_shm_channel_t *const channel = hal_shm_channel(comm->context, 0, 1); /* begins with a hal_shm_t */
  while (atomic_load(&channel->wanted) != number) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void mismatch(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data[16] = {0};
  const mismatch_t how = *(const mismatch_t *)argument;
  create("mismatch", rank, size, &comm);
  if (rank == 0 && how.recv_first) {
    wait_for_recv(&comm, 1);
    if (how.early) {
      CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, 6, data, 11), 20 * (int64_t)SECOND));
      wait_for_recv(&comm, 2); /* else the second SEND may come before the RECV is shown again, and succeed */
    }
    CHECK_FAILS(run_one(&comm, message(HAL_COMM_SEND, 1, 5, data, 11), 20 * (int64_t)SECOND), HAL_INVALID_ARGUMENT,
                "rank 0 sends (int32, 11 elements, tag 5) to rank 1", "receives (int32, 10 elements)");
  }
  if (rank == 0 && !how.recv_first)
    CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, 5, data, 11), 20 * (int64_t)SECOND));
  if (rank == 0 && !how.recv_first) atomic_store(&board->stage, 1);
  if (rank == 0 && how.early && !how.recv_first)
    CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, 6, data, 1), 20 * (int64_t)SECOND));
  if (rank == 1) {
    if (!how.recv_first) wait_stage(1);
    if (how.early && !how.recv_first)
      CHECK_OK(run_one(&comm, message(HAL_COMM_RECV, 0, 6, data, 1), 20 * (int64_t)SECOND));
    CHECK_FAILS(run_one(&comm, message(HAL_COMM_RECV, 0, 5, data, 10), 20 * (int64_t)SECOND), HAL_INVALID_ARGUMENT,
                "rank 0 sends (int32, 11 elements, tag 5) to rank 1", "receives (int32, 10 elements)");
  }
  CHECK_FAILS(run_one(&comm, (hal_collective_t){.op = HAL_COMM_BARRIER}, 20 * (int64_t)SECOND), HAL_INVALID_ARGUMENT,
              "rank 0 sends");
  comm.destroy(comm.context);
}
Test(comm_shm_message, mismatch) {
  mismatch_t how = {0, 0};
  run_ranks(2, mismatch, &how);
}
Test(comm_shm_message, mismatch_of_one_that_came_early) {
  mismatch_t how = {0, 1};
  run_ranks(2, mismatch, &how);
}
Test(comm_shm_message, mismatch_of_a_recv_that_waits) {
  mismatch_t how = {1, 0};
  run_ranks(2, mismatch, &how);
}
Test(comm_shm_message, mismatch_after_another_tag) {
  mismatch_t how = {1, 1};
  run_ranks(2, mismatch, &how);
}

/* A RECV of a tag that is not sent names the peer's message with its tag. */
static void other_tag(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data = 0;
  (void)argument;
  create("other_tag", rank, size, &comm);
  if (rank == 0) CHECK_OK(run_one(&comm, message(HAL_COMM_SEND, 1, 4, &data, 1), 20 * (int64_t)SECOND));
  if (rank == 0) atomic_store(&board->stage, 1);
  wait_stage(rank ? 1 : 2);
  if (rank == 1)
    CHECK_FAILS(run_one(&comm, message(HAL_COMM_RECV, 0, 5, &data, 1), SECOND / 2), HAL_NOT_READY,
                "its last message is send #1 (int32, 1 elements, rank 1, tag 4)");
  if (rank == 1) atomic_store(&board->stage, 2);
  comm.destroy(comm.context);
}
Test(comm_shm_message, a_tag_that_is_not_sent) { run_ranks(2, other_tag, NULL); }

/* RECVs that wait are compared with the messages for them, of any size: a thousand in a row. */
static void in_a_row(int rank, int size, void *argument) {
  enum { MOST = 3000, TIMES = 1000 };
  hal_comm_transport_t comm;
  static int32_t data[MOST];
  (void)argument;
  create("row", rank, size, &comm);
  for (int i = 0; i < TIMES; i++) {
    const uint64_t count = (uint64_t)(i * 37 % MOST) + 1;
    if (rank == 0) data[0] = data[count - 1] = i;
    CHECK_OK(run_one(&comm, message(rank ? HAL_COMM_RECV : HAL_COMM_SEND, 1 - rank, (uint32_t)i % 3, data, count),
                     20 * (int64_t)SECOND));
    CHECK(data[0] == i && data[count - 1] == i, "message %d has %d", i, (int)data[0]);
  }
  comm.destroy(comm.context);
}
Test(comm_shm_message, in_a_row) { run_ranks(2, in_a_row, NULL); }

/* A rank whose memory is damaged begins a message within another one. Without the check the part of the first message
 * is kept, and a later RECV of its tag returns with bytes that were never sent. */
static void damaged(int rank, int size, void *argument) {
  hal_comm_transport_t comm;
  int32_t data[4] = {0};
  (void)argument;
  create("damaged", rank, size, &comm);
  if (rank == 1) {
    hal_shm_channel_t *const channel = hal_shm_channel(comm.context, 1, 0); /* the transport begins with hal_shm_t */
    channel->chunks[0] = (hal_shm_chunk_t){.bytes = 4, .count = 4, .tag = 1, .dtype = HAL_INT32, .first = 1};
    channel->chunks[1] = (hal_shm_chunk_t){.bytes = 16, .count = 4, .tag = 0, .dtype = HAL_INT32, .first = 1};
    atomic_store(&channel->sent, 2);
    atomic_store(&board->stage, 1);
  } else {
    wait_stage(1);
    CHECK_FAILS(run_one(&comm, message(HAL_COMM_RECV, 1, 0, data, 4), 20 * (int64_t)SECOND), HAL_DATA_LOSS,
                "rank 0 received a damaged message from rank 1");
    atomic_store(&board->stage, 2);
  }
  wait_stage(2);
  comm.destroy(comm.context);
}
Test(comm_shm_message, that_begins_within_another_one) { run_ranks(2, damaged, NULL); }
