/* comm_semaphore.c: streams that wait for collectives while the host continues. The test's own transport can be
   blocked. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "../op/op_numbers.h"
#include "comm_testing.h"
#include "hal/comm.h"
#include "hal/lazy.h"
#include "hal/program.h"
#include "support.h"

enum { COUNT = 1000, PAIR = 2 };

/* ---- the transport: doubles its data, once the gate of the operator is open ---- */

static atomic_int is_open[HAL_COMM_SCATTER + 1], aborted;
static atomic_uint ran;
static hal_status_t answer;

static hal_status_t move(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  (void)context;
  const int64_t end = hal_clock_ns() + timeout_ns;
  while (!atomic_load(&is_open[calls->op])) {
    if (atomic_load(&aborted)) return hal_error_set(HAL_ABORTED, "the transport was aborted");
    if (hal_clock_ns() > end) return hal_error_set(HAL_NOT_READY, "rank 1 is missing");
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  }
  atomic_fetch_add(&ran, count);
  for (uint32_t i = 0; i < count && !answer; i++)
    for (uint64_t j = 0; j < calls[i].count && calls[i].recv; j++)
      ((float *)calls[i].recv)[j] = calls[i].send ? 2 * ((const float *)calls[i].send)[j] : 7;
  return answer ? hal_error_set(answer, "rank 1 has ended") : HAL_OK;
}

static void abort_it(void *context, const char *reason) {
  (void)context, (void)reason;
  atomic_store(&aborted, 1);
}
static void destroy(void *context) { (void)context; }

static hal_stream_t *stream, *other;
static hal_comm_t *comm;
static tensor_t *a, *b, *sum;

static tensor_t *floats(float first, float step) {
  const int64_t count = COUNT;
  tensor_t *const t = tensor_new(HAL_FLOAT32, 1, &count, CONTIGUOUS);
  for (int i = 0; i < count; i++) ((float *)t->host)[i] = first + step * (float)i;
  tensor_upload(t);
  return t;
}

static void create_comm(void) {
  const hal_comm_config_t config = {
      .struct_size = sizeof config,
      .size = PAIR,
      .name = "test",
      .transport = {sizeof(hal_comm_transport_t), NULL, "test", move, abort_it, destroy, HAL_COMM_COMPARES_CALLS}};
  must(hal_comm_create(&config, &comm));
}

static void start(void) {
  open_device();
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_stream_acquire(0, 0, &other));
  create_comm();
  a = floats(1, 0.5f), b = floats(3, -2), sum = floats(0, 0);
}

/* The tests close the gate while the host continues, which an asynchronous device is required for. */
static void make_asynchronous(void) { setenv("HAL_FAKE_ASYNC", "1", 1); }
TestSuite(comm_semaphore, .init = make_asynchronous, .timeout = 120);

/* out = x + y */
static void add(hal_stream_t *on, const tensor_t *x, const tensor_t *y, const tensor_t *out) {
  uint32_t op;
  must(hal_op_id("add.Tensor", &op));
  const hal_value_t args[] = {of_tensor(x), of_tensor(y), of_double(1)};
  const hal_tensor_t *const results[] = {&out->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = 3, .result_count = 1, .args = args, .results = results};
  must(hal_op_run(0, op, on, &call));
}

static hal_comm_work_t *submit_as(uint32_t op, const tensor_t *on, int64_t timeout_ns) {
  hal_comm_work_t *work = NULL;
  hal_collective_t call = {.struct_size = sizeof call,
                           .op = op,
                           .dtype = HAL_FLOAT32,
                           .count = COUNT,
                           .peer = op == HAL_COMM_ALL_REDUCE ? 0 : 1};
  if (op != HAL_COMM_RECV) call.send = on->desc.data;
  if (op != HAL_COMM_SEND) call.recv = on->desc.data;
  must(hal_comm_submit(comm, stream, &call, 1, timeout_ns, NULL, NULL, &work));
  return work;
}
static hal_comm_work_t *submit(void) { return submit_as(HAL_COMM_ALL_REDUCE, sum, 0); }

