/* memory_limits.c: out of memory, limits, settings, faults, copies. */
#include <criterion/criterion.h>

#include "base/host_malloc.h"
#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(memory_limits, .timeout = 60);

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static void expect_exhausted(size_t size, const char *const *parts) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_RESOURCE_EXHAUSTED);
  cr_expect_null(block);
  for (; *parts; parts++)
    cr_expect_not_null(strstr(hal_error_message(), *parts), "no \"%s\" in: %s", *parts, hal_error_message());
}

static const char *const facts[] = {"device double:0", "Tried to allocate",  "free",           "allocated",
                                    "reserved",        "largest free block", "inactive split", NULL};

Test(memory_limits, the_message_of_an_out_of_memory_error_has_all_accounts) {
  double_.total = 100 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_devices[0].info.total_memory = 100 * MIB;
  hal_block_t *block = take(64 * MIB), *small = take(1000);
  expect_exhausted(48 * MIB, facts);
  static const char *const figures[] = {"48.00 MiB",
                                        "total 100.00 MiB",
                                        "free 34.00 MiB",
                                        "allocated 64.00 MiB",
                                        "reserved 66.00 MiB",
                                        "largest free block 2.00 MiB",
                                        NULL};
  expect_exhausted(48 * MIB, figures);
  const hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.num_ooms, 2);
  cr_expect_eq(s.num_alloc_retries, 2);
  cr_expect_eq(s.allocation[0].current, 2, "nothing leaked into the accounts");
  cr_expect_eq(s.reserved_bytes[0].current, (int64_t)double_.live_bytes);
  hal_memory_release(block), hal_memory_release(small);
  hal_memory_release(take(48 * MIB));
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, cached_segments_of_any_stream_are_freed_before_an_allocation_fails) {
  double_.total = 100 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = NULL;
  for (int id = 0; id < 3; id++) {
    cr_assert_eq(hal_memory_allocate(0, double_stream(0, id), 30 * MIB, &block), HAL_OK);
    double_enqueue(double_stream(0, id), hal_memory_block_address(block), 30 * MIB);
    hal_memory_release(block);
  }
  cr_expect_eq(double_.live_bytes, 90 * MIB);
  block = take(40 * MIB); /* this stream's 30 MiB are sufficient */
  cr_expect_eq(double_.live_bytes, 100 * MIB, "the other streams' segments stay");
  hal_memory_release(block);
  block = take(96 * MIB);
  cr_expect_eq(double_stats(0).num_alloc_retries, 2);
  cr_expect_eq(double_stats(0).num_ooms, 0);
  cr_expect_eq(double_.violations, 0, "running work was waited for");
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, pending_blocks_are_waited_for_before_an_allocation_fails) {
  double_.total = 64 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = take(64 * MIB);
  void *address = hal_memory_block_address(block);
  double_enqueue(double_stream(0, 1), address, 64 * MIB);
  cr_assert_eq(hal_memory_record_stream(block, double_stream(0, 1)), HAL_OK);
  hal_memory_release(block);
  hal_memory_release(take(60 * MIB));
  cr_expect_eq(double_.violations, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, a_segment_larger_than_needed_is_not_insisted_on) {
  double_.total = 8 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_release(take(5 * MIB)); /* 20 MiB is the usual size, 6 MiB are sufficient */
  cr_expect_eq(double_.live_bytes, 6 * MIB);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, a_limit_holds_for_segments_and_adopted_memory_and_is_named) {
  static char memory[64];
  hal_block_t *block = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 32 * MIB), HAL_OK);
  hal_block_t *held = take(20 * MIB);
  static const char *const parts[] = {"limit of 32.00 MiB", "hal_memory_set_limit", NULL};
  expect_exhausted(16 * MIB, parts);
  cr_expect_eq(hal_memory_adopt(0, NULL, memory, 13 * MIB, NULL, NULL, &block), HAL_RESOURCE_EXHAUSTED);
  cr_expect_not_null(strstr(hal_error_message(), "Tried to adopt 13.00 MiB"));
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, 12 * MIB, NULL, NULL, &block), HAL_OK);
  expect_exhausted(100, facts);
  hal_memory_release(block);
  cr_assert_eq(hal_memory_set_limit(0, 0), HAL_OK);
  hal_memory_release(take(64 * MIB));
  hal_memory_release(held);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, cached_segments_are_freed_for_adopted_memory) {
  static char memory[64];
  hal_block_t *block = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 32 * MIB), HAL_OK);
  hal_memory_release(take(30 * MIB));
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, 20 * MIB, NULL, NULL, &block), HAL_OK);
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, absurd_sizes_are_out_of_memory_and_not_an_overflow) {
  static const size_t sizes[] = {SIZE_MAX,         SIZE_MAX - 511,    SIZE_MAX - 512,
                                 SIZE_MAX / 2 + 1, (size_t)INT64_MAX, (size_t)1 << 62};
  static const char *const parts[] = {"Tried to allocate", "EiB", NULL};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    double_.total = MIB;
    expect_exhausted(sizes[i], parts);
  }
  cr_expect_eq(double_stats(0).reserved_bytes[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, fragmentation_is_recognized_and_the_setting_named) {
  hal_block_t *block[9];
  double_.total = 20 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (int i = 0; i < 9; i++) block[i] = take(2 * MIB + 100 * 1024);
  for (int i = 0; i < 9; i += 2) hal_memory_release(block[i]); /* 10 of 20 MiB are free, in five pieces */
  static const char *const parts[] = {"in pieces too small", "max_split_size_mb", NULL};
  expect_exhausted(5 * MIB, parts);
  for (int i = 1; i < 9; i += 2) hal_memory_release(block[i]);
  hal_memory_release(take(5 * MIB));
  cr_assert_eq(double_close(), 0);
}

/* Each slot that the allocator calls fails at its first to tenth call. The allocator must not leak memory, and its
   statistics must remain correct. */
Test(memory_limits, no_failing_call_of_the_plugin_loses_memory_or_accounts) {
  static const uint32_t slots[] = {HAL_SLOT_memory_alloc,      HAL_SLOT_event_create,      HAL_SLOT_event_record,
                                   HAL_SLOT_event_query,       HAL_SLOT_event_synchronize, HAL_SLOT_stream_query,
                                   HAL_SLOT_stream_synchronize};
  static char memory[64];
  int freed = 0, adopted = 0;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t s = 0; s < sizeof(slots) / sizeof(slots[0]); s++) {
    for (int nth = 1; nth <= 10; nth++) {
      hal_block_t *a = NULL, *b = NULL, *c = NULL;
      double_.fail_after[slots[s]] = nth;
      hal_stream_t *other = double_stream(0, 1);
      hal_memory_allocate(0, NULL, 1000, &a);
      hal_memory_allocate(0, NULL, 3 * MIB, &b);
      if (!hal_memory_adopt(0, NULL, memory, 64, (hal_host_fn_t)(void (*)(void *))NULL, NULL, &c)) adopted++;
      if (a) {
        double_enqueue(other, hal_memory_block_address(a), 1000);
        cr_assert_eq(hal_memory_record_stream(a, other), HAL_OK);
      }
      double_enqueue(double_stream(0, 0), memory, 64);
      hal_memory_release(a), hal_memory_release(b), hal_memory_release(c);
      hal_memory_empty_cache(0);
      double_.fail_after[slots[s]] = 0;
      hal_memory_empty_cache(0);
      hal_memory_poll(&hal_devices[0]);
      const hal_memory_stats_t stats = double_stats(0);
      cr_assert_eq(stats.active[0].current, 0, "slot %s call %d", hal_registry_slot_name(slots[s]), nth);
      cr_assert_eq(stats.reserved_bytes[0].current, 0);
      cr_assert_eq(double_.live_bytes, 0u);
    }
  }
  cr_expect_gt(adopted, 0);
  (void)freed;
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, a_plugins_own_error_is_passed_on) {
  hal_block_t *block = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  double_.fail_after[HAL_SLOT_memory_alloc] = 1;
  cr_expect_eq(hal_memory_allocate(0, NULL, 1000, &block), HAL_INTERNAL);
  cr_expect_not_null(strstr(hal_error_message(), "set to fail"), "%s", hal_error_message());
  cr_expect_eq(double_stats(0).num_ooms, 0);
  hal_memory_release(take(1000));
  cr_assert_eq(double_close(), 0);
}

