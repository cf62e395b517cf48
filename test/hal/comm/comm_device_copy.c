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
