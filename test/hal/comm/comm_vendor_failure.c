/* Tests of failures while a plugin's library runs collectives: of the connection, of ranks, of the library, of time,
 * and of memory. Each rank gets an error that names the cause, in time, and its device continues to work. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/host_malloc.h"
#include "comm_vendor_testing.h"

TestSuite(comm_vendor_failure, .timeout = 200);

/* No stream reports the abort of the library that has not waited for the failed work. */
static void check_device(void) {
  CHECK_OK(hal_stream_synchronize(stream));
  CHECK_OK(hal_device_synchronize(hal_stream_device(stream)));
  float *const data = float_on_device(7);
  CHECK(float_at(data) == 7, "the device does not copy");
}

/* ---- connecting ---- */

/* The transport continues without the library. */
static void check_transport(int size) {
  float *const data = float_on_device(1);
  CHECK(!strcmp(hal_comm_library(comm), ""), "library '%s'", hal_comm_library(comm));
  const int before = atomic_load(&carried);
  finish(submit(sum_at(data), 0));
  CHECK(float_at(data) == (float)size, "%g", (double)float_at(data));
  CHECK(atomic_load(&carried) == before + 1, "not by the transport");
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}

typedef struct setting_s {
  const char *name, *value; /* of rank 1 alone */
  int32_t device;           /* of rank 1 */
  const char *words[4];     /* NULL-ended */
} setting_t;

static void connect_with(int rank, int size, void *argument) {
  const setting_t *const setting = argument;
  if (rank == 1 && setting->name) setenv(setting->name, setting->value, 1);
  open_plugin();
  make_comm("dp", rank == 1 ? setting->device : rank, rank, size, 20 * (int64_t)SECOND);
  const int64_t start = hal_clock_ns();
  check_fails(__LINE__, hal_comm_connect_library(comm, 0, 0), HAL_UNIMPLEMENTED, setting->words);
  CHECK(milliseconds_since(start) < 8000, "the refusal took %ld ms", (long)milliseconds_since(start));
  check_transport(size);
}

Test(comm_vendor_failure, one_rank_has_no_library) {
  setting_t setting = {"HAL_CUDA_NCCL", "/nowhere/libnccl.so.2", 1, {"rank 1 cannot use", "/nowhere/libnccl.so.2"}};
  run_ranks(3, connect_with, &setting);
}
Test(comm_vendor_failure, one_rank_has_another_version) {
  setting_t setting = {"NCCL_MOCK_VERSION", "22005", 1, {"rank 1 cannot use", "version 22005", "version 23007"}};
  run_ranks(2, connect_with, &setting);
}
Test(comm_vendor_failure, one_rank_cannot_begin) {
  setting_t setting = {"NCCL_MOCK_REFUSES", "ncclCommInitRankConfig=2", 1, {"rank 1 cannot use", "set to fail"}};
  run_ranks(3, connect_with, &setting);
}
Test(comm_vendor_failure, two_ranks_have_one_device) {
  setting_t setting = {NULL, NULL, 0, {"cannot use", "ranks 0 and 1 use one device"}};
  run_ranks(2, connect_with, &setting);
}

static void connect_alone(int rank, int size, void *unused) {
  (void)unused;
  open_plugin();
  make_comm("dp", rank, rank, size, 20 * (int64_t)SECOND);
  if (rank == 1) return wait_stage(1);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(hal_comm_connect_library(comm, 0, SECOND), HAL_NOT_READY, "group 'dp'", "rank 1");
  CHECK(milliseconds_since(start) < 6000, "%ld ms", (long)milliseconds_since(start));
  CHECK(hal_comm_error(comm) == HAL_NOT_READY, "the group goes on");
  CHECK_FAILS(hal_comm_connect_library(comm, 0, SECOND), HAL_NOT_READY, "group 'dp'");
  hal_comm_destroy(comm, SECOND);
  atomic_store(&board->stage, 1);
}
Test(comm_vendor_failure, a_rank_that_does_not_connect_is_waited_for_once) { run_ranks(2, connect_alone, NULL); }