/* Reads by one stream, because tensor_download waits for all streams. */
static void expect(const tensor_t *tensor, float of_a, float of_b) {
  must(hal_memory_copy(stream, tensor->host, HAL_HOST, tensor->desc.data, 0, COUNT * sizeof(float)));
  must(hal_stream_synchronize(stream));
  for (int i = 0; i < COUNT; i++)
    cr_assert_float_eq(((float *)tensor->host)[i], of_a * ((float *)a->host)[i] + of_b * ((float *)b->host)[i], 1e-2,
                       "element %d", i);
}

/* ---- the host continues ---- */

/* sum = 2 (a + b) + b, all queued before the other rank arrives. */
static void go_on(int waits) {
  start();
  tensor_t *const extra = floats(0, 0);
  add(stream, a, b, sum);
  hal_comm_work_t *const work = submit();
  must(hal_comm_work_wait_stream(work, stream));
  add(stream, sum, b, sum);
  if (waits) {
    cr_expect_eq(hal_stream_query(stream), HAL_NOT_READY);
    cr_expect_eq(hal_comm_work_query(work), HAL_NOT_READY);
    add(other, a, b, extra); /* other streams go on */
    must(hal_stream_synchronize(other));
    cr_expect_eq(atomic_load(&ran), 0);
    cr_expect_eq(hal_stream_query(stream), HAL_NOT_READY);
  }
  hal_comm_work_release(work); /* the wait keeps its objects */
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  must(hal_stream_synchronize(stream));
  cr_expect_eq(atomic_load(&ran), 1);
  expect(sum, 2, 3);
  hal_comm_destroy(comm, 0);
}

Test(comm_semaphore, the_host_goes_on_while_the_stream_waits) { go_on(1); }
Test(comm_semaphore, the_host_goes_on_where_results_are_copied_to_the_device) {
  setenv("HAL_FAKE_PROTECT", "1", 1);
  go_on(1);
}
Test(comm_semaphore, the_host_goes_on_with_one_worker_and_pauses) {
  setenv("HAL_FAKE_THREADS", "1", 1);
  setenv("HAL_FAKE_DELAY", "500", 1);
  go_on(1);
}
Test(comm_semaphore, a_device_that_is_not_asynchronous_waits_on_the_host) {
  setenv("HAL_FAKE_ASYNC", "0", 1);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  go_on(0);
}
Test(comm_semaphore, a_plugin_without_semaphores_waits_on_the_host) {
  setenv("HAL_TEST_PLUGIN", "threads", 1);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  go_on(0);
}

Test(comm_semaphore, a_work_that_has_ended_is_waited_for_by_its_event) {
  start();
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  add(stream, a, b, sum);
  hal_comm_work_t *const work = submit();
  must(hal_comm_work_synchronize(work, 0));
  must(hal_comm_work_wait_stream(work, other));
  add(other, sum, b, sum);
  must(hal_stream_synchronize(other));
  expect(sum, 2, 3);
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 0);
}

/* ---- many works, many streams ---- */

static void *open_later(void *unused) {
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  return unused;
}

/* A queue of collectives and kernels that the host fills before the first one has moved data; semaphores are reused. */
static void many(void) {
  enum { WORKS = 12 };
  hal_comm_work_t *works[WORKS];
  for (int round = 0; round < 20; round++) {
    atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 0);
    const unsigned before = atomic_load(&ran);
    add(stream, a, b, sum);
    for (int i = 0; i < WORKS; i++) {
      works[i] = submit();
      must(hal_comm_work_wait_stream(works[i], stream));
    }
    cr_expect_eq(atomic_load(&ran), before);
    cr_expect_eq(hal_stream_query(stream), HAL_NOT_READY);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_later, NULL), 0);
    must(hal_stream_synchronize(stream));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    for (int i = 0; i < WORKS; i++) {
      must(hal_comm_work_query(works[i]));
      hal_comm_work_release(works[i]);
    }
    expect(sum, 1 << WORKS, 1 << WORKS);
  }
  hal_comm_destroy(comm, 0);
}
Test(comm_semaphore, a_queue_of_many_collectives) {
  start();
  many();
}
Test(comm_semaphore, a_queue_of_many_collectives_whose_results_are_copied) {
  setenv("HAL_FAKE_PROTECT", "1", 1);
  start();
  many();
}

