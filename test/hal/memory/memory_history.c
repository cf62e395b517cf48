/* memory_history.c: recorded events, stacks, and out-of-memory observers. */
#include "base/host_malloc.h"
#include "memory/held.h"
#include "memory/history.h"
#include "memory_recorded.h"

TestSuite(memory_history, .timeout = 60);

static void start(uint32_t stacks, uint64_t max_events) {
  const hal_memory_history_desc_t desc = recorded(stacks, max_events);
  cr_assert_eq(hal_memory_history_start(0, &desc), HAL_OK, "%s", hal_error_message());
}

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static hal_memory_history_t *read(void) {
  hal_memory_history_t *history = NULL;
  cr_assert_eq(hal_memory_history_read(0, &history), HAL_OK, "%s", hal_error_message());
  return history;
}

/* Compares all events but the SNAPSHOT of this call (actions_of). */
static void expect_actions(const char *expected) {
  hal_memory_history_t *const history = read();
  char actions[256];
  snprintf(actions, sizeof(actions), "%s", actions_of(history));
  const size_t count = strlen(actions);
  cr_assert(count > 0);
  cr_expect_eq(actions[count - 1], 's');
  actions[count - 1] = 0;
  cr_expect_str_eq(actions, expected);
  hal_memory_history_release(history);
}

/* ---- events ---- */

Test(memory_history, events_of_a_block_and_its_segment) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_NONE, 100);
  hal_block_t *const block = take(1000);
  void *const address = hal_memory_block_address(block);
  hal_memory_release(block);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  expect_actions("SarfF");
  hal_memory_history_t *const history = read();
  const hal_memory_event_t segment = event_of(history, 0);
  cr_expect_eq(segment.size, 2u << 20);
  for (size_t i = 1; i < 4; i++) {
    const hal_memory_event_t event = event_of(history, i);
    cr_expect_eq(event.address, address);
    cr_expect_eq(event.size, 1000u, "as requested");
    cr_expect_null(event.stack);
    cr_expect_geq(event.time_ns, segment.time_ns);
  }
  cr_expect_eq(event_of(history, 4).address, segment.address);
  hal_memory_history_release(history);
  cr_expect_eq(captured, 0);
  close_clean();
}

Test(memory_history, nothing_is_recorded_before_the_start_and_after_the_stop) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *const before = take(1000), *const large = take(3u << 20);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_block_t *const during = take(1000);
  hal_memory_release(before);
  expect_actions("arf");
  cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
  cr_expect_eq(live, 0);
  hal_memory_release(during);
  hal_memory_release(large);
  hal_memory_history_t *const history = read();
  cr_expect_eq(hal_memory_history_events(history), 0u);
  cr_expect_gt(hal_memory_history_blocks(history), 0u);
  hal_memory_history_release(history);
  close_clean();
}

Test(memory_history, a_release_is_completed_when_other_streams_are_done) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_block_t *const block = take(1000);
  hal_stream_t *const other = double_stream(0, 1);
  double_enqueue(other, hal_memory_block_address(block), 1000);
  cr_assert_eq(hal_memory_record_stream(block, other), HAL_OK);
  hal_memory_release(block);
  expect_actions("Sar");
  hal_memory_history_t *history = read();
  for (size_t i = 0; i < hal_memory_history_blocks(history); i++) {
    const hal_memory_block_info_t info = block_of(history, i);
    cr_expect_eq(info.stack != NULL, info.state == HAL_MEMORY_BLOCK_PENDING);
  }
  hal_memory_history_release(history);
  double_finish(other);
  hal_memory_release(take(5000));
  expect_actions("Sarssfarf");
  close_clean();
}

Test(memory_history, adopted_and_pooled_memory_are_segments) {
  static char memory[4096];
  cr_assert_eq(double_open(1, HAL_DEVICE_POOLED), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_memory_release(take(1000));
  hal_block_t *adopted = NULL;
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, sizeof(memory), NULL, NULL, &adopted), HAL_OK);
  hal_memory_release(adopted);
  expect_actions("SarfFSarfF");
  close_clean();
}

Test(memory_history, the_pool_is_recorded_and_empty_blocks_are_not) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(hal_memory_pool_create(0, &pool), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_memory_release(take(0));
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  hal_block_t *const block = take(1000);
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  hal_memory_release(block);
  expect_actions("Sarf");
  hal_memory_history_t *const history = read();
  for (size_t i = 0; i < 4; i++) cr_expect_eq(event_of(history, i).pool, hal_memory_pool_id(pool));
  hal_memory_history_release(history);
  hal_memory_pool_release(pool);
  close_clean();
}

Test(memory_history, a_block_held_for_deferred_work_is_completed) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_block_t *const block = take(1000);
  hal_allocator_t *const allocator = hal_allocator_of(&hal_devices[0]);
  hal_lock(&allocator->lock);
  hal_mem_history_requested(allocator, block);
  hal_mem_history_freed(allocator, block); /* as release.c, before the record stores the size */
  hal_mem_held_put(block->pool, block, 1024);
  hal_unlock(&allocator->lock);
  hal_block_t *const again = take(1000);
  cr_expect_eq(again, block);
  expect_actions("Sarfa");
  cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
  close_clean();
}