static void connect_wrongly(int rank, int size, void *unused) {
  (void)unused;
  open_plugin();
  make_comm("dp", rank, rank, size, 20 * (int64_t)SECOND);
  CHECK_FAILS(hal_comm_connect_library(comm, 8, 0), HAL_INVALID_ARGUMENT, "unknown flags 0x8");
  CHECK_OK(hal_comm_connect_library(comm, 0, 0));
  CHECK_FAILS(hal_comm_connect_library(comm, 0, 0), HAL_FAILED_PRECONDITION, "connected once");
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_library_is_connected_once) { run_ranks(2, connect_wrongly, NULL); }

/* ---- time ---- */

/* Data that the other rank had sent before its failure is received: the following collective fails. */
static void fail_late(float *data, int calls) {
  hal_status_t status = HAL_OK;
  const int64_t start = hal_clock_ns();
  for (int i = 0; i < calls && !status; i++) {
    hal_collective_t call = sum_at(data);
    hal_comm_work_t *work = NULL;
    call.struct_size = sizeof call;
    status = hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, &work);
    if (!status) status = hal_comm_work_synchronize(work, 0);
    hal_comm_work_release(work);
  }
  CHECK_FAILS(status, HAL_ABORTED, "all_reduce #", "rank 0 aborted", "all_reduce #");
  CHECK(milliseconds_since(start) < 1500, "after %ld ms", (long)milliseconds_since(start));
}

static void miss_a_call(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  finish(submit(sum_at(data), 0));
  if (rank == 1) {
    wait_stage(1);
    fail_late(data, 4);
  } else {
    const int64_t start = hal_clock_ns();
    hal_comm_work_t *const work = submit(sum_at(data), SECOND), *const behind = submit(sum_at(data), 0);
    CHECK_OK(hal_comm_work_wait(behind, stream, 0));
    CHECK_OK(hal_comm_work_wait(behind, stream, 0));
    CHECK_FAILS(hal_comm_work_synchronize(work, 0), HAL_NOT_READY, "all_reduce #2 of group 'dp' (rank 0 of 2, float32",
                "library nccl has not done it within 1.000 s", "native code");
    CHECK(milliseconds_since(start) > 900 && milliseconds_since(start) < 2500, "after %ld ms",
          (long)milliseconds_since(start));
    CHECK_FAILS(hal_comm_work_synchronize(behind, 0), HAL_NOT_READY, "all_reduce #3 of group 'dp'", "all_reduce #2");
    CHECK(hal_comm_work_query(work) == HAL_NOT_READY && hal_comm_error(comm) == HAL_NOT_READY, "the failure is lost");
    const hal_collective_t call = sum_at(data);
    CHECK_FAILS(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_NOT_READY, "all_reduce #2");
    hal_comm_work_release(work), hal_comm_work_release(behind);
    atomic_store(&board->stage, 1);
    CHECK_FAILS(hal_stream_synchronize(stream), HAL_ABORTED, "all_reduce #3 of group 'dp'", "all_reduce #2");
  }
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_call_that_a_rank_misses_ends_at_its_time) { run_ranks(2, miss_a_call, NULL); }

/* The device never reaches the operands of a collective of the transport. */
static void hold_device(void *stage) {
  (void)stage;
  wait_stage(1);
}

