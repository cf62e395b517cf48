/* memory_expand.c: expandable segments: growth, release, statistics, snapshots. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include "base/host_malloc.h"
#include "memory/allocator.h"
#include "memory/expand/expand.h"
#include "memory_virtual.h"

#define MIB ((size_t)1 << 20)
#define GRANULE ((uint64_t)64 << 10)

TestSuite(memory_expand, .timeout = 60);

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static char *at(const hal_block_t *block) { return hal_memory_block_address(block); }

static size_t reserved(void) { return (size_t)double_stats(0).reserved_bytes[0].current; }

Test(memory_expand, a_segment_grows_in_place) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_block_t *first = take(12 * MIB);
  char *const start = at(first);
  hal_memory_release(first);
  hal_block_t *second = take(31 * MIB);
  cr_expect_eq(at(second), start, "the same addresses, and more after them");
  cr_expect_eq(reserved(), 32 * MIB);
  hal_block_t *third = take(5 * MIB);
  cr_expect_eq(at(third), start + 31 * MIB, "the rest of the last piece is used, too");
  cr_expect_eq(reserved(), 36 * MIB);
  cr_expect_eq(double_.live_bytes, 36 * MIB);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], 0);
  memset(start, 1, 36 * MIB);
  const hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.segment[0].current, 1);
  cr_expect_eq(s.inactive_split[0].current, 0, "free memory of an expandable segment can be unmapped");
  cr_expect_eq(s.inactive_split[0].peak, 0);
  hal_memory_release(second), hal_memory_release(third);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, memory_between_blocks_is_unmapped_and_mapped_again) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_block_t *blocks[5];
  for (int i = 0; i < 5; i++) blocks[i] = take(20 * MIB), memset(at(blocks[i]), i, 20 * MIB);
  char *const start = at(blocks[0]);
  hal_memory_release(blocks[1]), hal_memory_release(blocks[3]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 60 * MIB);
  cr_expect_eq(double_.live_bytes, 60 * MIB);
  int32_t device = -1;
  cr_expect_eq(hal_memory_find(start + 30 * MIB, &device), HAL_NOT_FOUND, "these addresses have no memory");
  cr_expect_eq(hal_memory_find(start + 50 * MIB, &device), HAL_OK);
  hal_block_t *again = take(14 * MIB);
  cr_expect_eq(at(again), start + 20 * MIB, "the first hole that is large enough");
  cr_expect_eq(reserved(), 74 * MIB);
  for (int i = 0; i < 5; i += 2)
    cr_expect(at(blocks[i])[0] == i && at(blocks[i])[20 * MIB - 1] == i, "block %d has its bytes", i);
  hal_memory_release(again);
  for (int i = 0; i < 5; i += 2) hal_memory_release(blocks[i]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0u);
  cr_expect_eq(virtual_.ranges, 0, "a range without memory is released");
  cr_expect_eq(double_stats(0).segment[0].current, 0);
  cr_assert_eq(virtual_close(), 0);
}

/* 40 + 20 + 40 MiB of 110: a request of 70 fits only if the two ends are unmapped. */
Test(memory_expand, fragmented_memory_serves_a_large_request) {
  double_.total = 110 * MIB;
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_devices[0].info.total_memory = 110 * MIB;
  hal_block_t *low = take(40 * MIB), *middle = take(20 * MIB), *high = take(40 * MIB);
  hal_memory_release(low), hal_memory_release(high);
  hal_block_t *large = take(70 * MIB);
  cr_expect_leq(double_.live_bytes, 110 * MIB);
  cr_expect_eq(double_stats(0).num_alloc_retries, 1);
  hal_block_t *block = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 30 * MIB, &block), HAL_RESOURCE_EXHAUSTED);
  cr_expect_eq(double_stats(0).num_ooms, 1);
  hal_memory_release(middle), hal_memory_release(large);
  hal_memory_release(take(108 * MIB));
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, the_limit_counts_mapped_memory) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 50 * MIB), HAL_OK);
  hal_block_t *block = take(30 * MIB), *other = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 22 * MIB, &other), HAL_RESOURCE_EXHAUSTED);
  other = take(20 * MIB);
  cr_expect_eq(reserved(), 50 * MIB);
  hal_memory_release(block), hal_memory_release(other);
  hal_memory_release(take(50 * MIB));
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, small_blocks_have_chunks_of_one_range) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_block_t *blocks[6];
  for (int i = 0; i < 6; i++) blocks[i] = take(MIB);
  cr_expect_eq(reserved(), 6 * MIB);
  cr_expect_eq(virtual_.ranges, 1);
  for (int i = 0; i < 6; i++)
    if (i != 2) hal_memory_release(blocks[i]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 2 * MIB);
  for (int i = 0; i < 6; i++)
    if (i != 2) blocks[i] = take(700 * 1024);
  cr_expect_eq(virtual_.ranges, 1, "chunks that were unmapped are mapped again");
  for (int i = 0; i < 6; i++) hal_memory_release(blocks[i]);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, a_granularity_above_2_MiB_is_the_unit_of_growth) {
  cr_assert_eq(virtual_open(1, 3 * MIB), HAL_OK);
  hal_block_t *small = take(1000), *large = take(4 * MIB);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], 1, "a small segment has 2 MiB and is not expandable");
  cr_expect_eq(reserved(), 8 * MIB);
  hal_memory_release(small), hal_memory_release(large);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, queued_work_is_done_before_memory_is_unmapped) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  for (int id = 0; id < 2; id++) {
    hal_block_t *block = NULL;
    cr_assert_eq(hal_memory_allocate(0, double_stream(0, id), 30 * MIB, &block), HAL_OK);
    double_enqueue(double_stream(0, id), at(block), 30 * MIB);
    hal_memory_release(block);
  }
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_.violations, 0);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, garbage_collection_unmaps_what_was_released_first) {
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True,garbage_collection_threshold:0.5", 1);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, 400 * MIB), HAL_OK);
  hal_block_t *a = take(40 * MIB), *between = take(2 * MIB), *b = take(50 * MIB), *end = take(2 * MIB);
  hal_memory_release(b);
  hal_block_t *part = take(3 * MIB); /* at the beginning of what was b */
  hal_memory_release(a);
  hal_block_t *c = take(120 * MIB); /* 94 MiB are reserved, and 120 MiB more exceed 200 MiB */
  cr_expect_eq(reserved(), (94 - 30 + 120) * MIB, "the free pieces of b, %zu MiB", reserved() / MIB);
  hal_memory_release(c), hal_memory_release(between), hal_memory_release(end), hal_memory_release(part);
  cr_assert_eq(virtual_close(), 0);
}

