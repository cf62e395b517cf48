/* host_history.c: recorded events, stacks and blocks of page-locked host memory. */
#include "base/host_malloc.h"
#include "memory_recorded.h"

TestSuite(host_history, .timeout = 60);

static void start(uint32_t stacks, uint64_t max_events) {
  const hal_memory_history_desc_t desc = recorded(stacks, max_events);
  cr_assert_eq(hal_host_history_start(0, &desc), HAL_OK, "%s", hal_error_message());
}

static char *take(size_t size) {
  void *address = NULL;
  cr_assert_eq(hal_host_allocate(0, size, &address), HAL_OK, "%s", hal_error_message());
  return address;
}

static void give(void *address) { cr_assert_eq(hal_host_free(address), HAL_OK, "%s", hal_error_message()); }

static hal_memory_history_t *read(void) {
  hal_memory_history_t *history = NULL;
  cr_assert_eq(hal_host_history_read(0, &history), HAL_OK, "%s", hal_error_message());
  return history;
}

static void expect_actions(const char *expected) {
  hal_memory_history_t *const history = read();
  cr_expect_str_eq(actions_of(history), expected);
  hal_memory_history_release(history);
}

static hal_host_stats_t stats(void) {
  hal_host_stats_t stats = {.struct_size = sizeof(stats)};
  cr_assert_eq(hal_host_stats(0, &stats), HAL_OK);
  return stats;
}

/* Checks the blocks against the statistics, which are counted elsewhere. Returns their number. */
static size_t expect_blocks_of_the_statistics(const hal_memory_history_t *history) {
  size_t active = 0, all = 0;
  const char *last = NULL;
  for (size_t i = 0; i < hal_memory_history_blocks(history); i++) {
    const hal_memory_block_info_t block = block_of(history, i);
    cr_expect_eq(block.segment, block.address);
    cr_expect_eq(block.segment_size, block.size);
    cr_expect_gt((const char *)block.address, last, "ordered by address");
    last = block.address;
    all += block.size;
    if (block.state != HAL_MEMORY_BLOCK_FREE) active += block.size;
  }
  cr_expect_eq((int64_t)all, stats().allocated_bytes.current);
  cr_expect_eq((int64_t)active, stats().active_bytes.current);
  cr_expect_eq((int64_t)hal_memory_history_blocks(history), stats().allocations.current);
  return hal_memory_history_blocks(history);
}

/* ---- events ---- */

Test(host_history, events_of_an_allocation_and_its_segment) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_NONE, 100);
  cr_expect_eq(hal_host_history_is_recorded(0), 1);
  char *const address = take(5000);
  give(address);
  cr_expect_eq(take(6000), address, "of the same class");
  give(address);
  cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  expect_actions("SarfarfF");
  hal_memory_history_t *const history = read();
  static const size_t sizes[] = {8192, 5000, 5000, 5000, 6000, 6000, 6000, 8192};
  for (size_t i = 0; i < 8; i++) {
    const hal_memory_event_t event = event_of(history, i);
    cr_expect_eq(event.address, address);
    cr_expect_eq(event.size, sizes[i], "event %zu: %zu", i, event.size);
    cr_expect_null(event.stack);
    cr_expect_eq(event.stream, 0);
    cr_expect_eq(event.pool, 0u);
    cr_expect(!i || event.time_ns >= event_of(history, i - 1).time_ns);
  }
  cr_expect_eq(hal_memory_history_blocks(history), 0u);
  hal_memory_history_release(history);
  cr_expect_eq(captured, 0);
  close_clean();
}

Test(host_history, device_memory_and_host_memory_are_recorded_independently) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = NULL;
  start(HAL_MEMORY_STACKS_ALL, 100);
  cr_assert_eq(hal_memory_allocate(0, NULL, 1000, &block), HAL_OK);
  hal_memory_release(block);
  expect_actions("");
  const hal_memory_history_desc_t desc = recorded(HAL_MEMORY_STACKS_ALL, 100);
  cr_assert_eq(hal_memory_history_start(0, &desc), HAL_OK);
  give(take(5000));
  expect_actions("Sarf");
  hal_memory_history_t *history = NULL;
  cr_assert_eq(hal_memory_history_read(0, &history), HAL_OK);
  cr_expect_str_eq(actions_of(history), "s");
  hal_memory_history_release(history);
  cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
  give(take(5000));
  expect_actions("Sarfarf");
  close_clean();
}