static void hang_before(int rank, int size, void *unused) {
  (void)unused;
  open_plugin();
  make_comm("dp", rank, rank, size, 20 * (int64_t)SECOND);
  float *const data = float_on_device(1);
  CHECK_OK(hal_stream_host_call(stream, hold_device, NULL));
  const int64_t start = hal_clock_ns();
  hal_comm_work_t *const work = submit(sum_at(data), SECOND);
  const hal_status_t status = hal_comm_work_synchronize(work, 0); /* its own failure, or that of the other rank */
  CHECK_FAILS(status == HAL_ABORTED ? HAL_NOT_READY : status, HAL_NOT_READY, "all_reduce #1", "the operands",
              "1.000 s");
  CHECK(milliseconds_since(start) < 3000, "after %ld ms", (long)milliseconds_since(start));
  atomic_store(&board->stage, 1);
  hal_comm_work_release(work);
  CHECK_OK(hal_stream_synchronize(stream));
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_device_that_hangs_ends_the_work_of_the_transport) { run_ranks(2, hang_before, NULL); }

static void destroy_without_the_other(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  if (rank == 0) {
    float *const data = float_on_device(1);
    hal_comm_work_t *const work = submit(sum_at(data), 0);
    const int64_t start = hal_clock_ns();
    hal_comm_destroy(comm, SECOND / 2);
    CHECK(milliseconds_since(start) < 3000, "after %ld ms", (long)milliseconds_since(start));
    CHECK_FAILS(hal_comm_work_query(work), HAL_ABORTED, "was destroyed while collectives were running");
    hal_comm_work_release(work);
    check_device();
    atomic_store(&board->stage, 1);
  }
  wait_stage(1);
  if (rank == 1) hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, destroy_aborts_what_is_not_done_in_time) { run_ranks(2, destroy_without_the_other, NULL); }

/* ---- ranks ---- */

static void be_killed(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  if (rank == 2) {
    wait_stage(2);
    sleep_ms(100);
    raise(SIGKILL);
  }
  hal_comm_work_t *const work = submit(sum_at(data), 0);
  atomic_fetch_add(&board->stage, 1);
  wait_stage(2);
  const int64_t start = hal_clock_ns();
  const hal_status_t status = hal_comm_work_synchronize(work, 0); /* as this rank detects it, or as the other rank
                                                                     reports it */
  CHECK_FAILS(status == HAL_ABORTED ? HAL_UNAVAILABLE : status, HAL_UNAVAILABLE, "all_reduce #1 of group 'dp'",
              "rank 2 (pid", "has ended");
  CHECK(milliseconds_since(start) < 1500, "after %ld ms", (long)milliseconds_since(start));
  hal_comm_work_release(work);
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_rank_that_is_killed_is_named_at_once) {
  pid_t pids[3];
  make_board();
  for (int rank = 0; rank < 3; rank++) pids[rank] = start_rank(rank, 3, be_killed, NULL);
  for (int rank = 0; rank < 3; rank++) join_rank(rank, pids[rank], rank == 2 ? SIGKILL : 0);
}

static hal_event_t *event_on(hal_stream_t *stream) {
  hal_event_t *event = NULL;
  CHECK_OK(hal_event_create(0, 0, &event));
  CHECK_OK(hal_event_record(event, stream));
  return event;
}

/* Returns a new stream that waits for an event on another stream, as consumers of a future do. */
static hal_stream_t *stream_after(hal_stream_t *other) {
  hal_stream_t *after = NULL;
  hal_event_t *const event = event_on(other);
  CHECK_OK(hal_stream_acquire(0, 0, &after));
  CHECK_OK(hal_stream_wait_event(after, event));
  hal_event_destroy(event);
  return after;
}

