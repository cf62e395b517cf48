/* memory_snapshot.c: the list of an allocator's blocks agrees with its statistics. */
#include <criterion/criterion.h>
#include <string.h>

#include "memory_double.h"

TestSuite(memory_snapshot, .timeout = 60);

enum { ROOM = 64 };

static size_t list(hal_memory_block_info_t *blocks) {
  size_t count = 0;
  cr_assert_eq(hal_memory_blocks(0, blocks, sizeof(*blocks), ROOM, &count), HAL_OK, "%s", hal_error_message());
  cr_assert_leq(count, ROOM);
  return count;
}

static int64_t bytes_in(const hal_memory_block_info_t *blocks, size_t count, uint32_t state) {
  int64_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += blocks[i].state == state ? (int64_t)blocks[i].size : 0;
  return bytes;
}

/* Blocks are adjacent in their segments and fill them. */
static void expect_whole_segments(const hal_memory_block_info_t *blocks, size_t count) {
  const char *expected = NULL;
  for (size_t i = 0; i < count; i++) {
    const int is_first = !i || blocks[i].segment != blocks[i - 1].segment;
    const char *const address = blocks[i].address, *const segment = blocks[i].segment;
    cr_expect_eq((const void *)address, is_first ? blocks[i].segment : (const void *)expected);
    if (is_first && i) cr_expect_gt(segment, (const char *)blocks[i - 1].segment, "segments by address");
    expected = address + blocks[i].size;
    const int is_last = i + 1 == count || blocks[i + 1].segment != blocks[i].segment;
    if (is_last) cr_expect_eq(expected, segment + blocks[i].segment_size);
  }
}

static void expect_the_statistics(void) {
  hal_memory_block_info_t blocks[ROOM];
  const size_t count = list(blocks);
  const hal_memory_stats_t stats = double_stats(0);
  const int64_t used = bytes_in(blocks, count, HAL_MEMORY_BLOCK_ALLOCATED);
  const int64_t pending = bytes_in(blocks, count, HAL_MEMORY_BLOCK_PENDING);
  expect_whole_segments(blocks, count);
  cr_expect_eq(used, stats.allocated_bytes[HAL_POOL_ALL].current);
  cr_expect_eq(used + pending, stats.active_bytes[HAL_POOL_ALL].current);
  cr_expect_eq(used + pending + bytes_in(blocks, count, HAL_MEMORY_BLOCK_FREE),
               stats.reserved_bytes[HAL_POOL_ALL].current);
}

Test(memory_snapshot, agrees_with_the_statistics) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *held[12];
  expect_the_statistics();
  for (int i = 0; i < 12; i++) {
    const size_t size = i % 3 ? (size_t)700 * (size_t)(i + 1) : (size_t)(i + 2) << 20;
    cr_assert_eq(hal_memory_allocate(0, double_stream(0, i % 2), size, &held[i]), HAL_OK);
    expect_the_statistics();
  }
  for (int i = 0; i < 12; i += 2) {
    hal_memory_release(held[i]);
    expect_the_statistics();
  }
  for (int i = 1; i < 12; i += 2) hal_memory_release(held[i]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  expect_the_statistics();
  cr_assert_eq(double_close(), 0);
}

Test(memory_snapshot, identifies_each_block) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_block_info_t blocks[ROOM];
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, stream, 1000, &block), HAL_OK);
  const size_t count = list(blocks);
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    if (blocks[i].state != HAL_MEMORY_BLOCK_ALLOCATED) continue;
    found++;
    cr_expect_eq(blocks[i].address, hal_memory_block_address(block));
    cr_expect_eq(blocks[i].requested, 1000);
    cr_expect_eq(blocks[i].size, 1024);
    cr_expect_eq(blocks[i].stream, hal_stream_id(stream));
    cr_expect_eq(blocks[i].pool, 0);
    cr_expect_eq(blocks[i].kind, HAL_POOL_SMALL);
  }
  cr_expect_eq(found, 1);
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_snapshot, an_older_or_newer_caller_gets_what_it_knows) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, 2 << 20, &block), HAL_OK);
  size_t count = 0;
  void *addresses[4] = {NULL};
  cr_assert_eq(hal_memory_blocks(0, (hal_memory_block_info_t *)addresses, sizeof(void *), 4, &count), HAL_OK);
  cr_assert_geq(count, 1);
  hal_memory_block_info_t known[4];
  cr_assert_eq(hal_memory_blocks(0, known, sizeof(known[0]), 4, &count), HAL_OK);
  struct {
    hal_memory_block_info_t info;
    uint64_t later;
  } wide[4];
  memset(wide, 0xff, sizeof(wide));
  cr_assert_eq(hal_memory_blocks(0, &wide[0].info, sizeof(wide[0]), 4, &count), HAL_OK);
  for (size_t i = 0; i < count; i++) {
    cr_expect_eq(addresses[i], known[i].address);
    cr_expect_arr_eq(&wide[i].info, &known[i], sizeof(known[i]));
    cr_expect_eq(wide[i].later, 0);
  }
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_snapshot, counts_without_a_buffer_and_rejects_a_missing_count) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  size_t count = 7;
  cr_expect_eq(hal_memory_blocks(0, NULL, 0, 0, &count), HAL_OK);
  cr_expect_eq(count, 0);
  cr_expect_eq(hal_memory_blocks(0, NULL, sizeof(hal_memory_block_info_t), 1, &count), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_blocks(0, NULL, 0, 0, NULL), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_blocks(1, NULL, 0, 0, &count), HAL_OUT_OF_RANGE);
  cr_assert_eq(double_close(), 0);
}
