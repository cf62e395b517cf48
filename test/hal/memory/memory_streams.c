/* memory_streams.c: memory that streams share, adopted memory, deferred frees. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <time.h>

#include "memory_double.h"

TestSuite(memory_streams, .timeout = 60);

static hal_block_t *take_on(hal_stream_t *stream, size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, stream, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static void count_call(void *data) { ++*(int *)data; }

Test(memory_streams, a_stream_gets_no_memory_of_another) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *a = take_on(double_stream(0, 1), 4096);
  void *address = hal_memory_block_address(a);
  hal_memory_release(a);
  hal_block_t *b = take_on(double_stream(0, 2), 4096);
  cr_expect_neq(hal_memory_block_address(b), address);
  a = take_on(double_stream(0, 1), 4096);
  cr_expect_eq(hal_memory_block_address(a), address);
  hal_memory_release(a), hal_memory_release(b);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, the_current_stream_is_meant_by_null) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_thread_set_stream(0, double_stream(0, 3));
  hal_block_t *a = take_on(NULL, 4096);
  cr_expect_eq(a->stream, double_stream(0, 3));
  hal_memory_release(a);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, a_recorded_block_comes_back_only_after_the_other_streams_work) {
  hal_stream_t *other;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  other = double_stream(0, 1);
  hal_block_t *block = take_on(NULL, 4096);
  void *address = hal_memory_block_address(block);
  double_enqueue(other, address, 4096);
  cr_assert_eq(hal_memory_record_stream(block, other), HAL_OK);
  cr_assert_eq(hal_memory_record_stream(block, other), HAL_OK);
  hal_memory_release(block);
  hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.allocation[0].current, 0);
  cr_expect_eq(s.active[0].current, 1, "released, but still in use");
  cr_expect_eq(s.active_bytes[0].current, 4096);
  cr_expect_eq(s.requested_bytes[0].current, 4096);
  hal_block_t *early = take_on(NULL, 4096);
  cr_expect_neq(hal_memory_block_address(early), address, "the other stream is not done");
  cr_expect_eq(double_stats(0).active[0].peak, 2);
  cr_expect_eq(double_stats(0).allocation[0].peak, 1);
  double_finish(other);
  hal_block_t *late = take_on(NULL, 4096);
  cr_expect_eq(hal_memory_block_address(late), address, "done: the memory is back");
  hal_memory_release(early), hal_memory_release(late);
  s = double_stats(0);
  cr_expect_eq(s.active[0].current, 0);
  cr_expect_eq(s.active[0].freed, 3);
  cr_expect_eq(s.requested_bytes[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, every_recorded_stream_is_waited_for_even_of_another_device) {
  cr_assert_eq(double_open(2, 0), HAL_OK);
  hal_stream_t *others[] = {double_stream(0, 1), double_stream(0, 2), double_stream(1, 1)};
  hal_block_t *block = take_on(NULL, 4096);
  void *address = hal_memory_block_address(block);
  for (int i = 0; i < 3; i++) {
    double_enqueue(others[i], address, 4096);
    cr_assert_eq(hal_memory_record_stream(block, others[i]), HAL_OK);
  }
  hal_memory_release(block);
  for (int i = 0; i < 3; i++) {
    hal_block_t *early = take_on(NULL, 4096);
    cr_expect_neq(hal_memory_block_address(early), address, "stream %d is not done", i);
    hal_memory_release(early);
    double_finish(others[i]);
  }
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(double_stats(0).active[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, the_blocks_own_stream_needs_no_event) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = take_on(NULL, 4096);
  cr_assert_eq(hal_memory_record_stream(block, NULL), HAL_OK);
  hal_memory_release(block);
  cr_expect_eq(double_.calls[HAL_SLOT_event_create], 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, empty_cache_waits_for_pending_uses_and_queued_work) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *other = double_stream(0, 1);
  hal_block_t *a = take_on(NULL, 4096), *b = take_on(NULL, 30 << 20), *c = take_on(other, 100);
  double_enqueue(other, hal_memory_block_address(a), 4096);
  double_enqueue(double_stream(0, 0), hal_memory_block_address(b), 30 << 20);
  double_enqueue(other, hal_memory_block_address(c), 100);
  cr_assert_eq(hal_memory_record_stream(a, other), HAL_OK);
  hal_memory_release(a), hal_memory_release(b), hal_memory_release(c);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_.live_bytes, 0u);
  cr_expect_eq(double_.violations, 0, "no memory was freed that queued work used");
  cr_expect_eq(double_stats(0).reserved_bytes[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

static void *release_the_gate(void *data) {
  const struct timespec nap = {.tv_nsec = 20000000};
  nanosleep(&nap, NULL);
  hal_block_t *block = take_on(double_stream(0, 2), 1000); /* the waiting thread must not hold the lock */
  hal_memory_release(block);
  double_finish(data);
  return NULL;
}