Test(host_history, nothing_is_recorded_before_the_start_and_after_the_stop) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_expect_eq(hal_host_history_is_recorded(0), 0);
  char *const before = take(5000);
  start(HAL_MEMORY_STACKS_ALL, 100);
  char *const during = take(5000);
  give(before);
  expect_actions("Sarf");
  hal_memory_history_t *history = read();
  cr_expect_eq(expect_blocks_of_the_statistics(history), 2u);
  hal_memory_history_release(history);
  cr_assert_eq(hal_host_history_stop(0), HAL_OK);
  cr_expect_eq(hal_host_history_is_recorded(0), 0);
  cr_expect_eq(live, 0);
  give(during);
  history = read();
  cr_expect_eq(hal_memory_history_events(history), 0u);
  cr_expect_eq(expect_blocks_of_the_statistics(history), 2u);
  hal_memory_history_release(history);
  close_clean();
}

/* Streams also end their uses while device memory is allocated, whose calls have another stack or none. */
Test(host_history, a_release_is_completed_when_the_streams_are_done) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  char *const address = take(5000);
  hal_stream_t *const stream = double_stream(0, 1);
  double_enqueue(stream, address, 5000);
  cr_assert_eq(hal_host_record_stream(address, stream), HAL_OK);
  give(address);
  expect_actions("Sar");
  hal_memory_history_t *history = read();
  const hal_memory_block_info_t info = block_of(history, 0);
  cr_expect_eq(info.state, HAL_MEMORY_BLOCK_PENDING);
  cr_expect_eq(info.requested, 5000u);
  cr_expect_not_null(info.stack);
  expect_blocks_of_the_statistics(history);
  hal_memory_history_release(history);
  double_finish(stream);
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, 1000, &block), HAL_OK);
  hal_memory_release(block);
  expect_actions("Sarf");
  history = read();
  cr_expect_eq(event_of(history, 3).address, address);
  cr_expect_eq(*(long *)event_of(history, 3).stack, 1, "of the allocation, since the call of the device has none");
  cr_expect_eq(block_of(history, 0).state, HAL_MEMORY_BLOCK_FREE);
  cr_expect_eq(block_of(history, 0).requested, 0u);
  cr_expect_null(block_of(history, 0).stack);
  hal_memory_history_release(history);
  close_clean();
}

Test(host_history, out_of_memory_is_an_event) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  give(take(100 << 10));
  void *address = NULL;
  double_.fail_with = HAL_RESOURCE_EXHAUSTED;
  double_.fail_after[HAL_SLOT_host_alloc] = 1;
  give(take(1 << 20)); /* the second attempt, after the cache was freed */
  expect_actions("SarfFSarf");
  cr_expect_eq(hal_host_allocate(0, (size_t)PTRDIFF_MAX / 4 * 3, &address), HAL_RESOURCE_EXHAUSTED);
  hal_memory_history_t *const history = read();
  const size_t last = hal_memory_history_events(history) - 1;
  cr_expect_str_eq(actions_of(history), "SarfFSarfFo");
  cr_expect_eq(event_of(history, last).size, (size_t)PTRDIFF_MAX / 4 * 3);
  cr_expect_eq(event_of(history, last).free_bytes, 0u, "unknown");
  cr_expect_null(event_of(history, last).address);
  cr_expect_not_null(event_of(history, last).stack);
  hal_memory_history_release(history);
  close_clean();
}

/* ---- memory of the caller ---- */

static int registered;
static hal_status_t register_with = HAL_OK;

static hal_status_t host_register(int32_t device, void *ptr, size_t size, uint32_t flags) {
  (void)device, (void)ptr, (void)size, (void)flags;
  registered += !register_with;
  return register_with ? hal_host->error_set(register_with, 0, "the mock device was set to fail") : HAL_OK;
}

static hal_status_t host_unregister(int32_t device, void *ptr) {
  (void)device, (void)ptr;
  registered -= !register_with;
  return register_with ? hal_host->error_set(register_with, 0, "the mock device was set to fail") : HAL_OK;
}