static void expect_no_address(hal_status_t status) {
  cr_expect_eq(status, HAL_INTERNAL);
  cr_expect_not_null(strstr(hal_error_message(), "NULL as the result"), "%s", hal_error_message());
}

Test(memory_limits, success_without_an_address_is_an_error) {
  for (int is_pooled = 0; is_pooled < 2; is_pooled++) {
    hal_block_t *block = NULL;
    void *address = NULL;
    cr_assert_eq(double_open(1, is_pooled ? HAL_DEVICE_POOLED : 0), HAL_OK);
    double_.is_null = 1;
    expect_no_address(hal_memory_allocate(0, NULL, 1000, &block));
    expect_no_address(hal_memory_raw_allocate(0, 1000, &address));
    expect_no_address(hal_host_allocate(0, 1000, &address));
    double_.is_null = 0;
    hal_memory_release(take(1000));
    cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_ALL].current, is_pooled ? 0 : (int64_t)2 << 20);
    cr_assert_eq(double_close(), 0);
  }
}

Test(memory_limits, no_failing_malloc_of_the_host_loses_memory) {
  hal_block_t *block[300];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (long nth = 1; nth <= 8; nth++) {
    hal_malloc_fail_after(nth);
    for (int i = 0; i < 300; i++) {
      block[i] = NULL;
      hal_stream_t *stream = double_stream(0, i % 3);
      const hal_status_t status = hal_memory_allocate(0, stream, 512, &block[i]);
      cr_assert(status == HAL_OK || status == HAL_RESOURCE_EXHAUSTED);
      if (block[i]) hal_memory_record_stream(block[i], double_stream(0, 3 + i % 4));
    }
    for (int i = 0; i < 300; i++) hal_memory_release(block[i]);
    hal_malloc_fail_after(0);
    hal_memory_empty_cache(0);
    cr_assert_eq(double_stats(0).active[0].current, 0);
    cr_assert_eq(double_.live_bytes, 0u);
  }
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, devices_out_of_range_are_refused) {
  hal_block_t *block = NULL;
  hal_memory_stats_t stats = {.struct_size = sizeof(stats)};
  size_t a, b;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  static const int32_t bad[] = {-2, 1, 64, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    cr_expect_eq(hal_memory_allocate(bad[i], NULL, 1, &block), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_memory_stats(bad[i], &stats), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_memory_info(bad[i], &a, &b), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_memory_empty_cache(bad[i]), HAL_OUT_OF_RANGE);
    cr_expect_eq(hal_memory_copy(NULL, &a, bad[i], &b, 0, 8), HAL_OUT_OF_RANGE);
  }
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, copies_and_fills_check_their_arguments) {
  char host[64] = {0}, pattern[16] = "abcd";
  cr_assert_eq(double_open(2, 0), HAL_OK);
  hal_block_t *block = take(4096);
  char *address = hal_memory_block_address(block);
  cr_expect_eq(hal_memory_copy(NULL, address, 0, "hello", HAL_HOST, 6), HAL_OK);
  cr_expect_eq(hal_memory_copy(NULL, host, HAL_HOST, address, 0, 6), HAL_OK);
  cr_expect_str_eq(host, "hello");
  cr_expect_eq(hal_memory_copy(NULL, NULL, 0, NULL, HAL_HOST, 0), HAL_OK, "size 0 whatever the pointers");
  cr_expect_eq(hal_memory_copy(NULL, NULL, 0, host, HAL_HOST, 1), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_copy(NULL, host, HAL_HOST, host + 8, HAL_HOST, 1), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_copy(NULL, address, 0, address + 8, 0, 16), HAL_INVALID_ARGUMENT, "overlap");
  cr_expect_eq(hal_memory_copy(double_stream(1, 0), address, 0, host, HAL_HOST, 16), HAL_INVALID_ARGUMENT, "stream");
  cr_expect_eq(hal_memory_fill(NULL, 0, address, pattern, 3, 9), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_fill(NULL, 0, address, pattern, 4, 9), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_fill(NULL, 0, NULL, pattern, 4, 8), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_fill(NULL, 0, NULL, pattern, 4, 0), HAL_OK);
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, copies_between_plugins_go_through_the_host_in_pieces) {
  const size_t size = 3 * MIB + 17;
  hal_block_t *a = NULL, *b = NULL;
  cr_assert_eq(double_open(2, 0), HAL_OK);
  hal_registry.plugins[1] = hal_registry.plugins[0]; /* the second device belongs to another plugin */
  hal_devices[1].plugin = &hal_registry.plugins[1];
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &a), HAL_OK);
  cr_assert_eq(hal_memory_allocate(1, NULL, size, &b), HAL_OK);
  unsigned char *from = hal_memory_block_address(a), *to = hal_memory_block_address(b);
  for (size_t i = 0; i < size; i++) from[i] = (unsigned char)(i * 31 + i / 251);
  cr_assert_eq(hal_memory_copy(NULL, to, 1, from, 0, size), HAL_OK);
  cr_expect_eq(memcmp(from, to, size), 0);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_copy], 8, "four pieces of at most 1 MiB, in and out");
  double_.fail_after[HAL_SLOT_memory_copy] = 3;
  cr_expect_eq(hal_memory_copy(NULL, to, 1, from, 0, size), HAL_INTERNAL);
  hal_memory_release(a), hal_memory_release(b);
  cr_assert_eq(double_close(), 0);
}

Test(memory_limits, info_comes_from_the_own_accounts_when_the_plugin_has_none) {
  size_t free_bytes = 1, total = 1;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_capacity(0, &total), HAL_NOT_FOUND);
  cr_assert_eq(hal_memory_info(0, &free_bytes, &total), HAL_OK);
  cr_expect(total == 0 && free_bytes == 0, "nothing was taken");
  hal_block_t *block = take(1000);
  cr_assert_eq(hal_memory_info(0, &free_bytes, &total), HAL_OK);
  cr_expect_eq(total, 2 * MIB, "what was taken");
  cr_expect_eq(free_bytes, 2 * MIB - 1024, "what of it is free");
  hal_devices[0].info.total_memory = 100 * MIB;
  cr_assert_eq(hal_memory_capacity(0, &total), HAL_OK);
  cr_expect_eq(total, 100 * MIB);
  cr_assert_eq(hal_memory_info(0, &free_bytes, &total), HAL_OK);
  cr_expect_eq(total, 100 * MIB);
  cr_expect_eq(free_bytes, 98 * MIB);
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}
