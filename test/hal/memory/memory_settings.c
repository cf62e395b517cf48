/* memory_settings.c: settings of the allocator that change at run time. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <sched.h>

#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(memory_settings, .timeout = 60);

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static void configure(const char *settings) {
  cr_assert_eq(hal_memory_configure(settings), HAL_OK, "%s", hal_error_message());
}

static void expect_text(const char *expected) {
  char text[1024];
  cr_assert_eq(hal_memory_settings(text, sizeof(text)), HAL_OK, "%s", hal_error_message());
  cr_expect_str_eq(text, expected);
}

Test(memory_settings, a_setting_applies_to_later_allocations) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *const first = take(12 * MIB);
  cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_ALL].current, (int64_t)(12 * MIB));
  hal_memory_release(take(5 * MIB));
  cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_ALL].current, (int64_t)(32 * MIB));
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  configure("large_segment_size_mb:40");
  hal_memory_release(take(5 * MIB));
  cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_ALL].current, (int64_t)(52 * MIB));
  configure("roundup_power2_divisions:2");
  hal_block_t *const rounded = take(513 << 10);
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_SMALL].current, (int64_t)(768 << 10), "a step of 512 KiB / 2");
  configure("roundup_power2_divisions:0");
  hal_block_t *const exact = take(513 << 10);
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_SMALL].current, (int64_t)((768 + 513) << 10));
  hal_memory_release(rounded), hal_memory_release(exact), hal_memory_release(first);
  cr_expect_eq(double_close(), 0);
}

Test(memory_settings, oversize_blocks_are_counted_by_the_new_limit) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *const blocks[] = {take(30 * MIB), take(60 * MIB), take(1000)};
  cr_expect_eq(double_stats(0).oversize_allocations.current, 0);
  configure("max_split_size_mb:50");
  cr_expect_eq(double_stats(0).oversize_allocations.current, 1);
  cr_expect_eq(double_stats(0).oversize_segments.current, 1);
  cr_expect_eq(double_stats(0).max_split_size, (int64_t)(50 * MIB));
  configure("max_split_size_mb:25");
  cr_expect_eq(double_stats(0).oversize_allocations.current, 2);
  cr_expect_eq(double_stats(0).oversize_segments.current, 2);
  hal_memory_release(blocks[1]);
  cr_expect_eq(double_stats(0).oversize_allocations.current, 1);
  configure("max_split_size_mb:200");
  cr_expect_eq(double_stats(0).oversize_allocations.current, 0);
  cr_expect_eq(double_stats(0).oversize_segments.current, 0);
  hal_memory_release(blocks[0]), hal_memory_release(blocks[2]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_stats(0).oversize_allocations.current, 0);
  cr_expect_eq(double_stats(0).oversize_segments.current, 0);
  cr_expect_eq(double_close(), 0);
}

static void raise_limit(void *address) {
  (void)address;
  configure("max_split_size_mb:200");
}

Test(memory_settings, a_segment_that_is_being_freed_is_counted_by_the_old_limit) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  configure("max_split_size_mb:25");
  hal_memory_release(take(30 * MIB));
  cr_expect_eq(double_stats(0).oversize_segments.current, 1);
  hal_allocator_set_leaving(raise_limit); /* called without the lock, while the segment is in no list */
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_stats(0).oversize_segments.current, 0);
  hal_allocator_set_leaving(NULL);
  cr_expect_eq(double_close(), 0);
}

static void *allocate_and_release(void *data) {
  (void)data;
  for (size_t i = 0; i < 2000; i++) {
    hal_block_t *const first = take((i % 7 + 1) * 10 * MIB), *const second = take((i % 3 + 1) * 300 << 10);
    hal_memory_release(first), hal_memory_release(second);
    if (i % 5 == 0) cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  }
  return NULL;
}

Test(memory_settings, threads_allocate_while_settings_change) {
  pthread_t threads[3];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (int i = 0; i < 3; i++) cr_assert(!pthread_create(&threads[i], NULL, allocate_and_release, NULL));
  for (int i = 0; i < 2000; i++) {
    configure(i % 2 ? "max_split_size_mb:25,roundup_power2_divisions:4,garbage_collection_threshold:0.5"
                    : "max_split_size_mb:45,roundup_power2_divisions:[1:2,>:8],large_segment_size_mb:30");
    sched_yield();
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_stats(0).oversize_allocations.current, 0);
  cr_expect_eq(double_stats(0).oversize_segments.current, 0);
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_ALL].current, 0);
  cr_expect_eq(double_close(), 0);
}