Test(memory_streams, other_threads_go_on_while_one_waits_in_empty_cache) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *other = double_stream(0, 1);
  pthread_t thread;
  hal_block_t *block = take_on(NULL, 4096);
  double_enqueue(other, hal_memory_block_address(block), 4096);
  other->direct.handle->held = 1;
  cr_assert_eq(hal_memory_record_stream(block, other), HAL_OK);
  hal_memory_release(block);
  cr_assert_eq(pthread_create(&thread, NULL, release_the_gate, other), 0);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  pthread_join(thread, NULL);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, adopted_memory_counts_and_is_freed_once_the_stream_is_done) {
  static char memory[10000];
  int freed = 0;
  int32_t device = -1;
  hal_block_t *block = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, sizeof(memory), count_call, &freed, &block), HAL_OK);
  cr_expect_eq(hal_memory_block_address(block), memory);
  cr_expect_eq(hal_memory_block_size(block), sizeof(memory));
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_SMALL].current, 10000);
  cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_SMALL].current, 10000);
  cr_expect_eq(hal_memory_find(memory + 9999, &device), HAL_OK);
  double_enqueue(double_stream(0, 0), memory, sizeof(memory));
  hal_memory_release(block);
  cr_expect_eq(freed, 0, "the stream is not idle");
  cr_expect_eq(double_stats(0).active[0].current, 1);
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(freed, 0);
  double_finish(double_stream(0, 0));
  hal_memory_release(take_on(NULL, 10));
  cr_expect_eq(freed, 1, "a later call of the HAL runs it");
  cr_expect_eq(double_stats(0).allocated_bytes[0].current, 0);
  cr_expect_eq(hal_memory_find(memory, &device), HAL_NOT_FOUND);
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, sizeof(memory), count_call, &freed, &block), HAL_OK);
  hal_memory_release(block);
  cr_expect_eq(freed, 2, "an idle stream: at once");
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, a_deferred_function_runs_once_the_stream_is_done_or_at_once) {
  int calls = 0;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_defer(0, NULL, count_call, &calls), HAL_OK);
  cr_expect_eq(calls, 1, "idle");
  double_enqueue(double_stream(0, 0), NULL, 0);
  cr_assert_eq(hal_memory_defer(0, NULL, count_call, &calls), HAL_OK);
  cr_assert_eq(hal_memory_defer(0, NULL, count_call, &calls), HAL_OK);
  hal_memory_release(take_on(NULL, 64));
  cr_expect_eq(calls, 1);
  cr_expect_eq(double_stats(0).active[0].current, 0, "a deferred function is no memory");
  double_finish(double_stream(0, 0));
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(calls, 3);
  double_enqueue(double_stream(0, 0), NULL, 0);
  cr_assert_eq(hal_memory_defer(0, NULL, count_call, &calls), HAL_OK);
  cr_assert_eq(double_close(), 0);
  cr_expect_eq(calls, 4, "the end of the allocator runs what is left");
}

/* A chain in which each free releases the next block: user code calls the allocator recursively. */
enum { CHAIN = 200000 };
static hal_block_t *chain[CHAIN];
static int chain_freed;
static void free_next(void *data) {
  const intptr_t i = (intptr_t)data;
  chain_freed++;
  if (i + 1 < CHAIN) hal_memory_release(chain[i + 1]);
}

Test(memory_streams, chains_of_frees_take_no_stack_and_no_lock) {
  static char memory[64];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (intptr_t i = 0; i < CHAIN; i++) {
    cr_assert_eq(hal_memory_adopt(0, NULL, memory, 64, free_next, (void *)i, &chain[i]), HAL_OK);
  }
  hal_memory_release(chain[0]);
  cr_expect_eq(chain_freed, CHAIN);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, asynchronous_failures_are_not_swallowed_by_the_allocator) {
  int freed = 0;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  double_enqueue(double_stream(0, 0), NULL, 0);
  double_stream(0, 0)->direct.handle->failure = HAL_DATA_LOSS;
  cr_assert_eq(hal_memory_defer(0, NULL, count_call, &freed), HAL_OK);
  cr_expect_eq(hal_stream_query(double_stream(0, 1)), HAL_OK, "no other stream's");
  cr_expect_eq(hal_stream_query(double_stream(0, 0)), HAL_DATA_LOSS, "the next synchronization returns it");
  cr_expect_not_null(strstr(hal_error_message(), "asynchronous failure"));
  cr_expect_eq(hal_stream_query(double_stream(0, 0)), HAL_NOT_READY, "once");
  double_finish(double_stream(0, 0));
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(freed, 1);
  cr_assert_eq(double_close(), 0);
}

