/* memory_config.c: PYTORCH_ALLOC_CONF. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <stdio.h>

#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(memory_config, .timeout = 60);

static char warnings[4096];

static void keep_warning(int32_t level, const char *message, void *data) {
  (void)data;
  if (level > HAL_LOG_WARNING) return;
  const size_t used = strlen(warnings);
  snprintf(warnings + used, sizeof(warnings) - used, "%s\n", message);
}

static hal_mem_config_t parse(const char *text) {
  hal_mem_config_t config;
  warnings[0] = '\0';
  hal_log_set_sink(keep_warning, NULL);
  hal_mem_config_parse("PYTORCH_ALLOC_CONF", text, &config);
  hal_log_set_sink(NULL, NULL);
  return config;
}

Test(memory_config, every_key_of_torch_is_read) {
  const hal_mem_config_t c = parse(
      "max_split_size_mb:100, max_non_split_rounding_mb: 40 ,garbage_collection_threshold:0.75,"
      "large_segment_size_mb:32,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],"
      "backend:native,expandable_segments:False,pinned_use_background_threads:True");
  cr_expect_str_eq(warnings, "");
  cr_expect_eq(c.max_split_size, 100 * MIB);
  cr_expect_eq(c.max_non_split_rounding, 40 * MIB);
  cr_expect_eq(c.large_segment_size, 32 * MIB);
  cr_expect_eq(c.expandable_segments, 0u);
  cr_expect_eq(parse("expandable_segments:True").expandable_segments, 1u);
  cr_expect_str_eq(warnings, "");
  cr_expect_float_eq(c.garbage_collection_threshold, 0.75, 1e-12);
  static const uint32_t steps[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
  cr_expect_arr_eq(c.roundup_divisions, steps, sizeof(steps));
}

Test(memory_config, without_settings_the_defaults_hold) {
  static const char *const texts[] = {NULL, "", " , ,", "max_split_size_mb:0"};
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
    const hal_mem_config_t c = parse(texts[i]);
    cr_expect_eq(c.max_split_size, SIZE_MAX);
    cr_expect_eq(c.large_segment_size, 20 * MIB);
    cr_expect_eq(c.roundup_on, 0u);
  }
}

Test(memory_config, a_bad_setting_is_named_and_the_rest_stays_in_force) {
  static const char *const bad[] = {"max_split_size_mb:banana",
                                    "max_split_size_mb:19",
                                    "max_split_size_mb:-5",
                                    "max_split_size_mb:99999999999999999999",
                                    "max_split_size_mb:17592186044416", /* 2^44 MiB = 2^64 bytes */
                                    "max_split_size_mb:",
                                    "garbage_collection_threshold:1.5",
                                    "garbage_collection_threshold:x",
                                    "garbage_collection_threshold:nan",
                                    "per_process_memory_fraction:0",
                                    "per_process_memory_fraction:1.5",
                                    "roundup_power2_divisions:3",
                                    "roundup_power2_divisions:[256:3]",
                                    "roundup_power2_divisions:[256]",
                                    "roundup_power2_divisions:[256:1",
                                    "large_segment_size_mb:2",
                                    "expandable_segments:perhaps",
                                    "no_such_key:1",
                                    "lonely"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    char text[256], key[64];
    snprintf(text, sizeof(text), "max_non_split_rounding_mb:7,%s", bad[i]);
    const hal_mem_config_t c = parse(text);
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(bad[i], ":"), bad[i]);
    cr_expect_not_null(strstr(warnings, key), "\"%s\" is not named in: %s", key, warnings);
    cr_expect_not_null(strstr(warnings, "PYTORCH_ALLOC_CONF"));
    cr_expect_eq(c.max_non_split_rounding, 7 * MIB);
    cr_expect_eq(c.max_split_size, SIZE_MAX);
  }
}