/* A stream waits for one work only, independent of others; lanes complete in any order. */
Test(comm_semaphore, works_of_several_lanes_do_not_wait_for_each_other) {
  start();
  add(stream, a, b, sum);
  hal_comm_work_t *const recv = submit_as(HAL_COMM_RECV, a, 0), *const reduce = submit();
  must(hal_comm_work_wait_stream(recv, other));
  must(hal_comm_work_wait_stream(reduce, stream));
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  must(hal_stream_synchronize(stream));
  expect(sum, 2, 2);
  cr_expect_eq(hal_stream_query(other), HAL_NOT_READY);
  atomic_store(&is_open[HAL_COMM_RECV], 1);
  must(hal_stream_synchronize(other));
  tensor_download(a);
  cr_expect_float_eq(((float *)a->host)[5], 7, 0);
  hal_comm_work_release(recv);
  hal_comm_work_release(reduce);
  hal_comm_destroy(comm, 0);
}

static void *wait_there(void *work) {
  hal_stream_t *mine;
  must(hal_stream_acquire(0, 0, &mine));
  must(hal_comm_work_wait_stream(work, mine));
  must(hal_stream_synchronize(mine));
  cr_assert_eq(atomic_load(&ran), 1);
  return NULL;
}

Test(comm_semaphore, more_streams_than_a_work_can_record) {
  enum { THREADS = 12 }; /* the last ones wait on the host */
  pthread_t threads[THREADS];
  start();
  hal_comm_work_t *const work = submit();
  for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_create(&threads[i], NULL, wait_there, work), 0);
  nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_join(threads[i], NULL), 0);
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 0);
}

/* ---- failures ---- */

static void expect_failure(hal_stream_t *of, hal_status_t status, const char *text) {
  const hal_status_t got = hal_stream_synchronize(of);
  cr_expect_eq(got, status, "%s: %s", hal_status_name(got), hal_error_message());
  cr_expect(strstr(hal_error_message(), text), "%s", hal_error_message());
  cr_expect(strstr(hal_error_message(), "group 'test'"), "%s", hal_error_message());
  must(hal_stream_synchronize(of)); /* once */
}

Test(comm_semaphore, a_failure_ends_the_waits_and_reaches_the_streams_that_wait) {
  start();
  answer = HAL_UNAVAILABLE;
  add(stream, a, b, sum);
  hal_comm_work_t *const work = submit();
  must(hal_comm_work_wait_stream(work, stream));
  must(hal_comm_work_wait_stream(work, other));
  cr_expect_eq(hal_stream_query(stream), HAL_NOT_READY);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  expect_failure(stream, HAL_ABORTED, "rank 1 has ended");
  expect_failure(other, HAL_ABORTED, "rank 1 has ended");
  cr_expect_eq(hal_comm_work_query(work), HAL_UNAVAILABLE);
  cr_expect_eq(hal_comm_work_wait_stream(work, stream), HAL_UNAVAILABLE); /* immediately, because the failure is
                                                                             known now */
  hal_collective_t call = {.struct_size = sizeof call, .op = HAL_COMM_BARRIER, .dtype = HAL_UINT8};
  cr_expect_eq(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_UNAVAILABLE);
  add(stream, a, b, sum); /* the device and its streams still work */
  must(hal_stream_synchronize(stream));
  expect(sum, 1, 1);
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 0);
}

