/* comm_program.c: collectives that a program records, and that each of its runs submits. The test's own transport
 * behaves like a second rank with the same data. */
#define _GNU_SOURCE /* gettid */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "../op/op_numbers.h"
#include "hal/comm.h"
#include "hal/profile.h"
#include "hal/program.h"
#include "support.h"

enum { COUNT = 1000, RANKS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned ran;        /* collectives */
static hal_status_t answer; /* of the transport */

static hal_status_t move(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  (void)context, (void)timeout_ns;
  pthread_mutex_lock(&lock);
  ran += count;
  pthread_mutex_unlock(&lock);
  for (uint32_t i = 0; i < count; i++) {
    const hal_collective_t *const call = &calls[i];
    const float *const send = call->send;
    float *const recv = call->recv;
    if (call->op == HAL_COMM_ALL_REDUCE)
      for (uint64_t j = 0; j < call->count; j++)
        recv[j] = call->reduce == HAL_REDUCE_PREMUL_SUM ? 2 * *(const float *)call->scale * send[j] : 2 * send[j];
    if (call->op == HAL_COMM_ALL_GATHER)
      for (int r = 0; r < RANKS; r++)
        for (uint64_t j = 0; j < call->recv_counts[r]; j++) recv[call->recv_displs[r] + j] = send[j];
  }
  return answer ? hal_error_set(answer, "rank 1 has ended") : HAL_OK;
}

static void nothing(void *context, const char *reason) { (void)context, (void)reason; }
static void destroy(void *context) { (void)context; }

static hal_stream_t *stream;
static hal_comm_t *comm;
static tensor_t *a, *b, *sum;

static tensor_t *floats(float first, float step, int64_t count) {
  tensor_t *const t = tensor_new(HAL_FLOAT32, 1, &count, CONTIGUOUS);
  for (int i = 0; i < count; i++) ((float *)t->host)[i] = first + step * (float)i;
  tensor_upload(t);
  return t;
}

static void begin(void) {
  open_device();
  must(hal_stream_acquire(0, 0, &stream));
  const hal_comm_config_t config = {
      .struct_size = sizeof config,
      .size = RANKS,
      .name = "test",
      .transport = {sizeof(hal_comm_transport_t), NULL, "test", move, nothing, destroy, HAL_COMM_COMPARES_CALLS}};
  must(hal_comm_create(&config, &comm));
  a = floats(1, 0.5f, COUNT), b = floats(3, -2, COUNT), sum = floats(0, 0, 2 * COUNT);
}

TestSuite(comm_program, .init = begin, .timeout = 120);

/* sum[0 .. COUNT] = a + b */
static void add(void) {
  uint32_t op;
  must(hal_op_id("add.Tensor", &op));
  const hal_value_t args[] = {of_tensor(a), of_tensor(b), of_double(1)};
  hal_tensor_t result = a->desc;
  result.data = sum->desc.data;
  const hal_tensor_t *const results[] = {&result};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  must(hal_op_run(0, op, stream, &call));
}

static hal_collective_t reduction(void) {
  return (hal_collective_t){.struct_size = sizeof(hal_collective_t),
                            .op = HAL_COMM_ALL_REDUCE,
                            .dtype = HAL_FLOAT32,
                            .send = sum->desc.data,
                            .recv = sum->desc.data,
                            .count = COUNT};
}

static void submit(const hal_collective_t *call) {
  hal_comm_work_t *work;
  must(hal_comm_submit(comm, stream, call, 1, 0, NULL, NULL, &work));
  must(hal_comm_work_wait(work, stream, 0));
  hal_comm_work_release(work);
}

static void count_done(void *count, hal_status_t status) { *(int *)count += status == HAL_OK; }

/* A program that adds, reduces, and adds 1 by another collective's result: 2 (a + b). */
static hal_program_t *record(void) {
  hal_program_t *program;
  hal_comm_work_t *work;
  int done = 0;
  must(hal_program_begin(stream, NULL, &program));
  add();
  hal_collective_t call = reduction();
  must(hal_comm_submit(comm, stream, &call, 1, 0, count_done, &done, &work));
  cr_expect_eq(done, 1);
  must(hal_comm_work_wait(work, stream, 0));
  must(hal_comm_work_query(work));
  hal_comm_work_release(work);
  must(hal_program_end(program));
  return program;
}

static void expect_sums(float factor) {
  must(hal_stream_synchronize(stream));
  tensor_download(sum);
  for (int i = 0; i < COUNT; i++)
    cr_assert_float_eq(((float *)sum->host)[i], factor * (((float *)a->host)[i] + ((float *)b->host)[i]), 1e-3,
                       "element %d", i);
}

Test(comm_program, each_run_submits_the_collective_in_its_place) {
  hal_program_t *const program = record();
  cr_expect_eq(ran, 0);
  cr_expect_eq(hal_comm_sequence(comm), 0);
  for (unsigned i = 1; i <= 4; i++) { /* the plugin's graphs are made at the second one */
    must(hal_program_run(program, stream));
    expect_sums(2);
    cr_expect_eq(ran, i);
    cr_expect_eq(hal_comm_sequence(comm), i);
  }
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, a_run_on_another_stream_waits_there) {
  hal_program_t *const program = record();
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_program_run(program, stream));
  expect_sums(2);
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, collectives_before_and_after_keep_their_order) {
  hal_program_t *const program = record();
  const hal_collective_t call = reduction();
  add();
  submit(&call);
  must(hal_program_run(program, stream));
  submit(&call);
  expect_sums(4);
  cr_expect_eq(ran, 3);
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, what_the_call_points_to_is_copied) {
  hal_program_t *program;
  float factor = 5;
  uint64_t counts[RANKS] = {COUNT, COUNT - 1}, displs[RANKS] = {0, COUNT + 1};
  hal_collective_t calls[2] = {reduction(), reduction()};
  calls[0].reduce = HAL_REDUCE_PREMUL_SUM, calls[0].scale = &factor, calls[0].send = calls[0].recv = a->desc.data;
  calls[1].op = HAL_COMM_ALL_GATHER, calls[1].send = b->desc.data, calls[1].recv = sum->desc.data;
  calls[1].recv_counts = counts, calls[1].recv_displs = displs;
  must(hal_program_begin(stream, NULL, &program));
  must(hal_comm_submit(comm, stream, calls, 2, 0, NULL, NULL, NULL));
  must(hal_program_end(program));
  factor = -1, memset(counts, 0x5a, sizeof counts), memset(displs, 0x5a, sizeof displs);
  memset(calls, 0x5a, sizeof calls);
  must(hal_program_run(program, stream));
  must(hal_stream_synchronize(stream));
  const float before = ((float *)a->host)[7];
  tensor_download(a), tensor_download(sum);
  cr_expect_float_eq(((float *)a->host)[7], 10 * before, 1e-3);
  cr_expect_float_eq(((float *)sum->host)[7], ((float *)b->host)[7], 1e-6);
  cr_expect_float_eq(((float *)sum->host)[COUNT], 0, 1e-6); /* the gap */
  cr_expect_float_eq(((float *)sum->host)[COUNT + 1 + 7], ((float *)b->host)[7], 1e-6);
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, texts_and_counts_name_the_collective) {
  char text[4096];
  size_t size;
  hal_program_t *const program = record();
  hal_program_info_t info = {.struct_size = sizeof info};
  must(hal_program_info(program, &info));
  cr_expect_eq(info.submissions, 1);
  must(hal_program_text(program, HAL_PROGRAM_LINES, text, sizeof text, &size));
  cr_expect(strstr(text, "all_reduce"), "%s", text);
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, a_run_after_the_group_was_destroyed_is_an_error) {
  hal_program_t *const program = record();
  hal_comm_destroy(comm, 0);
  cr_expect_eq(hal_program_run(program, stream), HAL_ABORTED);
  cr_expect(strstr(hal_error_message(), "'test' was destroyed"), "%s", hal_error_message());
  add();
  expect_sums(1);
  hal_program_destroy(program);
}

