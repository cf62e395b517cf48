/* host_memory.c: page-locked host memory: cache, uses by streams, owner query, statistics, invalid calls. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include "base/host_malloc.h"
#include "base/life.h"
#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(host_memory, .timeout = 60);

static char *take(size_t size) {
  void *address = NULL;
  cr_assert_eq(hal_host_allocate(0, size, &address), HAL_OK, "%s", hal_error_message());
  return address;
}

static void give(void *address) { cr_assert_eq(hal_host_free(address), HAL_OK, "%s", hal_error_message()); }

static hal_host_stats_t stats_of(int32_t device) {
  hal_host_stats_t stats = {.struct_size = sizeof(stats)};
  cr_assert_eq(hal_host_stats(device, &stats), HAL_OK, "%s", hal_error_message());
  return stats;
}

static void expect_misuse(hal_status_t status, hal_status_t code, const char *text) {
  cr_expect_eq(status, code);
  cr_expect_not_null(strstr(hal_error_message(), text), "no \"%s\" in: %s", text, hal_error_message());
}

/* Uses `size` bytes at `address` on a stream that does not progress automatically. */
static void use_held(hal_stream_t *stream, void *address, size_t size) {
  double_enqueue(stream, address, size);
  stream->direct.handle->held = 1;
  cr_assert_eq(hal_host_record_stream(address, stream), HAL_OK, "%s", hal_error_message());
}

/* ---- cache ---- */

Test(host_memory, freed_memory_serves_the_next_request_of_its_class) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *a = take(5000), *b = take(5000);
  cr_assert_neq(a, b);
  cr_expect_eq((uintptr_t)a % 64, 0u);
  memset(a, 1, 5000);
  give(a);
  cr_expect_eq(take(8192), a, "8 KiB are of the class of 5000 bytes");
  cr_expect_neq(take(8193), b);
  cr_expect_eq(double_.calls[HAL_SLOT_host_alloc], 3);
  give(a), give(b);
  cr_expect_eq(double_.calls[HAL_SLOT_host_free], 0);
  cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  cr_expect_eq(double_.calls[HAL_SLOT_host_free], 2);
  cr_expect_eq(double_.live_count, 1u, "what is in use stays");
}

Test(host_memory, a_class_holds_its_sizes_and_wastes_at_most_a_quarter_above_1_MiB) {
  size_t before = 0, rounded = 0;
  uint32_t last = 0;
  for (size_t size = 1; size < (size_t)1 << 24; size += size < 20000 ? 1 : 4093) {
    const uint32_t class = hal_mem_host_class(size, &rounded);
    cr_assert(class < HAL_MEM_HOST_CLASSES && rounded >= size);
    cr_assert(class == last ? rounded == before || size == 1 : class > last && size > before,
              "size %zu: class %u of %zu after class %u of %zu", size, class, rounded, last, before);
    cr_assert_eq(hal_mem_host_class(rounded, &before), class, "a block comes back to its class");
    cr_assert(size <= MIB || rounded - size < rounded / 4);
    before = rounded, last = class;
  }
  cr_assert(hal_mem_host_class(HAL_MEM_HOST_MOST, &rounded) < HAL_MEM_HOST_CLASSES);
  cr_assert_geq(rounded, HAL_MEM_HOST_MOST);
}

Test(host_memory, size_0_is_null_and_null_may_be_freed) {
  void *address = &address;
  int32_t device;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_host_allocate(0, 0, &address), HAL_OK);
  cr_expect_null(address);
  give(NULL);
  cr_expect_eq(hal_host_find(NULL, &device), HAL_NOT_FOUND);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, devices_share_no_blocks) {
  void *other = NULL;
  cr_assert_eq(double_open(2, 0), HAL_OK);
  char *a = take(100);
  give(a);
  cr_assert_eq(hal_host_allocate(1, 100, &other), HAL_OK);
  cr_expect_neq(other, a);
  int32_t device = -1;
  cr_assert_eq(hal_host_find(other, &device), HAL_OK);
  cr_expect_eq(device, 1);
  give(other);
  cr_assert_eq(hal_host_empty_cache(-1), HAL_OK);
  cr_expect_eq(double_.live_count, 0u);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, blocks_over_pinned_max_cached_size_are_not_kept) {
  setenv("PYTORCH_ALLOC_CONF", "pinned_max_cached_size_mb:2", 1);
  cr_assert_eq(double_open(1, 0), HAL_OK);
  give(take(2 * MIB));
  cr_expect_eq(double_.live_bytes, 2 * MIB);
  give(take(2 * MIB + 1));
  cr_expect_eq(double_.live_bytes, 2 * MIB);
  char *held = take(3 * MIB);
  use_held(double_stream(0, 1), held, 3 * MIB);
  give(held);
  cr_expect_eq(double_.live_bytes, 5 * MIB);
  double_finish(double_stream(0, 1));
  give(take(10));
  cr_expect_eq(double_.live_bytes, 2 * MIB + 4096, "given back by the next call");
  cr_assert_eq(double_close(), 0);
}

