/* Tests of several plugins in one process. Copies between them wait for the streams of both sides, events of one
 * block streams of another, each device has its own memory and streams, and a failure stays with its plugin. The
 * plugins: "later", whose streams run later (devices 0 to 2), "five" without streams (3 and 4), and "tally", whose
 * streams run inline (5 and 6). */
#include "support.h"

enum { LATER = 0, FIVE = 3, TALLY = 5, COUNT = 1000, BYTES = COUNT * 4 };

static uint32_t host[COUNT], back[COUNT];

static void open_three(void) {
  assert_ok(hal_registry_open(FIXTURE("later") "," FIXTURE("five") "," FIXTURE("tally")));
  for (uint32_t i = 0; i < COUNT; i++) host[i] = i * 7 + 1;
}

TestSuite(several, .init = open_three);

static void *allocate(int32_t device) {
  hal_block_t *block = NULL; /* exists until the test's process exits */
  assert_ok(hal_memory_allocate(device, NULL, BYTES, &block));
  return hal_memory_block_address(block);
}

static hal_stream_t *stream_of(int32_t device) {
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_acquire(device, 0, &stream));
  return stream;
}

static void assert_arrived(int32_t device, const void *memory) {
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_current(device, &stream));
  memset(back, 0, sizeof back);
  assert_ok(hal_memory_copy(stream, back, HAL_HOST, memory, device, BYTES));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_arr_eq(back, host, BYTES, "device %d has other numbers", device);
}

Test(several, ranges_are_in_the_order_of_the_list_and_labels_name_plugin_and_index) {
  cr_assert_eq(hal_device_count(), 7);
  assert_fails(hal_device_ensure(7), HAL_OUT_OF_RANGE,
               "device 7 is out of range: this process has 7 (later 0 to 2, five 3 to 4, tally 5 to 6)");
  assert_fails(hal_memory_allocate(FIVE, stream_of(TALLY + 1), 64, &(hal_block_t *){NULL}), HAL_INVALID_ARGUMENT,
               "the stream of device tally:1 (index 6) cannot be used for device five:0 (index 3)");
}

Test(several, a_copy_waits_for_work_queued_on_the_given_stream_of_the_source) {
  void *const far = allocate(LATER), *const near = allocate(FIVE);
  hal_stream_t *const stream = stream_of(LATER); /* not the current one */
  assert_ok(hal_memory_copy(stream, far, LATER, host, HAL_HOST, BYTES));
  assert_ok(hal_memory_copy(stream, near, FIVE, far, LATER, BYTES));
  assert_arrived(FIVE, near);
}

Test(several, a_copy_waits_for_the_current_streams_of_both_sides) {
  void *const far = allocate(LATER), *const near = allocate(TALLY), *const old = allocate(LATER);
  hal_stream_t *const source = stream_of(LATER), *const destination = stream_of(TALLY);
  assert_ok(hal_stream_set_current(source, NULL));
  assert_ok(hal_memory_copy(source, far, LATER, host, HAL_HOST, BYTES));
  assert_ok(hal_memory_copy(destination, near, TALLY, far, LATER, BYTES)); /* the stream of the other side */
  assert_arrived(TALLY, near);
  /* In the other direction, the copy runs after the work that is queued on the destination's current stream. */
  memset(back, 0xEE, sizeof back);
  assert_ok(hal_memory_copy(source, old, LATER, back, HAL_HOST, BYTES));
  assert_ok(hal_memory_copy(destination, old, LATER, near, TALLY, BYTES));
  assert_ok(hal_stream_synchronize(source));
  assert_arrived(LATER, old);
}

Test(several, a_copy_larger_than_the_staging_buffer_arrives_whole) {
  enum { LARGE = 5 * 1000 * 1000 + 3 };
  hal_block_t *far = NULL, *near = NULL;
  char *const from = malloc(LARGE), *const to = calloc(1, LARGE);
  for (size_t i = 0; i < LARGE; i++) from[i] = (char)(i * 31 >> 3);
  assert_ok(hal_memory_allocate(LATER + 2, NULL, LARGE, &far));
  assert_ok(hal_memory_allocate(FIVE + 1, NULL, LARGE, &near));
  void *const a = hal_memory_block_address(far), *const b = hal_memory_block_address(near);
  assert_ok(hal_memory_copy(NULL, a, LATER + 2, from, HAL_HOST, LARGE));
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_current(LATER + 2, &stream));
  assert_ok(hal_memory_copy(stream, b, FIVE + 1, a, LATER + 2, LARGE));
  assert_ok(hal_memory_copy(NULL, to, HAL_HOST, b, FIVE + 1, LARGE));
  cr_assert_eq(memcmp(from, to, LARGE), 0);
  hal_memory_release(far);
  hal_memory_release(near);
  free(from);
  free(to);
}

Test(several, a_stream_of_a_third_device_is_refused) {
  void *const far = allocate(LATER), *const near = allocate(FIVE);
  assert_fails(hal_memory_copy(stream_of(TALLY), near, FIVE, far, LATER, BYTES), HAL_INVALID_ARGUMENT,
               "from device later:0 to device five:0 (index 3)");
}