static void wait_for_events(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  hal_comm_work_t *const first = submit(sum_at(data), 0);
  CHECK_OK(hal_comm_work_synchronize(first, 0));
  if (rank == 1) {
    wait_stage(1);
    hal_comm_abort(comm, "it does not come");
  } else {
    hal_stream_t *const before = stream_after(hal_comm_stream(comm));
    hal_event_t *const early = event_on(hal_comm_stream(comm));
    hal_comm_work_t *const work = submit(sum_at(data), 0);
    hal_stream_t *const after = stream_after(hal_comm_stream(comm)), *const behind = stream_after(after);
    hal_stream_t *const both = stream_after(hal_comm_stream(comm));
    hal_event_t *const late = event_on(hal_comm_stream(comm));
    CHECK_OK(hal_comm_work_wait(work, both, 0));
    CHECK_OK(hal_comm_work_wait(first, after, 0)); /* is done: it does not replace the wait for the event */
    CHECK(hal_stream_query(after) == HAL_NOT_READY && hal_stream_query(behind) == HAL_NOT_READY, "nothing waits");
    atomic_store(&board->stage, 1);
    CHECK_FAILS(hal_stream_synchronize(behind), HAL_ABORTED, "all_reduce #2 of group 'dp'", "it does not come");
    CHECK_FAILS(hal_stream_synchronize(after), HAL_ABORTED, "all_reduce #2 of group 'dp'", "it does not come");
    CHECK_FAILS(hal_stream_synchronize(both), HAL_ABORTED, "all_reduce #2 of group 'dp'");
    CHECK(!strstr(hal_error_message(), "and then"), "twice: %s", hal_error_message());
    CHECK_OK(hal_stream_synchronize(before));
    CHECK_OK(hal_stream_synchronize(after));
    CHECK_OK(hal_stream_synchronize(behind));
    CHECK_FAILS(hal_event_synchronize(late), HAL_ABORTED, "all_reduce #2 of group 'dp'", "it does not come");
    CHECK_OK(hal_event_synchronize(late));
    CHECK_OK(hal_event_synchronize(early));
    CHECK_OK(hal_event_record(late, before)); /* a new record has nothing to report */
    CHECK_OK(hal_event_synchronize(late));
    hal_event_destroy(early);
    hal_event_destroy(late);
    hal_comm_work_release(work);
  }
  hal_comm_work_release(first);
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, streams_that_wait_for_events_after_a_work_get_its_failure) {
  run_ranks(2, wait_for_events, NULL);
}

static void *abort_later(void *unused) {
  sleep_ms(200);
  hal_comm_abort(comm, "the test ends it");
  return unused;
}

static void abort_waiting(int rank, int size, void *unused) {
  (void)unused;
  pthread_t thread;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  if (rank == 2) { /* never comes */
    wait_stage(2);
    hal_comm_destroy(comm, 10 * (int64_t)SECOND);
    return;
  }
  hal_comm_work_t *const work = submit(sum_at(data), 0);
  if (rank == 0) pthread_create(&thread, NULL, abort_later, NULL);
  const int64_t start = hal_clock_ns();
  CHECK_FAILS(hal_comm_work_synchronize(work, 0), HAL_ABORTED, "all_reduce #1", "aborted on rank 0: the test ends it");
  CHECK(milliseconds_since(start) < 1500, "after %ld ms", (long)milliseconds_since(start));
  if (rank == 0) pthread_join(thread, NULL);
  hal_comm_work_release(work);
  check_device();
  atomic_fetch_add(&board->stage, 1);
  wait_stage(2);
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, an_abort_of_another_thread_ends_all_ranks) { run_ranks(3, abort_waiting, NULL); }

/* ---- the library ---- */

static void fail_in_library(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  if (rank == 0) {
    hal_comm_work_t *const work = submit(sum_at(data), 0);
    setenv("NCCL_MOCK_ASYNC_ERROR", "6", 1);
    CHECK_FAILS(hal_comm_work_synchronize(work, 0), HAL_UNAVAILABLE, "all_reduce #1 of group 'dp'", "library nccl",
                "peer closed the connection", "native code 6");
    hal_comm_work_release(work);
    atomic_store(&board->stage, 1);
  }
  wait_stage(1);
  if (rank == 1) {
    fail_late(data, 3);
    CHECK(strstr(hal_error_message(), "peer closed the connection"), "%s", hal_error_message());
  }
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_failure_of_the_library_is_reported_with_its_number) { run_ranks(2, fail_in_library, NULL); }