/* ---- streams ---- */

Test(host_memory, freed_memory_is_used_again_only_after_the_recorded_streams_work) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *const streams[] = {double_stream(0, 1), double_stream(0, 2)};
  char *a = take(4096);
  for (int i = 0; i < 2; i++) use_held(streams[i], a + 100, 10); /* the inside will do */
  cr_assert_eq(hal_host_record_stream(a, streams[0]), HAL_OK, "twice is once");
  give(a);
  for (int i = 0; i < 2; i++) {
    char *early = take(4096);
    cr_expect_neq(early, a, "stream %d is not done", i);
    give(early);
    cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
    cr_expect_eq(double_.live_count, 1u, "in use by the stream: it stays");
    double_finish(streams[i]);
  }
  cr_expect_eq(take(4096), a);
  give(a);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, a_stream_of_another_device_is_waited_for) {
  cr_assert_eq(double_open(2, 0), HAL_OK);
  char *a = take(4096);
  use_held(double_stream(1, 1), a, 4096);
  give(a);
  char *b = take(4096);
  cr_expect_neq(b, a);
  double_finish(double_stream(1, 1));
  cr_expect_eq(take(4096), a);
  give(a), give(b);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, null_means_the_current_stream) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_thread_set_stream(0, double_stream(0, 3));
  char *a = take(4096);
  double_enqueue(double_stream(0, 3), a, 4096);
  cr_assert_eq(hal_host_record_stream(a, NULL), HAL_OK);
  give(a);
  cr_expect_neq(take(4096), a);
}

Test(host_memory, unrecorded_memory_needs_no_event) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  give(take(4096));
  cr_expect_eq(double_.calls[HAL_SLOT_event_create], 0);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, where_no_event_can_be_had_the_stream_is_waited_for) {
  static const uint32_t slots[] = {HAL_SLOT_event_create, HAL_SLOT_event_record};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < 2; i++) {
    char *a = take(4096);
    double_enqueue(double_stream(0, 1), a, 4096);
    cr_assert_eq(hal_host_record_stream(a, double_stream(0, 1)), HAL_OK);
    double_.fail_after[slots[i]] = 1;
    give(a);
    cr_expect_eq(double_stream(0, 1)->direct.handle->done, double_stream(0, 1)->direct.handle->queued);
    cr_expect_eq(take(4096), a);
    give(a);
  }
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, device_memory_and_its_statistics_take_no_notice) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *a = take(4096);
  use_held(double_stream(0, 1), a, 4096);
  give(a);
  const hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.active[0].current, 0);
  cr_expect_eq(s.reserved_bytes[0].current, 0);
  int32_t device;
  cr_expect_eq(hal_memory_find(a, &device), HAL_NOT_FOUND);
  double_finish(double_stream(0, 1));
  cr_assert_eq(double_close(), 0);
}

/* ---- owner ---- */

Test(host_memory, an_address_in_use_is_found_from_its_first_to_its_last_byte) {
  char local = 0;
  int32_t device = -1;
  cr_assert_eq(double_open(2, 0), HAL_OK);
  char *a = take(4096);
  cr_expect_eq(hal_host_find(a, &device), HAL_OK);
  cr_expect_eq(device, 0);
  cr_expect_eq(hal_host_find(a + 4095, &device), HAL_OK);
  device = 7;
  expect_misuse(hal_host_find(a + 4096, &device), HAL_NOT_FOUND, "not page-locked");
  expect_misuse(hal_host_find(a - 1, &device), HAL_NOT_FOUND, "not page-locked");
  expect_misuse(hal_host_find(&local, &device), HAL_NOT_FOUND, "not page-locked");
  give(a);
  expect_misuse(hal_host_find(a, &device), HAL_NOT_FOUND, "not page-locked");
  cr_expect_eq(device, 7, "must be unchanged on failure");
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, ordinary_memory_of_a_plugin_without_host_alloc_is_not_called_pinned) {
  int32_t device;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_registry.plugins[0].api.host_alloc = NULL;
  hal_registry.plugins[0].api.host_free = NULL;
  hal_registry.plugins[0].api.provided_words = 0;
  char *a = take(4096);
  cr_expect_eq((uintptr_t)a % 64, 0u);
  memset(a, 1, 4096);
  cr_expect_eq(hal_host_find(a, &device), HAL_NOT_FOUND);
  cr_expect_eq(hal_host_record_stream(a, double_stream(0, 1)), HAL_OK);
  give(a);
  cr_assert_eq(double_close(), 0);
}