Test(comm_semaphore, the_timeout_of_a_work_ends_the_wait) {
  start();
  hal_comm_work_t *const work = submit_as(HAL_COMM_ALL_REDUCE, sum, 50000000);
  must(hal_comm_work_wait_stream(work, stream));
  expect_failure(stream, HAL_ABORTED, "rank 1 is missing"); /* HAL_NOT_READY would be a stream that still waits */
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 0);
}

Test(comm_semaphore, destroying_the_communicator_ends_the_wait) {
  start();
  hal_comm_work_t *const work = submit();
  must(hal_comm_work_wait_stream(work, stream));
  hal_comm_destroy(comm, 1000000);
  expect_failure(stream, HAL_ABORTED, "was aborted");
  hal_comm_work_release(work);
}

/* ---- recorded queues ---- */

Test(comm_semaphore, deferred_work_is_launched_before_the_wait_and_after_it) {
  hal_lazy_t *lazy;
  start();
  must(hal_lazy_begin(stream, NULL, &lazy));
  add(stream, a, b, sum);
  hal_comm_work_t *const work = submit();
  add(stream, a, a, a); /* deferred, before the wait */
  must(hal_comm_work_wait_stream(work, stream));
  add(stream, sum, b, sum);
  cr_expect_eq(atomic_load(&ran), 0);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  must(hal_stream_synchronize(stream));
  expect(sum, 2, 3);
  must(hal_lazy_end(lazy));
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 0);
}

Test(comm_semaphore, a_recorded_stream_does_not_wait_for_a_work_outside) {
  hal_program_t *program;
  start();
  hal_comm_work_t *const work = submit(), *inside;
  must(hal_program_begin(stream, NULL, &program));
  hal_collective_t call = {.struct_size = sizeof call,
                           .op = HAL_COMM_ALL_REDUCE,
                           .dtype = HAL_FLOAT32,
                           .count = COUNT,
                           .send = sum->desc.data,
                           .recv = sum->desc.data};
  must(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, &inside));
  must(hal_comm_work_wait_stream(inside, stream));
  cr_expect_eq(hal_comm_work_wait_stream(work, stream), HAL_FAILED_PRECONDITION, "%s", hal_error_message());
  hal_program_destroy(program);
  atomic_store(&is_open[HAL_COMM_ALL_REDUCE], 1);
  must(hal_comm_work_synchronize(work, 0));
  hal_comm_work_release(work);
  hal_comm_work_release(inside);
  hal_comm_destroy(comm, 0);
}

/* ---- two processes ---- */

static void ring(int rank, int size, void *argument) {
  enum { STEPS = 100 };
  (void)argument;
  hal_comm_transport_t transport;
  open_device();
  create("semaphores", rank, size, &transport);
  const hal_comm_config_t config = {
      .struct_size = sizeof config, .rank = rank, .size = size, .name = "test", .transport = transport};
  CHECK_OK(hal_comm_create(&config, &comm));
  CHECK_OK(hal_stream_acquire(0, 0, &stream));
  a = floats((float)rank, 0), b = floats(1, 0), sum = floats(0, 0);
  tensor_t *const last = floats(0, 0);
  for (int step = 0; step < STEPS; step++) { /* the host runs ahead */
    add(stream, a, b, sum);
    hal_comm_work_t *const work = submit();
    CHECK_OK(hal_comm_work_wait_stream(work, stream));
    hal_comm_work_release(work);
    add(stream, sum, b, last);
    add(stream, last, a, sum); /* memory that the next collective overwrites */
  }
  CHECK_OK(hal_stream_synchronize(stream));
  tensor_download(last);
  for (int i = 0; i < COUNT; i++)
    CHECK(((float *)last->host)[i] == 2 + (float)size, "element %d is %g", i, (double)((float *)last->host)[i]);
  hal_comm_destroy(comm, INT64_C(10000000000));
}

Test(comm_semaphore, two_processes_in_shared_memory) { run_ranks(PAIR, ring, NULL); }
Test(comm_semaphore, two_processes_whose_results_are_copied) {
  setenv("HAL_FAKE_PROTECT", "1", 1);
  run_ranks(PAIR, ring, NULL);
}
