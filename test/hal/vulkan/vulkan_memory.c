/* Tests of the Vulkan plugin's memory and streams: copies and fills at any alignment in any order, and streams that
   share a queue. */
#include <stdatomic.h>
#include <time.h>

#include "vulkan_testing.h"

enum { BYTES = 3 << 20, ROUNDS = 200 };

TestSuite(vulkan_memory, .init = open_vulkan, .fini = close_vulkan);

static uint64_t state = 88172645463325252u;

static size_t next_below(size_t limit) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (size_t)(state % limit);
}

/* Chooses a range of either a few or many bytes at any offset. */
static size_t range(size_t *out_size) {
  *out_size = 1 + next_below(next_below(4) ? 100 : BYTES / 2);
  return next_below(BYTES - *out_size);
}

/* The same random commands on the device and on host memory. */
Test(vulkan_memory, copies_and_fills_at_any_alignment_have_the_results_of_the_host) {
  const int32_t last = hal_device_count() - 1;
  hal_stream_t *stream;
  char *const device = device_bytes(0, BYTES), *const second = device_bytes(last, BYTES);
  char *const mine = malloc(BYTES), *const other = malloc(BYTES), *const got = malloc(BYTES);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (size_t i = 0; i < BYTES; i++) mine[i] = (char)next_below(256);
  assert_ok(hal_memory_copy(stream, device, 0, mine, HAL_HOST, BYTES));
  assert_ok(hal_memory_copy(stream, second, last, device, 0, BYTES));
  memcpy(other, mine, BYTES);
  for (int round = 0; round < ROUNDS; round++) {
    size_t size;
    const size_t at = range(&size), from = next_below(BYTES - size), kind = next_below(4);
    const unsigned char pattern[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, (unsigned char)round};
    const size_t length = (size_t)1 << next_below(5), filled = size / length * length;
    if (kind == 0) {
      assert_ok(hal_memory_fill(stream, 0, device + at, pattern, length, filled));
      for (size_t i = 0; i < filled; i++) mine[at + i] = (char)pattern[i % length];
    } else if (kind == 1) {
      assert_ok(hal_memory_copy(stream, second + at, last, device + from, 0, size));
      memcpy(other + at, mine + from, size);
    } else if (kind == 2) {
      assert_ok(hal_memory_copy(stream, device + at, 0, second + from, last, size));
      memcpy(mine + at, other + from, size);
    } else {
      assert_ok(hal_memory_copy(stream, got, HAL_HOST, device + at, 0, size));
      assert_ok(hal_stream_synchronize(stream));
      cr_assert_eq(memcmp(got, mine + at, size), 0, "round %d: %zu bytes at %zu differ", round, size, at);
      assert_ok(hal_memory_copy(stream, device + from, 0, got, HAL_HOST, size));
      assert_ok(hal_stream_synchronize(stream));
      memcpy(mine + from, got, size);
    }
  }
  assert_ok(hal_memory_copy(stream, got, HAL_HOST, device, 0, BYTES));
  assert_ok(hal_stream_synchronize(stream));
  cr_assert_eq(memcmp(got, mine, BYTES), 0);
  free(mine), free(other), free(got);
}

static void wait_for(void *flag) {
  const struct timespec pause = {.tv_nsec = 100000};
  while (!atomic_load((atomic_int *)flag)) nanosleep(&pause, NULL);
}

static void set(void *flag) { atomic_store((atomic_int *)flag, 1); }

/* A stream that waits for an event whose work is not submitted yet must not block others on its queue. */
Test(vulkan_memory, streams_that_share_a_queue_do_not_block_each_other, .timeout = 60) {
  static atomic_int gate;
  hal_stream_t *first, *second, *third;
  hal_event_t *event;
  uint32_t got = 0, value = 7;
  char *const memory = device_bytes(0, 4);
  assert_ok(hal_stream_acquire(0, 0, &first));
  assert_ok(hal_stream_acquire(0, 0, &second));
  assert_ok(hal_stream_acquire(0, 0, &third));
  assert_ok(hal_event_create(0, 0, &event));
  assert_ok(hal_stream_host_call(first, wait_for, &gate));
  assert_ok(hal_memory_fill(first, 0, memory, &value, 4, 4));
  assert_ok(hal_event_record(event, first));
  assert_ok(hal_stream_wait_event(second, event));
  assert_ok(hal_memory_copy(second, &got, HAL_HOST, memory, 0, 4));
  cr_assert_eq(hal_stream_query(second), HAL_NOT_READY);
  assert_ok(hal_stream_host_call(third, set, &gate)); /* runs although the other two wait */
  assert_ok(hal_stream_synchronize(second));
  cr_assert_eq(got, 7);
  hal_event_destroy(event);
}

