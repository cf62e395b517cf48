/* Tests of the collectives that copy device memory that the host cannot access (comm_copies.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_copies.h"
#include "comm_device_testing.h"

static copies_t copies = {create_on_device};

Test(comm_device_copy, every_copy_of_two) {
  counts_copies = 1;
  run_ranks(2, every_copy, &copies);
}
Test(comm_device_copy, every_copy_of_three) { run_ranks(3, every_copy, &copies); }

/* ---- messages ---- */

/* Waits for works of messages that were submitted together. */
static void exchange(hal_comm_t *comm, hal_stream_t *stream, const hal_collective_t *calls, uint32_t count) {
  hal_comm_work_t *work;
  CHECK_OK(hal_comm_submit(comm, stream, calls, count, 20 * (int64_t)SECOND, NULL, NULL, &work));
  CHECK_OK(hal_comm_work_synchronize(work, 20 * (int64_t)SECOND));
  hal_comm_work_release(work);
}

/* Crossed messages that exceed the channel, and one whose RECV is called after the RECV of a later message. */
static void messages(int rank, int size, void *argument) {
  enum { COUNT = 300001, EARLY = 70001 };
  on_device_t on;
  mirror_t sent, received;
  copies_seen_t seen = {0, 0};
  static int32_t in[COUNT], out[COUNT];
  const int32_t peer = 1 - rank;
  (void)size, (void)argument;
  open_protected();
  on.comm = create_group("messages", rank, 2);
  CHECK_OK(hal_stream_acquire(0, 0, &on.stream));
  for (int i = 0; i < COUNT; i++) in[i] = i * 3 + rank;
  upload(&on, &sent, in, sizeof in), upload(&on, &received, out, sizeof out);
  CHECK_OK(hal_profile_start());
  hal_collective_t calls[] = {
      {.op = HAL_COMM_SEND, .dtype = HAL_INT32, .peer = peer, .send = sent.device, .count = COUNT},
      {.op = HAL_COMM_RECV, .dtype = HAL_INT32, .peer = peer, .recv = received.device, .count = COUNT}};
  calls[0].struct_size = calls[1].struct_size = sizeof *calls;
  exchange(on.comm, on.stream, calls, 2);
  for (uint32_t i = 0; i < 2; i++) { /* rank 1 receives the second message first */
    hal_collective_t call = calls[rank];
    call.tag = rank ? 1 - i : i;
    call.count = call.tag ? 5 : EARLY;
    exchange(on.comm, on.stream, &call, 1);
  }
  CHECK_OK(hal_profile_stop());
  CHECK_OK(hal_profile_read(see_copy, &seen, NULL));
  CHECK(!seen.host && seen.device, "%llu copies of host memory", (unsigned long long)seen.host);
  download(&on, &sent, 0), download(&on, &received, 1);
  for (int i = 0; i < COUNT; i++) CHECK(out[i] == i * 3 + peer, "element %d is %d", i, (int)out[i]);
  hal_comm_destroy(on.comm, 20 * (int64_t)SECOND);
}
Test(comm_device_copy, messages) { run_ranks(2, messages, NULL); }

/* ---- order ---- */

/* More collectives on one buffer than order.c remembers, without a wait between them; the last one reads it into
 * another buffer. `argument`: a fault, after which operands are copied to the host. */
static void in_order(int rank, int size, void *argument) {
  enum { COUNT = 100001, CALLS = 70 };
  static float numbers[COUNT], gathered[2 * COUNT];
  on_device_t on;
  mirror_t buffer, result;
  hal_comm_work_t *work;
  if (argument) CHECK(!setenv("HAL_LAYERS", "fault", 1) && !setenv("HAL_FAULT", argument, 1), "no environment");
  open_protected();
  on.comm = create_group("order", rank, size);
  CHECK_OK(hal_stream_acquire(0, 0, &on.stream));
  for (int i = 0; i < COUNT; i++) numbers[i] = 1;
  upload(&on, &buffer, numbers, sizeof numbers), upload(&on, &result, gathered, sizeof gathered);
  hal_collective_t call = {.op = HAL_COMM_ALL_REDUCE,
                           .dtype = HAL_FLOAT32,
                           .reduce = HAL_REDUCE_SUM,
                           .send = buffer.device,
                           .recv = buffer.device,
                           .count = COUNT};
  call.struct_size = sizeof call;
  for (int i = 0; i < CALLS; i++)
    CHECK_OK(hal_comm_submit(on.comm, on.stream, &call, 1, 20 * (int64_t)SECOND, NULL, NULL, NULL));
  call.op = HAL_COMM_ALL_GATHER;
  call.recv = result.device;
  CHECK_OK(hal_comm_submit(on.comm, on.stream, &call, 1, 20 * (int64_t)SECOND, NULL, NULL, &work));
  CHECK_OK(hal_comm_work_synchronize(work, 20 * (int64_t)SECOND));
  hal_comm_work_release(work);
  download(&on, &buffer, 0), download(&on, &result, 1);
  const float expected = 0x1p70f;
  for (int i = 0; i < 2 * COUNT; i++)
    CHECK(gathered[i] == expected, "element %d is %g, not %g", i, (double)gathered[i], (double)expected);
  hal_comm_destroy(on.comm, 20 * (int64_t)SECOND);
}
Test(comm_device_copy, operands_are_results_of_earlier_collectives) { run_ranks(2, in_order, NULL); }
Test(comm_device_copy, the_same_with_copies_on_the_host) { run_ranks(2, in_order, "ipc_export:1"); }