/* ---- snapshots and history ---- */

static size_t list(hal_memory_block_info_t *blocks, size_t room) {
  size_t count = 0;
  cr_assert_eq(hal_memory_blocks(0, blocks, sizeof *blocks, room, &count), HAL_OK);
  cr_assert_leq(count, room);
  return count;
}

Test(memory_expand, a_snapshot_has_the_parts_with_memory) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_memory_block_info_t info[16];
  hal_block_t *blocks[4];
  for (int i = 0; i < 4; i++) blocks[i] = take(20 * MIB);
  char *const start = at(blocks[0]);
  hal_memory_release(blocks[1]), hal_memory_release(blocks[3]);
  cr_assert_eq(list(info, 16), 4u);
  for (int i = 0; i < 4; i++) {
    cr_expect_eq(info[i].segment, start);
    cr_expect_eq(info[i].segment_size, 80 * MIB);
    cr_expect_eq(info[i].flags, HAL_MEMORY_BLOCK_EXPANDABLE);
  }
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_assert_eq(list(info, 16), 2u);
  for (int i = 0; i < 2; i++) {
    cr_expect_eq(info[i].segment, at(blocks[2 * i]));
    cr_expect_eq(info[i].segment_size, 20 * MIB);
  }
  hal_memory_release(blocks[0]), hal_memory_release(blocks[2]);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, the_history_has_mapped_and_unmapped_memory) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  const hal_memory_history_desc_t desc = {.struct_size = sizeof desc, .max_events = 100};
  cr_assert_eq(hal_memory_history_start(0, &desc), HAL_OK);
  hal_block_t *block = take(30 * MIB);
  char *const start = at(block);
  hal_memory_release(block);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  hal_memory_history_t *history = NULL;
  cr_assert_eq(hal_memory_history_read(0, &history), HAL_OK);
  static const uint32_t actions[] = {HAL_MEMORY_EVENT_SEGMENT_MAP,    HAL_MEMORY_EVENT_SEGMENT_MAP,
                                     HAL_MEMORY_EVENT_ALLOC,          HAL_MEMORY_EVENT_FREE_REQUESTED,
                                     HAL_MEMORY_EVENT_FREE_COMPLETED, HAL_MEMORY_EVENT_SEGMENT_UNMAP,
                                     HAL_MEMORY_EVENT_SEGMENT_UNMAP};
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
    hal_memory_event_t event;
    cr_assert_eq(hal_memory_history_event(history, i, &event, sizeof event), HAL_OK);
    cr_expect_eq(event.action, actions[i], "event %zu is %u", i, event.action);
    const int is_second = i == 1 || i == 6, is_piece = i < 2 || i > 4;
    if (is_piece) cr_expect_eq(event.address, start + (is_second ? 20 * MIB : 0));
    if (is_piece) cr_expect_eq(event.size, (is_second ? 10 : 20) * MIB);
  }
  hal_memory_history_release(history);
  cr_assert_eq(hal_memory_history_stop(0), HAL_OK);
  cr_assert_eq(virtual_close(), 0);
}