Test(host_history, registered_memory_is_a_segment_until_it_is_unregistered) {
  static char first[4096], second[8192];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_registry.plugins[0].api.host_register = host_register;
  hal_registry.plugins[0].api.host_unregister = host_unregister;
  cr_assert_eq(hal_host_register(0, first, sizeof(first)), HAL_OK, "%s", hal_error_message());
  start(HAL_MEMORY_STACKS_ALL, 100);
  cr_assert_eq(hal_host_register(0, second, sizeof(second)), HAL_OK);
  expect_actions("Sa");
  hal_memory_history_t *history = read();
  cr_assert_eq(hal_memory_history_blocks(history), 2u, "also what was registered before the start");
  for (size_t i = 0; i < 2; i++) {
    const hal_memory_block_info_t block = block_of(history, i);
    cr_expect_eq(block.size, block.address == (void *)first ? sizeof(first) : sizeof(second));
    cr_expect_eq(block.requested, block.size);
    cr_expect_eq(block.state, HAL_MEMORY_BLOCK_ALLOCATED);
    cr_expect_eq(block.stack != NULL, block.address == (void *)second);
  }
  hal_memory_history_release(history);
  register_with = HAL_INTERNAL;
  cr_expect_eq(hal_host_unregister(0, second), HAL_INTERNAL);
  cr_expect_eq(hal_host_register(0, first + 1, 10), HAL_INTERNAL);
  register_with = HAL_OK;
  expect_actions("Sa");
  cr_assert_eq(hal_host_unregister(0, second), HAL_OK);
  cr_assert_eq(hal_host_unregister(0, first), HAL_OK);
  expect_actions("SarfFrfF");
  history = read();
  cr_expect_eq(hal_memory_history_blocks(history), 0u);
  cr_expect_eq(event_of(history, 2).address, (void *)second);
  cr_expect_eq(*(long *)event_of(history, 0).stack, 1);
  hal_memory_history_release(history);
  cr_expect_eq(registered, 0);
  close_clean();
}

/* ---- stacks ---- */

Test(host_history, stacks_of_each_level) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (uint32_t level = HAL_MEMORY_STACKS_NONE; level <= HAL_MEMORY_STACKS_ALL; level++) {
    captured = 0;
    start(level, 100);
    char *const kept = take(5000);
    give(take(20000));
    hal_memory_history_t *const history = read();
    const hal_memory_event_t allocated = event_of(history, 1), requested = event_of(history, 4);
    cr_expect_str_eq(actions_of(history), "SaSarf");
    cr_expect_eq(captured, level == HAL_MEMORY_STACKS_ALL ? 3 : level == HAL_MEMORY_STACKS_NONE ? 0 : 2);
    cr_expect_eq(allocated.stack != NULL, level >= HAL_MEMORY_STACKS_ALLOC);
    cr_expect_eq(requested.stack != NULL, level >= HAL_MEMORY_STACKS_ALLOC);
    if (requested.stack) cr_expect_eq(*(long *)requested.stack, level == HAL_MEMORY_STACKS_ALL ? 3 : 2);
    for (size_t i = 0; i < hal_memory_history_blocks(history); i++) {
      const hal_memory_block_info_t info = block_of(history, i);
      cr_expect_eq(info.segment_stack != NULL, level >= HAL_MEMORY_STACKS_LIVE);
      cr_expect_eq(info.stack != NULL, level >= HAL_MEMORY_STACKS_LIVE && info.state == HAL_MEMORY_BLOCK_ALLOCATED);
    }
    cr_assert_eq(hal_host_history_stop(0), HAL_OK);
    hal_memory_history_release(history);
    cr_expect_eq(live, 0, "the copy kept its stacks after the stop");
    give(kept);
    cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  }
  close_clean();
}