/* ---- mistakes ---- */

Test(host_memory, wrong_frees_are_refused_and_free_nothing) {
  char local = 0;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *a = take(4096), *b = take(4096);
  expect_misuse(hal_host_free(a + 64), HAL_INVALID_ARGUMENT, "is 64 bytes inside");
  expect_misuse(hal_host_free(&local), HAL_INVALID_ARGUMENT, "not memory of hal_host_allocate");
  give(a);
  expect_misuse(hal_host_free(a), HAL_INVALID_ARGUMENT, "freed before");
  use_held(double_stream(0, 1), b, 4096);
  give(b);
  expect_misuse(hal_host_free(b), HAL_INVALID_ARGUMENT, "freed before");
  double_finish(double_stream(0, 1));
  cr_expect_eq(take(4096), b);
  cr_expect_eq(take(4096), a, "neither was freed twice");
  give(a), give(b);
  cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  expect_misuse(hal_host_free(a), HAL_INVALID_ARGUMENT, "not memory of hal_host_allocate");
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, streams_are_recorded_on_memory_in_use_only) {
  char local = 0;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *a = take(4096);
  give(a);
  expect_misuse(hal_host_record_stream(a, NULL), HAL_NOT_FOUND, "was freed");
  expect_misuse(hal_host_record_stream(&local, NULL), HAL_NOT_FOUND, "not memory of hal_host_allocate");
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, sizes_that_no_machine_has_and_devices_out_of_range_are_refused) {
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1};
  static const int32_t devices[] = {-1, 1, 64, INT32_MIN};
  void *address = &address;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < 3; i++) {
    expect_misuse(hal_host_allocate(0, sizes[i], &address), HAL_RESOURCE_EXHAUSTED, "no machine has so much");
  }
  cr_expect_eq(double_.calls[HAL_SLOT_host_alloc], 0);
  for (size_t i = 0; i < 4; i++) {
    hal_host_stats_t stats = {.struct_size = sizeof(stats)};
    cr_expect_eq(hal_host_allocate(devices[i], 64, &address), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_host_stats(devices[i], &stats), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_host_reset_peak_stats(devices[i]), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_host_reset_accumulated_stats(devices[i]), HAL_OUT_OF_RANGE);
    if (devices[i] != -1) cr_expect_eq(hal_host_empty_cache(devices[i]), HAL_OUT_OF_RANGE);
  }
  cr_expect_eq(address, &address, "must be unchanged on failure");
  cr_assert_eq(double_close(), 0);
}

/* ---- no memory ---- */

Test(host_memory, the_cache_and_pending_blocks_are_freed_before_an_allocation_fails) {
  double_.total = 8 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  give(take(3 * MIB));
  char *pending = take(4 * MIB);
  double_enqueue(double_stream(0, 1), pending, 4 * MIB);
  cr_assert_eq(hal_host_record_stream(pending, double_stream(0, 1)), HAL_OK);
  give(pending);
  give(take(8 * MIB));
  cr_expect_eq(double_.violations, 0, "the stream was waited for");
  cr_expect_eq(double_.live_bytes, 8 * MIB);
  char *used = take(5 * MIB);
  void *address = NULL;
  expect_misuse(hal_host_allocate(0, 4 * MIB, &address), HAL_RESOURCE_EXHAUSTED, "tried to allocate 4194304 bytes");
  cr_expect_not_null(strstr(hal_error_message(), "5242880 bytes are in use, 0 are cached"), "%s", hal_error_message());
  cr_expect_not_null(strstr(hal_error_message(), "double: it does not fit"), "%s", hal_error_message());
  cr_expect_null(address);
  give(used);
  cr_assert_eq(double_close(), 0);
}

static void give_later(void *address) { give(address); }

