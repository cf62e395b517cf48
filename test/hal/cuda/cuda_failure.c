/* Tests of the errors and the state of the CUDA plugin when its driver fails, immediately or while work runs. */
#include <stdatomic.h>
#include <time.h>

#include "cuda_testing.h"

TestSuite(cuda_failure, .init = open_cuda, .fini = close_opencl);

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

static void note_call(void *called) { atomic_store((atomic_int *)called, 1); }

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

Test(cuda_failure, a_device_that_another_process_has_for_itself_is_not_lost) {
  hal_block_t *block = NULL;
  set_fault("context=1");
  assert_fails(hal_memory_allocate(0, NULL, 4, &block), HAL_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE");
  cr_assert_null(strstr(hal_error_message(), "remains lost"), "%s", hal_error_message());
  assert_ok(hal_memory_allocate(0, NULL, 4, &block)); /* the other process has released it */
  hal_memory_release(block);
}

/* The mock driver's device cannot detect it; a GPU does. */
Test(cuda_failure, a_kernel_that_writes_where_nothing_is_ends_the_device) {
  char *to, *const nowhere = (char *)(uintptr_t)64; /* NOLINT: no address */
  hal_kernel_t *const faulty = make_kernel(0, SLOW_SOURCE, "add_one");
  hal_stream_t *const stream = begin(&to);
  const hal_arg_t args[] = {POINTER(nowhere)};
  static atomic_int called;
  if (is_on_mock()) cr_skip_test("the mock driver uses host memory");
  assert_ok(launch_1d(faulty, stream, 1, 1, args, 1));
  assert_ok(hal_stream_host_call(stream, note_call, &called));
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  cr_assert_not_null(strstr(hal_error_message(), "or work before it"), "%s", hal_error_message());
  for (int i = 0; i < 1000 && !atomic_load(&called); i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  cr_assert_eq(atomic_load(&called), 1, "a host function queued after the failure was not called");
  assert_fails(add_one(stream, to), HAL_UNAVAILABLE, "is lost");
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

Test(cuda_failure, a_refusal_of_the_driver_is_reported_with_its_cause_and_the_next_attempt_works) {
  const refusal_t refusals[] = {
      {"alloc=2", "free", HAL_RESOURCE_EXHAUSTED, try_memory}, /* the host frees its caches and retries */
      {"module=1", "refused on demand", HAL_INVALID_ARGUMENT, try_module},
      {"copy=1", "memory_fill was refused", HAL_INVALID_ARGUMENT, try_fill},
      {"launch=1", "add_one was refused: the driver returned CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)",
       HAL_INVALID_ARGUMENT, try_launch},
  };
  assert_ok(try_fill()); /* creates the objects that are created at the first use */
  assert_ok(try_launch());
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    set_fault(refusals[i].fault);
    assert_fails(refusals[i].attempt(), refusals[i].status, refusals[i].says);
    set_fault("alloc=0,module=0,copy=0,launch=0");
    assert_ok(refusals[i].attempt());
  }
}

Test(cuda_failure, exhausted_host_memory_is_reported) {
  set_fault("host=2"); /* the host frees its caches and retries */
  assert_fails(try_pinned(), HAL_RESOURCE_EXHAUSTED, "page-locked");
}

Test(cuda_failure, a_failed_stream_creation_is_reported_and_the_next_one_succeeds) {
  hal_stream_t *stream;
  set_fault("stream=1");
  assert_fails(hal_stream_acquire(0, -1, &stream), HAL_RESOURCE_EXHAUSTED, "a stream of");
  assert_ok(hal_stream_acquire(0, -1, &stream));
}

Test(cuda_failure, a_failed_event_creation_is_reported_and_the_next_one_succeeds) {
  hal_event_t *event;
  set_fault("event=1");
  assert_fails(hal_event_create(0, 0, &event), HAL_RESOURCE_EXHAUSTED, "an event of");
  assert_ok(hal_event_create(0, 0, &event));
  hal_event_destroy(event);
}

Test(cuda_failure, work_that_ends_late_is_waited_for_and_in_order) {
  char *to;
  hal_stream_t *const stream = begin(&to);
  set_fault("delay=20000");
  for (int i = 0; i < 8; i++) assert_ok(add_one(stream, to));
  cr_assert_eq(hal_stream_query(stream), HAL_NOT_READY);
  assert_ok(hal_stream_synchronize(stream));
  set_fault("delay=0");
  cr_assert_eq(number_at(0, to), 9);
}

Test(cuda_failure, a_lost_device_is_reported_with_the_kernel_stays_lost_and_the_other_device_works) {
  char *to;
  needs_two_devices(hal_device_count());
  hal_stream_t *const stream = begin(&to);
  char *const other = device_bytes(1, 4);
  const uint32_t seven = 7;
  set_fault("code=700,lost=1");
  assert_ok(add_one(stream, to));
  assert_ok(add_one(stream, to)); /* at this one */
  assert_fails(hal_stream_synchronize(stream), HAL_UNAVAILABLE, "add_one");
  cr_assert_not_null(strstr(hal_error_message(), "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", hal_error_message());
  assert_fails(add_one(stream, to), HAL_UNAVAILABLE, "lost");
  assert_fails(hal_device_synchronize(0), HAL_UNAVAILABLE, "lost");
  assert_ok(hal_memory_fill(NULL, 1, other, &seven, 4, 4));
  cr_assert_eq(number_at(1, other), 7);
}

Test(cuda_failure, a_wait_for_an_event_of_a_lost_device_ends) {
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

Test(cuda_failure, a_host_function_after_lost_work_is_called) {
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

/* ---- a sweep ---- */

/* Creates and frees memory, page-locked memory, streams, events and a module, and runs copies, fills and launches.
   Returns the first failure. */
static hal_status_t use_everything(uint32_t *out_number) {
  hal_block_t *block = NULL;
  hal_stream_t *first = NULL, *second = NULL;
  hal_event_t *event = NULL;
  hal_module_t *module = NULL;
  hal_kernel_t *own = NULL;
  void *pinned = NULL;
  const uint32_t one = 1;
  char *to = NULL;
  const hal_arg_t args[] = {POINTER(to)};
  hal_status_t status = hal_memory_allocate(0, NULL, 32 << 20, &block);
  if (!status) to = hal_memory_block_address(block);
  if (!status) status = hal_host_allocate(0, 4 << 20, &pinned);
  if (!status) status = hal_stream_acquire(0, 0, &first);
  if (!status) status = hal_stream_acquire(0, -1, &second);
  if (!status) status = hal_event_create(0, 0, &event);
  if (!status) status = hal_memory_fill(first, 0, to, &one, 4, 64);
  if (!status) status = load_source(0, SLOW_SOURCE, "", &module);
  if (!status) status = hal_kernel_get(module, "add_one", &own);
  if (!status) status = launch_1d(own, first, 1, 1, args, 1);
  if (!status) status = hal_event_record(event, first);
  if (!status) status = hal_stream_wait_event(second, event);
  if (!status) status = hal_memory_copy(second, pinned, HAL_HOST, to, 0, 4);
  const hal_status_t waited =
      second ? hal_stream_synchronize(second) : HAL_OK; /* also after a failure: pinned memory is written */
  if (!status) status = waited;
  const hal_status_t of_first = first ? hal_stream_synchronize(first) : HAL_OK;
  if (!status) status = of_first;
  if (!status) memcpy(out_number, pinned, sizeof *out_number);
  if (event) hal_event_destroy(event);
  if (module) hal_module_unload(module);
  if (pinned) hal_host_free(pinned);
  hal_memory_release(block);
  hal_host_empty_cache(-1);
  hal_memory_empty_cache(0);
  return status;
}

Test(cuda_failure, each_failing_call_is_reported_and_later_calls_work) {
  static const char *const kinds[] = {"alloc", "host", "module", "launch", "copy", "event", "stream"};
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    int failed = 0;
    for (int spared = 0; spared < 4; spared++) {
      char text[64];
      uint32_t number = 0;
      snprintf(text, sizeof text, "%s=3/%d", kinds[kind], spared);
      set_fault(text);
      const hal_status_t status = use_everything(&number);
      if (status) {
        failed++;
        cr_assert_gt(strlen(hal_error_message()), 20, "%s: %s", text, hal_error_message());
        cr_assert_not_null(strstr(hal_error_message(), "cuda: "), "%s: %s", text, hal_error_message());
      } else {
        cr_assert_eq(number, 2, "%s", text);
      }
      snprintf(text, sizeof text, "%s=0", kinds[kind]);
      set_fault(text);
      assert_ok(use_everything(&number));
      cr_assert_eq(number, 2, "after %s", kinds[kind]);
    }
    cr_assert(failed || strcmp(kinds[kind], "stream") == 0, "%s never failed",
              kinds[kind]); /* the host keeps streams */
  }
}