static void refuse_submission(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, 0);
  float *const data = float_on_device(1);
  if (rank == 0) {
    setenv("NCCL_MOCK_REFUSES", "ncclGroupEnd=3", 1);
    hal_collective_t call = sum_at(data);
    call.struct_size = sizeof call;
    CHECK_FAILS(hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, NULL), HAL_INTERNAL, "all_reduce #1", "NCCL");
  } else {
    hal_comm_work_t *const work = submit(sum_at(data), 0);
    const int64_t start = hal_clock_ns();
    CHECK_FAILS(hal_comm_work_synchronize(work, 0), HAL_ABORTED, "rank 0 aborted", "NCCL");
    CHECK(milliseconds_since(start) < 2500, "after %ld ms", (long)milliseconds_since(start));
    hal_comm_work_release(work);
  }
  check_device();
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, a_refused_call_ends_the_other_ranks) { run_ranks(2, refuse_submission, NULL); }

static void differ(int rank, int size, void *unused) {
  (void)unused;
  join_library(rank, size, HAL_COMM_COMPARE_CALLS);
  float *const data = float_on_device(1);
  hal_collective_t call = sum_at(data);
  call.dtype = rank ? HAL_INT32 : HAL_FLOAT32;
  hal_comm_work_t *const work = submit(call, 0);
  CHECK_FAILS(hal_comm_work_synchronize(work, 0), HAL_INVALID_ARGUMENT, "rank 0 called all_reduce #1 (float32",
              "rank 1 called all_reduce #1 (int32");
  hal_comm_work_release(work);
  CHECK(float_at(data) == 1, "data has moved");
  hal_comm_destroy(comm, 10 * (int64_t)SECOND);
}
Test(comm_vendor_failure, calls_that_do_not_match_are_found_on_request) { run_ranks(2, differ, NULL); }

/* ---- host memory ---- */

/* words[0]: allocations of rank 0 still fail; words[1]: 1 = connected */
static void connect_with_faults(int rank, int size, void *argument) {
  const long calls = *(const long *)argument;
  open_plugin();
  make_comm("dp", rank, rank, size, 2 * (int64_t)SECOND);
  float *const own = float_on_device(1);
  if (rank == 0) hal_malloc_fail_after(calls);
  const hal_status_t status = hal_comm_connect_library(comm, 0, 0);
  CHECK(!status || strlen(hal_error_message()) > 20, "'%s' is no message", hal_error_message());
  atomic_store(&board->reports[rank].words[0], (uint64_t)status + 1);
  hal_collective_t call = sum_at(own);
  hal_comm_work_t *work = NULL;
  call.struct_size = sizeof call;
  hal_status_t ran = hal_comm_submit(comm, stream, &call, 1, 0, NULL, NULL, &work);
  if (!ran) ran = hal_comm_work_synchronize(work, 0);
  hal_malloc_fail_after(0);
  CHECK(ran || float_at(own) == (float)size, "%g", (double)float_at(own));
  CHECK(!ran || strlen(hal_error_message()) > 20, "'%s' is no message", hal_error_message());
  atomic_store(&board->reports[rank].words[1], (uint64_t)!ran);
  hal_comm_work_release(work);
  hal_comm_destroy(comm, 4 * (int64_t)SECOND);
}

Test(comm_vendor_failure, every_allocation_may_fail) {
  int failed = 0, ran = 0;
  for (long calls = 1; calls <= 16; calls++) {
    make_board();
    run_ranks(2, connect_with_faults, &calls);
    const uint64_t first = atomic_load(&board->reports[0].words[0]), second = atomic_load(&board->reports[1].words[0]);
    cr_assert((first == 1) == (second == 1), "allocation %ld: one rank has connected, the other has not", calls);
    failed += first != 1;
    ran += (int)atomic_load(&board->reports[0].words[1]);
    munmap(board, sizeof *board);
  }
  cr_assert_gt(failed, 1, "%d connections have failed", failed);
  cr_assert_gt(ran, 3, "%d sums were computed", ran);
}