Test(host_memory, memory_freed_by_a_deferred_function_is_available) {
  double_.total = 8 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *held = take(6 * MIB);
  double_enqueue(double_stream(0, 0), held, 6 * MIB);
  cr_assert_eq(hal_memory_defer(0, NULL, give_later, held), HAL_OK);
  give(take(8 * MIB));
  cr_expect_eq(double_.violations, 0);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, other_failures_of_the_plugin_are_reported_and_leak_nothing) {
  void *address = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  double_.fail_after[HAL_SLOT_host_alloc] = 1;
  expect_misuse(hal_host_allocate(0, 64, &address), HAL_INTERNAL, "set to fail");
  cr_expect_eq(stats_of(0).allocations.current, 0);
  give(take(64));
  double_.fail_after[HAL_SLOT_host_free] = 1;
  cr_expect_eq(hal_host_empty_cache(0), HAL_OK, "logged: the caller can do nothing about it");
  cr_expect_eq(stats_of(0).allocations.current, 0);
  cr_expect_eq(double_.live_count, 1u);
  double_.live_count = 0; /* lost by request */
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, no_failing_malloc_of_the_host_loses_memory) {
  void *addresses[300];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (long nth = 1; nth <= 10; nth++) {
    hal_malloc_fail_after(nth);
    for (int i = 0; i < 300; i++) {
      addresses[i] = NULL;
      const hal_status_t status = hal_host_allocate(0, 512, &addresses[i]);
      cr_assert(status == HAL_OK || status == HAL_RESOURCE_EXHAUSTED);
      if (addresses[i]) hal_host_record_stream(addresses[i], double_stream(0, i % 4));
    }
    for (int i = 0; i < 300; i++) give(addresses[i]);
    hal_malloc_fail_after(0);
    cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
    cr_assert_eq(stats_of(0).allocated_bytes.current, 0);
    cr_assert_eq(double_.live_bytes, 0u);
  }
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, blocks_in_use_survive_the_shutdown_of_the_device) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *held = take(100), *cached = take(5000);
  give(cached);
  memset(held, 5, 100);
  cr_expect_eq(double_close(), 1, "the block in use, and it alone");
  cr_expect_eq(held[99], 5);
  hal_life.closed = 1;
  cr_expect_eq(hal_host_free(held), HAL_OK, "there is no plugin that could free it");
  int32_t device;
  cr_expect_eq(hal_host_find(held, &device), HAL_NOT_FOUND);
  free(held);
}

/* ---- statistics ---- */

Test(host_memory, the_statistics_count_rounded_blocks_and_wait_for_streams) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  char *a = take(5000), *b = take(100);
  use_held(double_stream(0, 1), a, 5000);
  give(a), give(b);
  hal_host_stats_t s = stats_of(0);
  cr_expect_eq(s.allocations.current, 2);
  cr_expect_eq(s.allocated_bytes.current, 8192 + 4096);
  cr_expect_eq(s.active_requests.current, 1, "the stream still uses it");
  cr_expect_eq(s.active_bytes.current, 8192);
  cr_expect_eq(s.active_bytes.peak, 8192 + 4096);
  cr_expect_eq(s.num_host_alloc, 2);
  cr_expect_eq(s.host_alloc_time.count, 2);
  cr_expect(s.host_alloc_time.min <= s.host_alloc_time.max && s.host_alloc_time.max <= s.host_alloc_time.total);
  double_finish(double_stream(0, 1));
  cr_assert_eq(hal_host_empty_cache(0), HAL_OK);
  s = stats_of(0);
  cr_expect_eq(s.active_requests.current, 0);
  cr_expect_eq(s.active_requests.freed, 2);
  cr_expect_eq(s.allocations.current, 0);
  cr_expect_eq(s.allocated_bytes.freed, 8192 + 4096);
  cr_expect_eq(s.num_host_free, 2);
  cr_assert_eq(hal_host_reset_peak_stats(0), HAL_OK);
  cr_expect_eq(stats_of(0).active_bytes.peak, 0);
  cr_assert_eq(hal_host_reset_accumulated_stats(0), HAL_OK);
  s = stats_of(0);
  cr_expect(s.active_bytes.allocated == 0 && s.allocations.freed == 0 && s.num_host_alloc == 0);
  cr_expect(s.host_alloc_time.count == 0 && s.host_free_time.total == 0);
  cr_assert_eq(double_close(), 0);
}

Test(host_memory, a_reader_of_an_older_struct_gets_what_it_knows) {
  hal_host_stats_t s = {.struct_size = HAL_STRUCT_SIZE(hal_host_stats_t, allocations), .num_host_alloc = 77};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  give(take(64));
  cr_assert_eq(hal_host_stats(0, &s), HAL_OK);
  cr_expect_eq(s.allocations.current, 1);
  cr_expect_eq(s.num_host_alloc, 77);
  s.struct_size = 0;
  expect_misuse(hal_host_stats(0, &s), HAL_INVALID_ARGUMENT, "struct_size");
  expect_misuse(hal_host_stats(0, NULL), HAL_INVALID_ARGUMENT, "struct_size");
  cr_assert_eq(double_close(), 0);
}
