/* Tests of the profile's records of collectives that a plugin's library runs. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_vendor_testing.h"
#include "hal/profile.h"

TestSuite(comm_vendor_profile, .timeout = 120);

enum { COUNT = 1000, LATE_MS = 300 };

typedef struct rows_s {
  int count;
  hal_profile_activity_t row[4];
  char text[4][2][64]; /* name and group */
} rows_t;

static void keep_row(void *user_data, const hal_profile_activity_t *activity) {
  rows_t *const rows = user_data;
  if (activity->kind != HAL_PROFILE_COLLECTIVE) return;
  CHECK(rows->count < 4, "more records than collectives");
  snprintf(rows->text[rows->count][0], 64, "%s", activity->name);
  snprintf(rows->text[rows->count][1], 64, "%s", activity->group);
  rows->row[rows->count++] = *activity;
}

/* Rank 1 comes late to a sum; then both exchange messages in a bracket. */
static void profile(int rank, int size, void *argument) {
  static rows_t rows;
  uint64_t lost;
  join_library(rank, size, *(const uint32_t *)argument);
  float *const data = device_memory(COUNT * sizeof(float)), *const far = device_memory(COUNT * sizeof(float));
  to_device(data, (const float[COUNT]){1}, COUNT * sizeof(float));
  finish(submit(sum_at(data), 0)); /* before the profile */
  CHECK_OK(hal_profile_start());
  hal_collective_t sum = sum_at(data);
  sum.count = COUNT;
  if (rank == 1) sleep_ms(LATE_MS);
  const int64_t submitted = hal_clock_ns();
  CHECK_OK(hal_profile_push(77));
  finish(submit(sum, 0));
  hal_profile_pop();
  const int64_t finished = hal_clock_ns();
  hal_collective_t calls[2] = {{.op = HAL_COMM_SEND, .send = data}, {.op = HAL_COMM_RECV, .recv = far}};
  for (int i = 0; i < 2; i++)
    calls[i].struct_size = sizeof *calls, calls[i].dtype = HAL_FLOAT32, calls[i].count = COUNT, calls[i].peer = !rank;
  const hal_comm_entry_t entry = {
      .struct_size = sizeof entry, .sequence = 41, .name = "nccl:coalesced", .flags = HAL_COMM_IS_ORDERED};
  hal_comm_work_t *work;
  CHECK_OK(hal_comm_submit_logged(comm, stream, calls, 2, 0, &entry, NULL, NULL, &work));
  CHECK_OK(hal_comm_work_wait(work, stream, 0));
  hal_comm_work_release(work);
  CHECK_OK(hal_profile_stop()); /* waits for the bracket */
  finish(submit(sum_at(data), 0));
  CHECK_OK(hal_profile_read(keep_row, &rows, &lost));
  CHECK(rows.count == 2 && !lost, "%d records, %d lost", rows.count, (int)lost);
  const hal_profile_activity_t *const first = &rows.row[0], *const second = &rows.row[1];
  CHECK(!strcmp(rows.text[0][0], "all_reduce") && !strcmp(rows.text[1][0], "coalesced"), "'%s', '%s'", rows.text[0][0],
        rows.text[1][0]);
  CHECK(!strcmp(rows.text[0][1], "dp") && first->group_size == size && first->device == rank, "of another group");
  CHECK(first->stream == hal_stream_id(hal_comm_stream(comm)), "of another stream");
  CHECK(first->bytes == 4 * COUNT && second->bytes == 8 * COUNT, "%d and %d bytes", (int)first->bytes,
        (int)second->bytes);
  CHECK(first->sequence == 2 && second->sequence == 41, "#%d, #%d", (int)first->sequence, (int)second->sequence);
  CHECK(first->correlation == 77 && first->launch && second->launch != first->launch, "of other calls");
  CHECK(submitted <= first->start_ns && first->start_ns < first->end_ns && first->end_ns <= finished,
        "the times are outside of the call");
  CHECK(first->end_ns <= second->start_ns && second->start_ns <= second->end_ns, "the records are not in order");
  const int64_t took_ms = (first->end_ns - first->start_ns) / 1000000;
  CHECK(rank || *(const uint32_t *)argument || took_ms > LATE_MS / 2, "the wait for rank 1 took %d ms", (int)took_ms);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_profile, each_collective_is_a_record_with_its_times) {
  uint32_t flags = 0;
  run_ranks(2, profile, &flags);
}
Test(comm_vendor_profile, also_with_compared_calls) {
  uint32_t flags = HAL_COMM_COMPARE_CALLS;
  run_ranks(2, profile, &flags);
}