Test(several, an_event_of_one_plugin_holds_a_stream_of_another) {
  void *const far = allocate(LATER);
  hal_stream_t *const source = stream_of(LATER), *const other = stream_of(TALLY);
  hal_event_t *event = NULL;
  assert_ok(hal_event_create(LATER, 0, &event));
  assert_ok(hal_memory_copy(source, far, LATER, host, HAL_HOST, BYTES));
  assert_ok(hal_event_record(event, source));
  assert_fails(hal_event_query(event), HAL_NOT_READY, "not done yet");
  assert_ok(hal_stream_wait_event(other, event)); /* by the calling thread */
  assert_ok(hal_event_query(event));
  cr_assert_arr_eq(far, host, BYTES); /* "later" is host-visible */
  hal_event_destroy(event);
}

Test(several, an_inline_event_lets_an_asynchronous_stream_go_on) {
  void *const near = allocate(TALLY), *const far = allocate(LATER + 1);
  hal_stream_t *const inline_stream = stream_of(TALLY), *const stream = stream_of(LATER + 1);
  hal_event_t *event = NULL;
  assert_ok(hal_event_create(TALLY, 0, &event));
  assert_ok(hal_memory_copy(inline_stream, near, TALLY, host, HAL_HOST, BYTES));
  assert_ok(hal_event_record(event, inline_stream));
  assert_ok(hal_stream_wait_event(stream, event));
  assert_ok(hal_memory_copy(stream, far, LATER + 1, near, TALLY, BYTES));
  assert_arrived(LATER + 1, far);
  hal_event_destroy(event);
}

Test(several, memory_used_by_a_stream_of_another_plugin_is_not_reused_before_it) {
  hal_block_t *block = NULL, *next = NULL;
  hal_stream_t *const user = stream_of(LATER);
  assert_ok(hal_memory_allocate(FIVE, NULL, BYTES, &block));
  void *const near = hal_memory_block_address(block), *const far = allocate(LATER);
  memcpy(near, host, BYTES);                                           /* "five" uses memory of the host */
  assert_ok(hal_memory_copy(user, far, LATER, host, HAL_HOST, BYTES)); /* keeps the stream busy */
  assert_ok(hal_memory_record_stream(block, user));
  hal_memory_release(block);
  assert_ok(hal_memory_allocate(FIVE, NULL, BYTES, &next));
  cr_assert_neq(hal_memory_block_address(next), near, "given away under the other stream's work");
  hal_memory_release(next);
  assert_ok(hal_stream_synchronize(user));
}

Test(several, each_device_has_its_own_pool_stream_and_current_stream) {
  hal_stream_t *streams[7], *current = NULL;
  for (int32_t device = 0; device < 7; device++) {
    streams[device] = stream_of(device);
    assert_ok(hal_stream_set_current(streams[device], NULL));
  }
  for (int32_t device = 0; device < 7; device++) {
    int32_t owner = -1;
    assert_ok(hal_stream_current(device, &current));
    cr_assert_eq(current, streams[device]);
    assert_ok(hal_memory_find(allocate(device), &owner));
    cr_assert_eq(owner, device);
    hal_memory_stats_t stats = {.struct_size = sizeof stats};
    assert_ok(hal_memory_stats(device, &stats));
    cr_assert_eq(stats.allocation[0].current, 1);
  }
  cr_assert_eq(hal_device_current(), 0); /* a current stream does not change the current device */
}

Test(several_apart, a_failure_on_one_plugins_stream_is_reported_once_and_the_others_work) {
  setenv("LATER_FAIL", "1", 1);
  open_three();
  void *const far = allocate(LATER), *const near = allocate(FIVE);
  hal_stream_t *const stream = stream_of(LATER);
  assert_ok(hal_memory_copy(stream, far, LATER, host, HAL_HOST, BYTES));
  assert_fails(hal_memory_copy(stream, near, FIVE, far, LATER, BYTES), HAL_DATA_LOSS,
               "later, stream_synchronize: later: a copy failed on purpose");
  assert_ok(hal_memory_copy(stream, near, FIVE, far, LATER, BYTES));
  assert_arrived(FIVE, near);
  assert_ok(hal_memory_copy(NULL, near, FIVE, host, HAL_HOST, BYTES));
  assert_arrived(FIVE, near);
}

Test(several_apart, a_driver_that_fails_at_init_leaves_the_others_usable) {
  assert_ok(hal_registry_open(FIXTURE("no_driver") "," FIXTURE("five")));
  cr_assert_eq(hal_device_count(), 3);
  for (int i = 0; i < 2; i++) /* the failure persists and is reported again */
    assert_fails(hal_device_ensure(0), HAL_UNAVAILABLE, "no_driver, init: the driver is not running; start it");
  void *const near = allocate(1);
  cr_assert_not_null(near);
  assert_fails(hal_memory_copy(NULL, near, 1, near, 0, 4), HAL_UNAVAILABLE, "no_driver");
}

Test(several_apart, the_validate_layer_has_no_remark_about_copies_between_plugins) {
  setenv("HAL_LAYERS", "validate", 1);
  open_three();
  void *const far = allocate(LATER), *const near = allocate(TALLY), *const third = allocate(FIVE);
  assert_ok(hal_memory_copy(NULL, far, LATER, host, HAL_HOST, BYTES));
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_current(LATER, &stream));
  assert_ok(hal_memory_copy(stream, near, TALLY, far, LATER, BYTES));
  assert_ok(hal_memory_copy(NULL, third, FIVE, near, TALLY, BYTES));
  assert_arrived(FIVE, third);
}
