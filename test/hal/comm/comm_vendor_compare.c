/* Tests of SEND and RECV that a plugin's library runs, with compared calls: messages that match arrive, others are the
 * same error on both ranks before data moves. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_vendor_testing.h"

TestSuite(comm_vendor_compare, .timeout = 120);

enum { COUNT = 5, MESSAGES = 7 };

static hal_comm_work_t *submit_bracket(const hal_collective_t *calls, uint32_t count) {
  hal_comm_work_t *work;
  const hal_comm_entry_t entry = {
      .struct_size = sizeof entry, .sequence = 1, .name = "nccl:coalesced", .flags = HAL_COMM_IS_ORDERED};
  CHECK_OK(hal_comm_submit_logged(comm, stream, calls, count, 0, &entry, NULL, NULL, &work));
  return work;
}

static hal_collective_t message(uint32_t op, int peer, float *data, uint64_t count) {
  return (hal_collective_t){.struct_size = sizeof(hal_collective_t),
                            .op = op,
                            .dtype = HAL_FLOAT32,
                            .peer = peer,
                            .send = op == HAL_COMM_SEND ? data : NULL,
                            .recv = op == HAL_COMM_RECV ? data : NULL,
                            .count = count};
}

/* Each rank sends several messages to the next one, of one element, two, and so on. */
static void pass_on(int rank, int size, void *unused) {
  (void)unused;
  hal_collective_t calls[2 * MESSAGES];
  float *out[MESSAGES], *in[MESSAGES];
  join_library(rank, size, HAL_COMM_COMPARE_CALLS);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < MESSAGES; i++) {
      out[i] = device_memory(MESSAGES * sizeof(float)), in[i] = device_memory(MESSAGES * sizeof(float));
      const float numbers[MESSAGES] = {(float)(100 * rank + 10 * i + round)};
      to_device(out[i], numbers, sizeof numbers);
      calls[i] = message(HAL_COMM_SEND, next, out[i], (uint64_t)i + 1);
      calls[MESSAGES + i] = message(HAL_COMM_RECV, previous, in[i], (uint64_t)i + 1);
    }
    finish(submit_bracket(calls, 2 * MESSAGES));
    for (int i = 0; i < MESSAGES; i++) {
      const float got = float_at(in[i]), expected = (float)(100 * previous + 10 * i + round);
      CHECK(got == expected, "message %d has %g instead of %g", i, (double)got, (double)expected);
    }
  }
  CHECK(!atomic_load(&carried), "the transport has carried %d", atomic_load(&carried));
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_compare, messages_that_match_arrive) {
  run_ranks(2, pass_on, NULL), make_board();
  run_ranks(3, pass_on, NULL);
}

/* Rank 0 sends to rank 1, which calls something else; rank 2 only exchanges messages with rank 0. */
typedef struct case_s {
  hal_dtype_t dtype;
  uint64_t count;       /* of rank 1 */
  int messages, first;  /* number of messages; the first that differs */
  const char *words[3]; /* NULL-ended */
} case_t;

static void differ(int rank, int size, void *argument) {
  const case_t *const one = argument;
  hal_collective_t calls[MESSAGES + 2];
  uint32_t count = 0;
  join_library(rank, size, HAL_COMM_COMPARE_CALLS);
  float *const data = device_memory(64 * sizeof(float)), *const own = float_on_device((float)rank),
               *const far = float_on_device(-1);
  to_device(data, (const float[COUNT]){-7}, COUNT * sizeof(float));
  if (rank < 2)
    for (int i = 0; i < one->messages; i++)
      calls[count++] = message(rank ? HAL_COMM_RECV : HAL_COMM_SEND, !rank, data, COUNT);
  for (uint32_t i = (uint32_t)one->first; rank == 1 && i < count; i++)
    calls[i].dtype = one->dtype, calls[i].count = one->count;
  if (rank == 1 && !one->count) count--; /* one message less */
  if (rank != 1) {
    calls[count++] = message(HAL_COMM_SEND, rank ? 0 : 2, own, 1);
    calls[count++] = message(HAL_COMM_RECV, rank ? 0 : 2, far, 1);
  }
  const int64_t start = hal_clock_ns();
  hal_comm_work_t *const work = submit_bracket(calls, count);
  const hal_status_t status = hal_comm_work_synchronize(work, 0);
  CHECK(milliseconds_since(start) < 5000, "after %ld ms", (long)milliseconds_since(start));
  if (rank < 2) {
    check_fails(__LINE__, status, HAL_INVALID_ARGUMENT, one->words);
    CHECK(float_at(data) == -7, "data has moved");
  }
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_compare, messages_of_other_types_or_sizes_are_errors_of_both_ranks) {
  case_t cases[] = {
      {HAL_INT32, COUNT, 1, 0, {"rank 0 sends (float32, 5 elements, tag 0) to rank 1", "receives (int32, 5 elements"}},
      {HAL_FLOAT32, 6, 3, 2, {"rank 0 sends (float32, 5 elements, tag 0) to rank 1", "receives (float32, 6 elements"}},
      {HAL_FLOAT32, 6, MESSAGES, MESSAGES - 1, {"rank 0 sends 7 messages to rank 1", "after the first 4"}},
      {HAL_FLOAT32, 0, 3, 2, {"rank 0 sends 3 messages to rank 1", "receives 2 of them"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_board();
    run_ranks(3, differ, &cases[i]);
    munmap(board, sizeof *board);
  }
}