Test(memory_history, the_last_events_are_kept) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *const kept = take(512);
  for (uint64_t max = 1; max < 3000; max = max * 3 + 1) {
    start(HAL_MEMORY_STACKS_ALL, max);
    for (size_t i = 0; i < 1500; i++) hal_memory_release(take(1000 + i));
    hal_memory_history_t *const history = read();
    cr_assert_eq(hal_memory_history_events(history), max);
    cr_expect_eq(event_of(history, max - 1).action, HAL_MEMORY_EVENT_SNAPSHOT);
    for (size_t back = 1; back < max; back++) { /* before the SNAPSHOT: ... ALLOC, FREE_REQUESTED, FREE_COMPLETED */
      const hal_memory_event_t event = event_of(history, max - 1 - back);
      cr_assert_eq(event.size, 1000 + 1499 - (back - 1) / 3);
      cr_assert_eq(event.action, HAL_MEMORY_EVENT_FREE_COMPLETED - (back - 1) % 3);
    }
    hal_memory_history_release(history);
    cr_expect_leq(live, (long)max);
    cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
    cr_expect_eq(live, 0);
  }
  hal_memory_release(kept);
  close_clean();
}

Test(memory_history, a_smaller_ring_and_a_cleared_one) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_NONE, 100);
  hal_block_t *const block = take(1000);
  start(HAL_MEMORY_STACKS_NONE, 1);
  hal_memory_history_t *history = read();
  cr_expect_eq(hal_memory_history_events(history), 1u);
  hal_memory_history_release(history);
  const hal_memory_history_desc_t desc = {.struct_size = sizeof(desc),
                                          .max_events = 100,
                                          .skip = 1u << HAL_MEMORY_EVENT_FREE_REQUESTED,
                                          .flags = HAL_MEMORY_HISTORY_CLEAR};
  cr_assert_eq(hal_memory_history_start(0, &desc), HAL_OK);
  hal_memory_release(block);
  expect_actions("f");
  close_clean();
}

/* ---- stacks ---- */

Test(memory_history, stacks_of_each_level) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (uint32_t level = HAL_MEMORY_STACKS_NONE; level <= HAL_MEMORY_STACKS_ALL; level++) {
    captured = 0;
    start(level, 100);
    hal_block_t *const block = take(1000);
    hal_memory_release(take(3000));
    hal_memory_history_t *const history = read();
    const hal_memory_event_t allocated = event_of(history, 1), requested = event_of(history, 3);
    cr_expect_eq(captured, level == HAL_MEMORY_STACKS_ALL ? 3 : level == HAL_MEMORY_STACKS_NONE ? 0 : 2);
    cr_expect_eq(allocated.stack != NULL, level >= HAL_MEMORY_STACKS_ALLOC);
    cr_expect_eq(requested.stack != NULL, level >= HAL_MEMORY_STACKS_ALLOC);
    if (requested.stack) cr_expect_eq(*(long *)requested.stack, level == HAL_MEMORY_STACKS_ALL ? 3 : 2);
    for (size_t i = 0; i < hal_memory_history_blocks(history); i++) {
      const hal_memory_block_info_t info = block_of(history, i);
      cr_expect_eq(info.segment_stack != NULL, level >= HAL_MEMORY_STACKS_LIVE);
      cr_expect_eq(info.stack != NULL, level >= HAL_MEMORY_STACKS_LIVE && info.state == HAL_MEMORY_BLOCK_ALLOCATED);
    }
    hal_memory_history_release(history);
    hal_memory_release(block);
    cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
    cr_expect_eq(live, 0);
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  }
  close_clean();
}

Test(memory_history, a_copy_keeps_its_stacks_after_the_stop) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_block_t *const block = take(1000);
  hal_memory_history_t *const history = read();
  cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
  hal_memory_release(block);
  cr_expect_eq(live, 1);
  cr_expect_eq(*(long *)event_of(history, 1).stack, 1);
  hal_memory_history_release(history);
  hal_memory_history_release(NULL);
  close_clean();
}

Test(memory_history, a_thread_that_defers_callbacks_captures_nothing) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 2);
  hal_memory_release(take(1000));
  cr_expect_eq(captured, 2);
  hal_callbacks_defer();
  hal_memory_release(take(1000)); /* removes the last events with a stack */
  cr_expect_eq(captured, 2);
  cr_expect_eq(live, 2, "that of the segment, and one that is released later");
  hal_callbacks_resume();
  cr_expect_eq(live, 1);
  close_clean();
}

/* ---- errors ---- */

static struct {
  int calls;
  int32_t device;
  size_t size, total, free_bytes;
} seen;

static void observe(void *user_data, int32_t device, size_t size, size_t total, size_t free_bytes) {
  cr_expect_eq(user_data, &seen);
  seen.calls++;
  seen.device = device, seen.size = size, seen.total = total, seen.free_bytes = free_bytes;
  hal_memory_release(take(512)); /* no lock is held */
  hal_error_set(HAL_INTERNAL, "an error of the observer");
}