static void *release_block(void *block) {
  hal_memory_release(block);
  return NULL;
}

/* Another thread releases a block that a blocked stream uses. Meanwhile, this thread allocates for another stream. */
static void check_nobody_waits_with_the_lock(uint32_t waiting_slot) {
  pthread_t releaser;
  hal_block_t *block = NULL, *other = NULL;
  hal_stream_t *const held = double_stream(0, 3);
  cr_assert_eq(hal_memory_allocate(0, NULL, 100, &block), HAL_OK);
  cr_assert_eq(hal_memory_record_stream(block, held), HAL_OK);
  double_enqueue(held, hal_memory_block_address(block), 100);
  pthread_mutex_lock(&double_.lock);
  held->direct.handle->held = 1;
  const int calls = double_.calls[waiting_slot];
  pthread_mutex_unlock(&double_.lock);
  cr_assert_eq(pthread_create(&releaser, NULL, release_block, block), 0);
  for (int entered = 0; !entered;) {
    pthread_mutex_lock(&double_.lock);
    entered = double_.calls[waiting_slot] > calls;
    pthread_mutex_unlock(&double_.lock);
  }
  cr_assert_eq(hal_memory_allocate(0, NULL, 200, &other), HAL_OK); /* hangs if the lock is held */
  hal_memory_release(other);
  double_finish(held);
  pthread_join(releaser, NULL);
}

/* The default of event_record waits for the stream, and the default of event_query waits for the event. */
Test(memory_streams, no_thread_waits_for_a_device_with_the_lock_held, .timeout = 20) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_plugin_api_t *const api = &hal_registry.plugins[0].api;
  api->event_query = NULL;
  check_nobody_waits_with_the_lock(HAL_SLOT_event_synchronize);
  hal_mem_events_destroy(hal_allocator_of(&hal_devices[0]));
  api->event_create = NULL;
  api->event_destroy = NULL;
  api->event_record = NULL;
  api->event_synchronize = NULL;
  api->provided_words = 0;
  check_nobody_waits_with_the_lock(HAL_SLOT_stream_synchronize);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, a_stream_of_another_device_is_refused) {
  hal_block_t *block = NULL;
  int calls = 0;
  cr_assert_eq(double_open(2, 0), HAL_OK);
  cr_expect_eq(hal_memory_allocate(0, double_stream(1, 1), 100, &block), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_adopt(0, double_stream(1, 1), &calls, 4, NULL, NULL, &block), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_defer(0, double_stream(1, 1), count_call, &calls), HAL_INVALID_ARGUMENT);
  cr_expect_null(block);
  cr_expect_eq(calls, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, a_plugin_with_its_own_pool_is_called_for_each_allocation) {
  cr_assert_eq(double_open(1, HAL_DEVICE_POOLED), HAL_OK);
  hal_block_t *a = take_on(NULL, 1000), *b = take_on(NULL, 3 << 20);
  int32_t device = -1;
  cr_expect_eq(double_.live_count, 2u);
  cr_expect_eq(double_.live_bytes, 1000u + (3u << 20), "the requested size, no segments");
  cr_expect_eq(double_stats(0).allocated_bytes[0].current, 1024 + (3 << 20));
  cr_expect_eq(double_stats(0).requested_bytes[0].current, 1000 + (3 << 20));
  cr_expect_eq(hal_memory_find((char *)hal_memory_block_address(b) + 5000, &device), HAL_OK);
  hal_memory_release(a), hal_memory_release(b);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_free_async], 2);
  cr_expect_eq(double_.live_count, 0u, "nothing is cached");
  cr_expect_eq(double_stats(0).reserved_bytes[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_streams, an_address_identifies_its_block_while_the_block_is_in_use) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *blocks[3], *found = NULL;
  for (int i = 0; i < 3; i++) blocks[i] = take_on(NULL, 4096);
  for (int i = 0; i < 3; i++) {
    char *address = hal_memory_block_address(blocks[i]);
    cr_expect_eq(hal_memory_find_block(address, &found), HAL_OK);
    cr_expect_eq(found, blocks[i]);
    cr_expect_eq(hal_memory_find_block(address + 4095, &found), HAL_OK);
    cr_expect_eq(found, blocks[i]);
  }
  void *gone = hal_memory_block_address(blocks[1]);
  hal_memory_release(blocks[1]);
  cr_expect_eq(hal_memory_find_block(gone, &found), HAL_NOT_FOUND);
  cr_expect_eq(hal_memory_find_block(&found, &found), HAL_NOT_FOUND);
  cr_expect_eq(hal_memory_find_block(gone, NULL), HAL_INVALID_ARGUMENT);
  hal_memory_release(blocks[0]), hal_memory_release(blocks[2]);
  cr_assert_eq(double_close(), 0);
}