Test(host_history, the_last_events_are_kept) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (uint64_t max = 1; max < 3000; max = max * 3 + 1) {
    start(HAL_MEMORY_STACKS_ALL, max);
    for (size_t i = 0; i < 1500; i++) give(take(1000 + i));
    hal_memory_history_t *const history = read();
    cr_assert_eq(hal_memory_history_events(history), max);
    for (size_t back = 0; back < max; back++) { /* ... ALLOC, FREE_REQUESTED, FREE_COMPLETED */
      const hal_memory_event_t event = event_of(history, max - 1 - back);
      cr_assert_eq(event.size, 1000 + 1499 - back / 3);
      cr_assert_eq(event.action, HAL_MEMORY_EVENT_FREE_COMPLETED - back % 3);
    }
    hal_memory_history_release(history);
    cr_expect_leq(live, (long)max + 1);
    cr_assert_eq(hal_host_history_stop(0), HAL_OK);
    cr_expect_eq(live, 0);
  }
  close_clean();
}

/* ---- failures ---- */

Test(host_history, no_failing_malloc_of_the_host_loses_memory_or_stacks) {
  static char memory[64];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_registry.plugins[0].api.host_register = host_register;
  hal_registry.plugins[0].api.host_unregister = host_unregister;
  for (long nth = 1; nth <= 14; nth++) {
    hal_malloc_fail_after(nth);
    const hal_memory_history_desc_t desc = recorded(HAL_MEMORY_STACKS_ALL, 1000);
    const hal_status_t started = hal_host_history_start(0, &desc);
    cr_assert(started == HAL_OK || started == HAL_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 200; i++) {
      void *address = NULL;
      hal_stream_t *const stream = double_stream(0, i % 3);
      if (hal_host_allocate(0, (size_t)(i + 1) * 512, &address)) continue;
      hal_host_record_stream(address, stream);
      cr_assert_eq(hal_host_free(address), HAL_OK);
    }
    const hal_status_t added = hal_host_register(0, memory, sizeof(memory));
    cr_assert(added == HAL_OK || added == HAL_RESOURCE_EXHAUSTED);
    hal_memory_history_t *history = NULL;
    if (!hal_host_history_read(0, &history)) hal_memory_history_release(history);
    hal_malloc_fail_after(0);
    if (!added) cr_assert_eq(hal_host_unregister(0, memory), HAL_OK);
    cr_assert_eq(hal_host_history_stop(0), HAL_OK);
    cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
    cr_assert_eq(live, 0, "failure %ld", nth);
    cr_assert_eq(registered, 0);
    cr_assert_eq(double_.live_bytes, 0u);
  }
  close_clean();
}

Test(host_history, a_failing_free_of_the_plugin_ends_the_segment) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  start(HAL_MEMORY_STACKS_ALL, 100);
  give(take(5000));
  double_.fail_after[HAL_SLOT_host_free] = 1;
  cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  expect_actions("SarfF");
  hal_memory_history_t *const history = read();
  cr_expect_eq(expect_blocks_of_the_statistics(history), 0u);
  hal_memory_history_release(history);
  cr_assert_eq(hal_host_history_stop(0), HAL_OK);
  cr_expect_eq(live, 0);
}

Test(host_history, invalid_calls_record_nothing_and_are_errors) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_history_desc_t desc = {.struct_size = sizeof(desc), .max_events = 1};
  hal_memory_history_t *history = NULL;
  cr_expect_eq(hal_host_history_start(0, NULL), HAL_INVALID_ARGUMENT);
  cr_expect_not_null(strstr(hal_error_message(), "hal_host_history_start: set desc->struct_size"), "%s",
                     hal_error_message());
  cr_expect_eq(hal_host_history_start(1, &desc), HAL_OUT_OF_RANGE);
  desc.stacks = HAL_MEMORY_STACKS_ALL;
  cr_expect_eq(hal_host_history_start(0, &desc), HAL_INVALID_ARGUMENT, "no function captures stacks");
  cr_expect_eq(hal_host_history_stop(1), HAL_OUT_OF_RANGE);
  cr_expect_eq(hal_host_history_read(1, &history), HAL_OUT_OF_RANGE);
  cr_expect_eq(hal_host_history_is_recorded(1), 0);
  start(HAL_MEMORY_STACKS_ALL, 100);
  char *const address = take(5000);
  cr_expect_eq(hal_host_free(address + 1), HAL_INVALID_ARGUMENT);
  give(address);
  cr_expect_eq(hal_host_free(address), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_host_free(&desc), HAL_INVALID_ARGUMENT);
  give(NULL);
  cr_expect_null(take(0));
  expect_actions("Sarf");
  close_clean();
}