Test(vulkan_memory, memory_is_exhausted_with_an_error_and_usable_afterwards) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_block_t *block = NULL;
  assert_ok(hal_device_info(0, &info));
  cr_assert_gt(info.total_memory, 0);
  assert_fails(hal_memory_allocate(0, NULL, (size_t)info.total_memory + 1, &block), HAL_RESOURCE_EXHAUSTED, "total");
  device_bytes(0, 1 << 20);
}

/* Memory of the program, at any address. Its neighbors are not written, and a second registration is refused. */
Test(vulkan_memory, of_the_program_is_page_locked_in_place) {
  enum { SIZE = 100003, SHIFT = 77 };
  hal_stream_t *stream;
  char *const room = calloc(1, SIZE + 2 * SHIFT), *const mine = room + SHIFT;
  char *const device = device_bytes(0, SIZE);
  const hal_status_t status = hal_host_register(0, mine, SIZE);
  if (status == HAL_UNIMPLEMENTED) cr_skip_test("the driver has no VK_EXT_external_memory_host");
  assert_ok(status);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (int i = 0; i < SIZE; i++) mine[i] = (char)(i * 7);
  assert_ok(hal_memory_copy(stream, device, 0, mine, HAL_HOST, SIZE));
  assert_ok(hal_memory_fill(stream, 0, device + 5, "ab", 2, 6));
  assert_ok(hal_memory_copy(stream, mine, HAL_HOST, device, 0, SIZE));
  assert_ok(hal_stream_synchronize(stream));
  for (int i = 0; i < SIZE; i++) cr_assert_eq(mine[i], i >= 5 && i < 11 ? "ba"[i % 2] : (char)(i * 7), "byte %d", i);
  for (int i = 0; i < SHIFT; i++) cr_assert(!room[i] && !mine[SIZE + i]);
  assert_fails(hal_host_register(0, mine, SIZE), HAL_INVALID_ARGUMENT, "page-locked already");
  assert_fails(hal_host_register(0, mine + SIZE - 1, 4), HAL_INVALID_ARGUMENT, "page-locked already");
  assert_fails(hal_host_register(0, room, SHIFT + 1), HAL_INVALID_ARGUMENT, "page-locked already");
  assert_ok(hal_host_register(0, room, SHIFT)); /* in the same page */
  assert_ok(hal_host_unregister(0, room));
  assert_ok(hal_host_unregister(0, mine));
  assert_ok(hal_host_register(0, mine, SIZE));
  assert_ok(hal_host_unregister(0, mine));
  free(room);
}

Test(vulkan_memory, times_of_events_grow_with_the_work_between_them) {
  hal_stream_t *stream;
  hal_event_t *start, *end;
  int64_t elapsed = 0;
  const struct timespec pause = {.tv_nsec = 20000000};
  char *const memory = device_bytes(0, BYTES);
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &start));
  assert_ok(hal_event_create(0, HAL_EVENT_TIMING, &end));
  assert_ok(hal_event_record(start, stream));
  assert_ok(hal_memory_fill(stream, 0, memory, "x", 1, BYTES));
  assert_ok(hal_stream_synchronize(stream));
  nanosleep(&pause, NULL);
  assert_ok(hal_event_record(end, stream));
  assert_ok(hal_event_synchronize(end));
  assert_ok(hal_event_elapsed(start, end, &elapsed));
  cr_assert_geq(elapsed, 20000000);
  cr_assert_lt(elapsed, INT64_C(60000000000));
  hal_event_destroy(start), hal_event_destroy(end);
}