/* ---- private pools, other processes, plugins without virtual memory ---- */

Test(memory_expand, a_private_pool_keeps_its_memory_until_it_ends) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_memory_pool_t *pool = NULL;
  hal_block_t *own = take(20 * MIB);
  cr_assert_eq(hal_memory_pool_create(0, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  hal_block_t *kept = take(20 * MIB), *released = take(20 * MIB), *small = take(100);
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  cr_expect_eq(virtual_.ranges, 3);
  hal_memory_release(released);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 62 * MIB, "memory of a pool is not unmapped");
  hal_memory_pool_release(pool);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 42 * MIB);
  memset(at(kept), 1, 20 * MIB);
  hal_memory_release(own), hal_memory_release(kept), hal_memory_release(small);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0u);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, a_pool_without_splits_has_ordinary_segments) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(hal_memory_pool_create_with(0, HAL_MEMORY_POOL_NO_SPLIT, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  hal_block_t *block = take(3 * MIB), *other = take(3 * MIB);
  cr_expect_eq(double_.live_count, 2u);
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  hal_memory_release(block), hal_memory_release(other);
  hal_memory_pool_release(pool);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, sharing_with_another_process_is_refused_by_name) {
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  static const size_t sizes[] = {1000, 30 * MIB};
  for (int i = 0; i < 2; i++) {
    hal_block_t *block = take(sizes[i]);
    cr_expect_eq(hal_memory_check_share(block), HAL_UNIMPLEMENTED);
    cr_expect_not_null(strstr(hal_error_message(), "expandable_segments:False"), "%s", hal_error_message());
    hal_memory_release(block);
  }
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate_shareable(0, NULL, 30 * MIB, &block), HAL_OK);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], 1);
  cr_expect_eq(hal_memory_check_share(block), HAL_OK, "%s", hal_error_message());
  hal_memory_release(block);
  cr_assert_eq(virtual_close(), 0);
}

static int warnings;
static char warning[512];

static void count_warnings(int32_t level, const char *message, void *data) {
  (void)data;
  if (level > HAL_LOG_WARNING) return;
  warnings++;
  snprintf(warning, sizeof warning, "%s", message);
}

Test(memory_expand, without_virtual_memory_there_is_one_warning_and_ordinary_segments) {
  hal_log_set_sink(count_warnings, NULL);
  cr_assert_eq(virtual_open(2, 0), HAL_OK);
  cr_expect_eq(warnings, 1, "%d", warnings);
  cr_expect_not_null(strstr(warning, "expandable_segments"), "%s", warning);
  hal_block_t *block = take(30 * MIB);
  cr_expect_eq(double_.live_count, 1u);
  hal_memory_release(block);
  hal_log_set_sink(NULL, NULL);
  cr_assert_eq(virtual_close(), 0);
}

/* ---- random requests ---- */

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 2685821657736338717u;
}

enum { LIVE = 120, STEPS = 4000 };

static size_t random_size(void) {
  const uint64_t shape = next_random() % 10, r = next_random();
  if (shape < 4) return 1 + r % MIB;
  if (shape < 8) return MIB + r % (3 * MIB);
  return 5 * MIB + r % (30 * MIB);
}

static int is_stuck; /* memory could not be unmapped */

static void check_snapshot(void) {
  static hal_memory_block_info_t info[4096];
  const size_t count = list(info, 4096);
  size_t total = 0, segment = 0;
  for (size_t i = 0; i < count; i++) {
    const int is_new = !i || info[i].segment != info[i - 1].segment;
    if (is_new) cr_assert_eq(info[i].address, info[i].segment);
    if (is_new) segment = 0;
    if (!is_new) cr_assert_eq(info[i].address, (char *)info[i - 1].address + info[i - 1].size, "no gap, no overlap");
    segment += info[i].size, total += info[i].size;
    cr_assert_leq(segment, info[i].segment_size);
  }
  cr_assert_leq(total, reserved());
  cr_assert_eq(reserved(), double_.live_bytes);
  if (!is_stuck) cr_assert_eq(total, reserved());
}