Test(memory_history, out_of_memory_is_an_event_and_observed) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 8u << 20), HAL_OK);
  cr_assert_eq(hal_memory_oom_observe(0, observe, &seen), HAL_OK);
  cr_expect_eq(hal_memory_oom_observe(0, NULL, NULL), HAL_INVALID_ARGUMENT);
  start(HAL_MEMORY_STACKS_ALL, 100);
  hal_block_t *block = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 20u << 20, &block), HAL_RESOURCE_EXHAUSTED);
  cr_expect_not_null(strstr(hal_error_message(), "out of memory. Tried to allocate 20.00 MiB"), "%s",
                     hal_error_message());
  cr_expect_eq(seen.calls, 1);
  cr_expect_eq(seen.size, 20u << 20);
  cr_expect_eq(seen.total, 8u << 20);
  hal_memory_history_t *const history = read();
  const hal_memory_event_t event = event_of(history, 0);
  cr_expect_eq(event.action, HAL_MEMORY_EVENT_OOM);
  cr_expect_eq(event.size, 20u << 20);
  cr_expect_eq(event.free_bytes, seen.free_bytes);
  cr_expect_not_null(event.stack);
  hal_memory_history_release(history);
  close_clean();
}

Test(memory_history, no_failing_malloc_of_the_host_loses_memory_or_stacks) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_oom_observe(0, observe, &seen), HAL_OK);
  for (long nth = 1; nth <= 12; nth++) {
    hal_malloc_fail_after(nth);
    const hal_memory_history_desc_t desc = recorded(HAL_MEMORY_STACKS_ALL, 1000);
    const hal_status_t started = hal_memory_history_start(0, &desc);
    cr_assert(started == HAL_OK || started == HAL_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 300; i++) {
      hal_block_t *block = NULL;
      hal_memory_allocate(0, double_stream(0, i % 3), (size_t)(i + 1) * 512, &block);
      hal_memory_release(block);
    }
    hal_memory_history_t *history = NULL;
    hal_memory_history_read(0, &history);
    hal_memory_history_release(history);
    hal_malloc_fail_after(0);
    cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
    cr_assert_eq(live, 0, "failure %ld", nth);
    cr_assert_eq(double_.live_bytes, 0u);
  }
  close_clean();
}

Test(memory_history, a_chunk_without_memory_loses_the_oldest_events) {
  hal_mem_ring_t ring = {.max = 10000};
  hal_mem_stack_t *dead = NULL;
  for (int i = 0; i < 2 * HAL_MEM_RING_CHUNK; i++) {
    hal_memory_event_t *const event = hal_mem_ring_push(&ring, &dead);
    cr_assert_not_null(event);
    *event = (hal_memory_event_t){.size = (size_t)i};
  }
  hal_malloc_fail_after(1);
  cr_assert_not_null(hal_mem_ring_push(&ring, &dead));
  cr_expect_eq(ring.lost, (uint64_t)HAL_MEM_RING_CHUNK);
  cr_expect_eq(ring.count, (size_t)HAL_MEM_RING_CHUNK + 1);
  cr_expect_eq(ring.first->events[ring.begin].size, (size_t)HAL_MEM_RING_CHUNK);
  hal_mem_ring_shrink(&ring, 0, &dead);
  hal_mem_ring_destroy(&ring);
  hal_malloc_fail_after(1);
  cr_expect_null(hal_mem_ring_push(&ring, &dead));
  cr_expect_eq(ring.lost, (uint64_t)HAL_MEM_RING_CHUNK + 1);
  hal_malloc_fail_after(0);
}

Test(memory_history, invalid_arguments_are_errors) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_history_desc_t desc = {.struct_size = sizeof(desc), .max_events = 1};
  hal_memory_history_t *history = NULL;
  hal_memory_event_t event;
  cr_expect_eq(hal_memory_history_start(0, NULL), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_history_start(1, &desc), HAL_OUT_OF_RANGE);
  desc.stacks = HAL_MEMORY_STACKS_ALL;
  cr_expect_eq(hal_memory_history_start(0, &desc), HAL_INVALID_ARGUMENT, "no function captures stacks");
  desc.stacks = HAL_MEMORY_STACKS_NONE, desc.flags = 4;
  cr_expect_eq(hal_memory_history_start(0, &desc), HAL_UNIMPLEMENTED);
  desc.flags = 0, desc.struct_size = 8;
  cr_expect_eq(hal_memory_history_start(0, &desc), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_history_stop(1), HAL_OUT_OF_RANGE);
  cr_expect_eq(hal_memory_history_read(1, &history), HAL_OUT_OF_RANGE);
  history = read();
  cr_expect_eq(hal_memory_history_event(history, 0, &event, sizeof(event)), HAL_OUT_OF_RANGE);
  cr_expect_not_null(strstr(hal_error_message(), "entry 0 of 0"), "%s", hal_error_message());
  hal_memory_history_release(history);
  close_clean();
}