Test(comm_program, a_failure_of_the_other_rank_is_an_error_of_the_run) {
  hal_program_t *const program = record();
  answer = HAL_UNAVAILABLE;
  hal_status_t status = hal_program_run(program, stream);
  if (!status) status = hal_stream_synchronize(stream);
  cr_expect_eq(status, HAL_UNAVAILABLE, "%d", status);
  cr_expect(strstr(hal_error_message(), "rank 1 has ended"), "%s", hal_error_message());
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, an_invalid_call_is_not_recorded) {
  hal_program_t *program;
  hal_collective_t call = reduction();
  call.op = HAL_COMM_BROADCAST, call.peer = 7;
  must(hal_program_begin(stream, NULL, &program));
  add();
  cr_expect_eq(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_INVALID_ARGUMENT);
  must(hal_program_end(program));
  must(hal_program_run(program, stream));
  expect_sums(1);
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}

Test(comm_program, a_recording_that_is_dropped_leaves_nothing) {
  hal_program_t *program;
  const hal_collective_t call = reduction();
  must(hal_program_begin(stream, NULL, &program));
  must(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL));
  hal_program_destroy(program);
  submit(&call);
  must(hal_stream_synchronize(stream));
  cr_expect_eq(ran, 1);
  hal_comm_destroy(comm, 0);
}

