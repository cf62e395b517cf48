/* Tests of the errors and the state of the Level Zero plugin when its driver fails, immediately or while work runs. */
#include <time.h>

#include "npu_testing.h"

TestSuite(npu_failure, .init = open_npu, .fini = close_opencl);

static hal_kernel_t *kernel;

static hal_status_t add_one(hal_stream_t *stream, char *to) {
  const hal_arg_t args[] = {POINTER(to)};
  if (!kernel) kernel = make_kernel(0, SLOW_SOURCE, "add_one");
  return launch_1d(kernel, stream, 1, 1, args, 1);
}

static uint32_t number_at(int32_t device, const char *from) {
  uint32_t number = 0;
  assert_ok(hal_memory_copy(NULL, &number, HAL_HOST, from, device, sizeof number));
  assert_ok(hal_device_synchronize(device));
  return number;
}

/* A stream, and a number on the device that is 1. */
static hal_stream_t *begin(char **out_to) {
  hal_stream_t *stream;
  const uint32_t zero = 0;
  *out_to = device_bytes(0, 4);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_fill(stream, 0, *out_to, &zero, 4, 4));
  assert_ok(add_one(stream, *out_to));
  assert_ok(hal_stream_synchronize(stream));
  return stream;
}

/* Injects each fault once: the failing call, its message, and that the next attempt succeeds. */
typedef struct refusal_s {
  const char *fault, *says;
  hal_status_t status;
  hal_status_t (*attempt)(void);
} refusal_t;

static hal_status_t try_memory(void) {
  hal_block_t *block;
  return hal_memory_allocate(0, NULL, 64 << 20, &block);
}

static hal_status_t try_pinned(void) {
  void *ptr;
  return hal_host_allocate(0, 8 << 20, &ptr);
}

static hal_status_t try_module(void) {
  hal_module_t *module;
  const hal_status_t status = load_source(0, SLOW_SOURCE, "", &module);
  if (!status) hal_module_unload(module);
  return status;
}

static hal_status_t try_fill(void) {
  static char *to;
  const uint32_t number = 5;
  if (!to) to = device_bytes(0, 4);
  return hal_memory_fill(NULL, 0, to, &number, 4, 4);
}

static hal_status_t try_launch(void) {
  static char *to;
  if (!to) to = device_bytes(0, 4);
  return add_one(NULL, to);
}

Test(npu_failure, a_refusal_of_the_driver_is_reported_with_its_cause_and_the_next_attempt_works) {
  /* Debian's loader crashes on the log of a refused module if it intercepts the calls. */
  const int has_log = !getenv("ZE_ENABLE_LOADER_INTERCEPT");
  const refusal_t refusals[] = {
      {"alloc=2", "free", HAL_RESOURCE_EXHAUSTED, try_memory}, /* the host frees its caches and retries */
      {"module=1", has_log ? "refused on demand" : "no log", HAL_INVALID_ARGUMENT, try_module},
      {"append=1", "memory_fill was refused", HAL_INVALID_ARGUMENT, try_fill},
      {"append=1", "add_one was refused", HAL_INVALID_ARGUMENT, try_launch},
  };
  assert_ok(try_fill()); /* creates the objects that are created at the first use */
  assert_ok(try_launch());
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    set_fault(refusals[i].fault);
    assert_fails(refusals[i].attempt(), refusals[i].status, refusals[i].says);
    set_fault("alloc=0,module=0,append=0");
    assert_ok(refusals[i].attempt());
  }
}

Test(npu_failure, exhausted_host_memory_is_reported) {
  set_fault("host=2"); /* the host frees its caches and retries */
  assert_fails(try_pinned(), HAL_RESOURCE_EXHAUSTED, "page-locked");
}

Test(npu_failure, a_failed_stream_creation_is_reported_and_the_next_one_succeeds) {
  hal_stream_t *stream;
  set_fault("list=1");
  assert_fails(hal_stream_acquire(0, -1, &stream), HAL_RESOURCE_EXHAUSTED, "command list");
  assert_ok(hal_stream_acquire(0, -1, &stream));
}

Test(npu_failure, work_that_ends_late_is_waited_for_and_in_order) {
  char *to;
  hal_stream_t *const stream = begin(&to);
  set_fault("delay=20000");
  for (int i = 0; i < 8; i++) assert_ok(add_one(stream, to));
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  assert_ok(hal_stream_synchronize(stream));
  set_fault("delay=0");
  cr_assert_eq(number_at(0, to), 9);
}

Test(npu_failure, a_lost_device_is_reported_with_the_kernel_stays_lost_and_the_other_device_works) {
  char *to;
  hal_stream_t *const stream = begin(&to);
  char *const other = device_bytes(1, 4);
  const uint32_t seven = 7;
  set_fault("lost=1");
  assert_ok(add_one(stream, to));
  assert_ok(add_one(stream, to)); /* at this one */
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "add_one");
  cr_assert_not_null(strstr(hal_error_message(), "DEVICE_LOST"), "%s", hal_error_message());
  assert_fails(add_one(stream, to), HAL_UNAVAILABLE, "lost");
  assert_fails(hal_device_synchronize(0), HAL_UNAVAILABLE, "lost");
  assert_ok(hal_memory_fill(NULL, 1, other, &seven, 4, 4));
  cr_assert_eq(number_at(1, other), 7);
}

Test(npu_failure, a_wait_for_an_event_of_a_lost_device_ends) {
  char *to;
  hal_event_t *event;
  hal_stream_t *const stream = begin(&to);
  assert_ok(hal_event_create(0, 0, &event));
  set_fault("delay=50000,lost=0");
  assert_ok(add_one(stream, to));
  assert_ok(hal_event_record(event, stream));
  cr_assert_neq(hal_event_synchronize(event), HAL_NOT_READY, "it returns");
  cr_assert_eq(hal_stream_synchronize(stream), HAL_UNAVAILABLE);
  hal_event_destroy(event);
}

static void set_flag(void *flag) { *(volatile int *)flag = 1; }

Test(npu_failure, a_host_function_after_lost_work_is_called) {
  char *to;
  volatile int called = 0;
  hal_stream_t *const stream = begin(&to);
  set_fault("delay=50000,lost=0");
  assert_ok(add_one(stream, to));
  assert_ok(hal_stream_host_call(stream, set_flag, (void *)&called));
  cr_assert_eq(hal_stream_synchronize(stream), HAL_UNAVAILABLE);
  for (int i = 0; i < 1000 && !called; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  cr_assert(called);
}