Test(memory_settings, a_block_is_no_longer_split) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_release(take(64 * MIB));
  configure("max_split_size_mb:32");
  hal_block_t *const block = take(20 * MIB); /* of a segment of its own, since the free block must not be split */
  cr_expect_eq(double_stats(0).reserved_bytes[HAL_POOL_ALL].current, (int64_t)(84 * MIB));
  hal_memory_release(block);
  cr_expect_eq(double_close(), 0);
}

Test(memory_settings, pinned_memory_over_the_new_limit_is_not_cached) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  void *address = NULL;
  cr_assert_eq(hal_host_allocate(0, 2 * MIB, &address), HAL_OK);
  configure("pinned_max_cached_size_mb:1");
  cr_assert_eq(hal_host_free(address), HAL_OK);
  cr_expect_eq(double_.live_count, 0u);
  cr_expect_eq(double_close(), 0);
}

Test(memory_settings, devices_that_are_used_later_have_the_settings) {
  configure("max_split_size_mb:50,expandable_segments:True"); /* no device was used, so the latter is possible */
  configure("garbage_collection_threshold:0.5");
  expect_text("max_split_size_mb:50,garbage_collection_threshold:0.5,expandable_segments:True");
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_expect_eq(double_stats(0).max_split_size, (int64_t)(50 * MIB));
  cr_expect_eq(hal_allocator_of(&hal_devices[0])->config.expandable_segments, 1u);
  cr_expect_eq(double_close(), 0);
}

Test(memory_settings, the_environment_is_the_start) {
  setenv("PYTORCH_ALLOC_CONF",
         "max_split_size_mb:50,per_process_memory_fraction:0.5,roundup_power2_divisions:[1:2,>:4]", 1);
  const char *const rest =
      "per_process_memory_fraction:0.5,roundup_power2_divisions:["
      "1:2,2:4,4:4,8:4,16:4,32:4,64:4,128:4,256:4,512:4,1024:4,2048:4,4096:4,8192:4,16384:4,32768:4]";
  char expected[1024];
  snprintf(expected, sizeof(expected), "max_split_size_mb:50,%s", rest);
  expect_text(expected);
  configure(expected); /* the text of the settings sets them */
  expect_text(expected);
  configure("max_split_size_mb:60,max_non_split_rounding_mb:30,large_segment_size_mb:40,pinned_max_cached_size_mb:7");
  snprintf(expected, sizeof(expected),
           "max_split_size_mb:60,max_non_split_rounding_mb:30,large_segment_size_mb:40,pinned_max_cached_size_mb:7,%s",
           rest);
  expect_text(expected);
  char small[20];
  cr_expect_eq(hal_memory_settings(small, sizeof(small)), HAL_OUT_OF_RANGE);
  cr_expect_not_null(strstr(hal_error_message(), "characters, which 20 bytes do not hold"), "%s", hal_error_message());
}

Test(memory_settings, an_error_changes_nothing) {
  static const struct {
    const char *text;
    hal_status_t status;
    const char *message;
  } invalid[] = {
      {"max_split_size_mb:50,unknown:1", HAL_INVALID_ARGUMENT, "invalid setting unknown:1: unknown setting"},
      {"max_split_size_mb:50,garbage_collection_threshold:2", HAL_INVALID_ARGUMENT,
       "invalid setting garbage_collection_threshold:2: the value must be a number between 0 and 1"},
      {"max_split_size_mb:50,x", HAL_INVALID_ARGUMENT, "expected key:value"},
      {"max_split_size_mb:50,backend:native", HAL_UNIMPLEMENTED, "backend is not a setting of this allocator"},
      {"max_split_size_mb:50,expandable_segments:True", HAL_UNIMPLEMENTED,
       "expandable_segments:True cannot be set once a device was used; set "
       "PYTORCH_ALLOC_CONF=expandable_segments:True"},
      {"max_split_size_mb:50,per_process_memory_fraction:0.5", HAL_UNIMPLEMENTED,
       "per_process_memory_fraction:0.5 cannot be set at run time; call hal_memory_set_limit"},
      {NULL, HAL_INVALID_ARGUMENT, "settings is NULL"}};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
    cr_expect_eq(hal_memory_configure(invalid[i].text), invalid[i].status, "%s", invalid[i].text);
    cr_expect_not_null(strstr(hal_error_message(), invalid[i].message), "no \"%s\" in: %s", invalid[i].message,
                       hal_error_message());
    cr_expect_eq(double_stats(0).max_split_size, -1);
    expect_text("");
  }
  configure("");
  configure("expandable_segments:False"); /* as it is */
  cr_expect_eq(double_close(), 0);
}