Test(memory_config, sizes_are_rounded_to_parts_of_powers_of_two) {
  const hal_mem_config_t c = parse("roundup_power2_divisions:4");
  cr_expect_eq(hal_mem_config_round(&c, 1200 * 1024), 1280 * 1024u, "torch's example: 1200 KiB with 4 divisions");
  cr_expect_eq(hal_mem_config_round(&c, MIB), MIB);
  cr_expect_eq(hal_mem_config_round(&c, 1), 512u);
  cr_expect_eq(hal_mem_config_round(&c, 5 * MIB), 5 * MIB);
  cr_expect_eq(hal_mem_config_round(&c, 5 * MIB + 1), 6 * MIB);
  const hal_mem_config_t off = parse("roundup_power2_divisions:0");
  cr_expect_eq(hal_mem_config_round(&off, 5 * MIB + 1), 5 * MIB + 512);
  cr_expect_eq(hal_mem_config_round(&off, SIZE_MAX), 0u, "overflow");
}

Test(memory_config, the_older_name_is_read_when_the_newer_is_not_set) {
  hal_mem_config_t c;
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
  unsetenv("PYTORCH_ALLOC_CONF");
  hal_mem_config_load(&c);
  cr_expect_eq(c.max_split_size, 64 * MIB);
  setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:128", 1);
  hal_mem_config_load(&c);
  cr_expect_eq(c.max_split_size, 128 * MIB);
}

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

Test(memory_config, blocks_above_max_split_size_stay_whole) {
  setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:32", 1);
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *big = take(64 * MIB);
  hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.max_split_size, (int64_t)(32 * MIB));
  cr_expect_eq(s.oversize_allocations.current, 1);
  cr_expect_eq(s.oversize_segments.current, 1);
  hal_memory_release(big);
  hal_block_t *small = take(3 * MIB);
  cr_expect_eq(double_.live_count, 2u, "the 64 MiB are kept for large requests");
  hal_block_t *again = take(60 * MIB); /* at most 20 MiB larger: reused as a whole */
  cr_expect_eq(double_.live_count, 2u);
  cr_expect_eq(double_stats(0).allocated_bytes[0].current, (int64_t)(64 * MIB + 3 * MIB));
  hal_memory_release(again);
  hal_block_t *other = take(40 * MIB);
  cr_expect_eq(double_.live_count, 3u, "64 MiB are too much for 40");
  hal_memory_release(small), hal_memory_release(other);
  s = double_stats(0);
  cr_expect_eq(s.oversize_allocations.current, 0);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_stats(0).oversize_segments.current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_config, garbage_collection_frees_the_oldest_segments_first) {
  setenv("PYTORCH_ALLOC_CONF", "garbage_collection_threshold:0.5", 1);
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 400 * MIB), HAL_OK);
  hal_block_t *a = take(40 * MIB), *b = take(50 * MIB), *d = NULL;
  hal_memory_release(b);
  cr_assert_eq(hal_memory_allocate(0, double_stream(0, 1), 20 * MIB, &d), HAL_OK);
  hal_memory_release(a);
  hal_block_t *c = take(100 * MIB); /* 110 MiB are reserved, and 100 MiB more exceed 200 MiB */
  cr_expect_eq(double_stats(0).num_device_free, 1);
  cr_expect_eq(double_.live_bytes, 160 * MIB, "the 50 MiB are gone, which were released before the 40");
  hal_memory_release(c), hal_memory_release(d);
  cr_assert_eq(double_close(), 0);
}

Test(memory_config, the_fraction_of_a_process_is_its_limit) {
  setenv("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.25", 1);
  hal_devices[0].info.total_memory = 200 * MIB;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = take(50 * MIB), *other = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 100, &other), HAL_RESOURCE_EXHAUSTED);
  cr_assert_eq(hal_memory_set_limit(0, 0), HAL_OK);
  other = take(100);
  hal_memory_release(block), hal_memory_release(other);
  cr_assert_eq(double_close(), 0);
}