Test(memory_expand, blocks_keep_their_bytes_whatever_is_mapped_and_unmapped) {
  static hal_block_t *live[LIVE];
  static unsigned char tags[LIVE];
  double_.total = 350 * MIB;
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_devices[0].info.total_memory = 350 * MIB;
  long exhausted = 0;
  for (int step = 0; step < STEPS; step++) {
    const size_t i = next_random() % LIVE;
    if (live[i]) {
      const size_t size = hal_memory_block_size(live[i]);
      cr_assert(at(live[i])[0] == (char)tags[i] && at(live[i])[size - 1] == (char)tags[i], "bytes were changed");
      hal_memory_release(live[i]);
      live[i] = NULL;
    } else if (hal_memory_allocate(0, double_stream(0, (int)(next_random() % 2)), random_size(), &live[i])) {
      live[i] = NULL;
      exhausted++;
    } else {
      tags[i] = (unsigned char)(1 + next_random() % 200);
      at(live[i])[0] = at(live[i])[hal_memory_block_size(live[i]) - 1] = (char)tags[i];
    }
    if (next_random() % 400 == 0) cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
    if (step % 50 == 0) check_snapshot();
  }
  cr_expect_gt(double_stats(0).num_alloc_retries, 10, "the memory was exhausted at times");
  cr_expect_lt(exhausted, STEPS / 10);
  for (int i = 0; i < LIVE; i++) hal_memory_release(live[i]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0u);
  cr_expect_eq(double_stats(0).allocated_bytes[0].current, 0);
  cr_assert_eq(virtual_close(), 0);
}

/* ---- failures ---- */

static const uint32_t slots[] = {HAL_SLOT_virtual_reserve, HAL_SLOT_virtual_create, HAL_SLOT_virtual_map,
                                 HAL_SLOT_virtual_unmap};

/* Requests that grow, shrink and fill holes. Returns the number of requests that failed. */
static int exercise(hal_status_t *out_status) {
  static const size_t sizes[] = {25 * MIB, 1000, 45 * MIB, 3 * MIB, 30 * MIB, 500 * 1024};
  hal_block_t *blocks[6] = {NULL};
  int failed = 0;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 6; i++) {
      if (blocks[i]) continue;
      const hal_status_t status = hal_memory_allocate(0, NULL, sizes[(i + round) % 6], &blocks[i]);
      if (status) *out_status = status, failed++;
      if (blocks[i]) memset(at(blocks[i]), i + 1, hal_memory_block_size(blocks[i]));
      check_snapshot();
    }
    for (int i = round % 2; i < 6; i += 2) {
      if (blocks[i]) cr_assert_eq(at(blocks[i])[hal_memory_block_size(blocks[i]) - 1], i + 1);
      hal_memory_release(blocks[i]);
      blocks[i] = NULL;
    }
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  }
  for (int i = 0; i < 6; i++) hal_memory_release(blocks[i]);
  return failed;
}

static void quiet(int32_t level, const char *message, void *data) { (void)level, (void)message, (void)data; }

/* Each call of each function fails once. */
Test(memory_expand, a_failure_of_a_virtual_function_changes_nothing) {
  hal_status_t status = HAL_OK;
  hal_log_set_sink(quiet, NULL);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  for (size_t s = 0; s < sizeof slots / sizeof *slots; s++) {
    int last = 0;
    is_stuck = slots[s] == HAL_SLOT_virtual_unmap;
    for (int n = 1; !last; n++) {
      double_.fail_after[slots[s]] = n;
      status = HAL_OK;
      const int failed = exercise(&status);
      last = double_.fail_after[slots[s]] != 0; /* there were fewer calls */
      double_.fail_after[slots[s]] = 0;
      cr_assert_leq(failed, 1);
      if (failed) cr_expect_eq(status, HAL_INTERNAL);
      if (slots[s] == HAL_SLOT_virtual_reserve) hal_mem_expand_setup(hal_allocator_of(&hal_devices[0]));
      status = hal_stream_synchronize(double_stream(0, 0)); /* a failure to unmap is that of the stream */
      cr_expect(!status || is_stuck);
      cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
      if (!is_stuck) cr_assert_eq(double_.live_bytes, 0u);
      cr_assert_lt(n, 200);
    }
  }
  hal_log_set_sink(NULL, NULL);
  cr_assert_eq(virtual_close(), 0);
}