/* ---- the profile of collectives ---- */

typedef struct seen_s {
  int count;
  hal_profile_activity_t last;
  char name[32], group[32];
} seen_t;

static void see(void *user_data, const hal_profile_activity_t *activity) {
  seen_t *const seen = user_data;
  if (activity->kind != HAL_PROFILE_COLLECTIVE) {
    cr_expect_null(activity->group);
    return;
  }
  seen->count++;
  seen->last = *activity;
  snprintf(seen->name, sizeof seen->name, "%s", activity->name);
  snprintf(seen->group, sizeof seen->group, "%s", activity->group);
}

Test(comm_program, a_profile_has_the_collective_of_a_run_and_of_a_call) {
  const hal_collective_t calls[2] = {reduction(), reduction()};
  seen_t seen = {0};
  uint64_t lost;
  hal_program_t *const program = record();
  must(hal_profile_start());
  must(hal_profile_push(77));
  hal_comm_work_t *work;
  must(hal_comm_submit(comm, stream, calls, 2, 0, NULL, NULL, &work));
  hal_profile_pop();
  must(hal_comm_work_synchronize(work, 0));
  hal_comm_work_release(work);
  must(hal_profile_read(see, &seen, &lost));
  cr_assert_eq(seen.count, 1);
  cr_expect_str_eq(seen.name, "coalesced");
  cr_expect_str_eq(seen.group, "test");
  cr_expect_eq(seen.last.bytes, 2 * COUNT * sizeof(float));
  cr_expect_eq(seen.last.sequence, 1);
  cr_expect_eq(seen.last.group_size, RANKS);
  cr_expect_eq(seen.last.correlation, 77);
  cr_expect_eq(seen.last.stream, hal_stream_id(hal_comm_stream(comm)));
  cr_expect(seen.last.launch != 0 && seen.last.launch_thread == gettid());
  cr_expect(seen.last.launch_start_ns <= seen.last.start_ns && seen.last.start_ns <= seen.last.end_ns);
  must(hal_program_run(program, stream));
  must(hal_stream_synchronize(stream));
  must(hal_profile_stop());
  must(hal_profile_read(see, &seen, &lost));
  cr_expect_eq(seen.count, 2);
  cr_expect_str_eq(seen.name, "all_reduce");
  cr_expect_eq(seen.last.sequence, 2);
  submit(calls);
  must(hal_profile_read(see, &seen, &lost));
  cr_expect_eq(seen.count, 2, "a record without a profile");
  hal_program_destroy(program);
  hal_comm_destroy(comm, 0);
}