/* The addresses of such a request cannot be reserved, which does not concern other requests. */
Test(memory_expand, a_request_larger_than_the_device_leaves_segments_expandable) {
  warnings = 0;
  hal_log_set_sink(count_warnings, NULL);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  double_.total = 100 * MIB;
  hal_devices[0].info.total_memory = 100 * MIB;
  hal_block_t *block = NULL;
  for (int round = 0; round < 2; round++) { /* without a range, and with one */
    cr_expect_eq(hal_memory_allocate(0, NULL, (size_t)1 << 50, &block), HAL_RESOURCE_EXHAUSTED);
    cr_expect_not_null(strstr(hal_error_message(), "ut of memory"), "%s", hal_error_message());
    hal_memory_release(take(12 * MIB));
    block = take(30 * MIB);
    cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], 0);
    hal_memory_release(block);
  }
  cr_expect_eq(double_stats(0).num_ooms, 2);
  cr_expect_eq(warnings, 0);
  hal_log_set_sink(NULL, NULL);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, memory_that_cannot_be_unmapped_stays_reserved_and_is_used_again) {
  hal_log_set_sink(quiet, NULL);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_memory_release(take(18 * MIB));
  double_.fail_after[HAL_SLOT_virtual_unmap] = 1;
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 18 * MIB);
  cr_expect_eq(hal_stream_synchronize(double_stream(0, 0)), HAL_INTERNAL, "the failure is reported once");
  cr_expect_eq(hal_stream_synchronize(double_stream(0, 0)), HAL_OK);
  const int calls = double_.calls[HAL_SLOT_virtual_create];
  hal_memory_release(take(18 * MIB));
  cr_expect_eq(double_.calls[HAL_SLOT_virtual_create], calls);
  hal_log_set_sink(NULL, NULL);
  cr_assert_eq(virtual_close(), 0);
}

Test(memory_expand, without_host_memory_for_records_nothing_is_lost) {
  hal_log_set_sink(quiet, NULL);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  for (long n = 1; n < 40; n++) {
    hal_status_t status = HAL_OK;
    hal_malloc_fail_after(n);
    exercise(&status);
    hal_malloc_fail_after(0);
    cr_assert(status == HAL_OK || status == HAL_RESOURCE_EXHAUSTED);
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
    cr_assert_eq(double_.live_bytes, 0u);
  }
  hal_log_set_sink(NULL, NULL);
  cr_assert_eq(virtual_close(), 0);
}

/* ---- threads ---- */

static void *work(void *data) {
  uint64_t seed = 1 + (uint64_t)(uintptr_t)data;
  hal_block_t *mine[8] = {NULL};
  for (int step = 0; step < 1500; step++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const size_t i = (seed >> 33) % 8, size = (seed >> 40) % 4 ? 1 + (seed >> 20) % (6 * MIB) : 1 + (seed >> 20) % MIB;
    if (mine[i]) {
      if (at(mine[i])[0] != (char)i) return "bytes were changed";
      hal_memory_release(mine[i]);
      mine[i] = NULL;
    } else if (!hal_memory_allocate(0, double_stream(0, (int)((seed >> 50) % 2)), size, &mine[i])) {
      at(mine[i])[0] = (char)i;
    }
    if ((seed >> 45) % 100 == 0) hal_memory_empty_cache(0);
  }
  for (size_t i = 0; i < 8; i++) hal_memory_release(mine[i]);
  return NULL;
}

Test(memory_expand, threads_grow_and_unmap_at_the_same_time) {
  pthread_t threads[4];
  double_.total = 60 * MIB;
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  hal_devices[0].info.total_memory = 60 * MIB;
  for (size_t i = 0; i < 4; i++) cr_assert_eq(pthread_create(&threads[i], NULL, work, (void *)i), 0);
  for (size_t i = 0; i < 4; i++) {
    void *message = NULL;
    pthread_join(threads[i], &message);
    cr_expect_null(message);
  }
  check_snapshot();
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_.live_bytes, 0u);
  cr_assert_eq(virtual_close(), 0);
}

/* The memory is the plugin's then: nothing can be done with it any more. */
Test(memory_expand, a_failure_to_release_memory_or_addresses_is_reported_and_not_repeated) {
  hal_log_set_sink(quiet, NULL);
  cr_assert_eq(virtual_open(1, GRANULE), HAL_OK);
  double_.fail_after[HAL_SLOT_virtual_release] = 1;
  hal_memory_release(take(18 * MIB));
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(hal_stream_synchronize(double_stream(0, 0)), HAL_INTERNAL);
  cr_expect_eq(reserved(), 0u);
  cr_expect_eq(virtual_.pieces, 1);
  double_.fail_after[HAL_SLOT_virtual_unreserve] = 1;
  hal_memory_release(take(18 * MIB));
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(virtual_.ranges, 1, "the plugin kept it");
  hal_memory_release(take(18 * MIB));
  hal_log_set_sink(NULL, NULL);
  cr_expect_eq(virtual_close(), 1 + 1 + (long)(18 * MIB));
}
