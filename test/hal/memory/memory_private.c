/* memory_private.c: private pools for recorded work. */
#include <criterion/criterion.h>

#include "base/life.h"
#include "memory_double.h"

TestSuite(memory_private, .timeout = 60);

enum { SMALL = 4096, LARGE = 3 << 20 };

static hal_block_t *take_on(hal_stream_t *stream, size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, stream, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static void *address_of(hal_block_t *block) { return hal_memory_block_address(block); }

static hal_memory_pool_t *pool_on(hal_stream_t *stream) {
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(hal_memory_pool_create(0, &pool), HAL_OK, "%s", hal_error_message());
  cr_assert_eq(hal_memory_pool_begin(pool, stream), HAL_OK, "%s", hal_error_message());
  return pool;
}

static int64_t reserved(void) { return double_stats(0).reserved_bytes[0].current; }

static void addresses_of_a_pool_stay_its_own(uint64_t flags, size_t size) {
  cr_assert_eq(double_open(1, flags), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_pool_t *pool = pool_on(stream);
  hal_block_t *block = take_on(stream, size);
  void *const address = address_of(block);
  hal_memory_release(block);
  block = take_on(stream, size);
  cr_expect_eq(address_of(block), address, "reused within the recording, in the order of the stream");
  hal_memory_release(block);
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  hal_block_t *others[64];
  for (int i = 0; i < 64; i++) {
    others[i] = take_on(stream, size);
    const char *const other = address_of(others[i]);
    cr_expect(other >= (char *)address + size || other + size <= (char *)address, "given to work outside");
  }
  for (int i = 0; i < 64; i++) hal_memory_release(others[i]);
  cr_assert_eq(hal_memory_pool_begin(pool, stream), HAL_OK);
  block = take_on(stream, size);
  cr_expect_eq(address_of(block), address, "a second recording shares what the first has left");
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  hal_memory_release(block);
  hal_memory_pool_release(pool);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, addresses_of_a_pool_stay_its_own_until_it_ends) { addresses_of_a_pool_stay_its_own(0, SMALL); }

Test(memory_private, large_ones_too) { addresses_of_a_pool_stay_its_own(0, LARGE); }

Test(memory_private, also_where_the_plugin_pools_memory_itself) {
  addresses_of_a_pool_stay_its_own(HAL_DEVICE_POOLED, SMALL);
}

Test(memory_private, nothing_of_it_goes_back_to_the_plugin_before_its_end) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_pool_t *pool = pool_on(stream);
  hal_memory_release(take_on(stream, SMALL));
  hal_memory_release(take_on(stream, LARGE));
  const int64_t bytes = reserved();
  cr_expect_gt(bytes, LARGE);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), bytes, "while the stream is routed to it");
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  hal_memory_release(take_on(stream, SMALL));
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), bytes, "and after that; what the stream itself had is gone");
  hal_memory_pool_retain(pool);
  hal_memory_pool_release(pool);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), bytes, "a reference still exists");
  hal_memory_pool_release(pool);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, out_of_memory_takes_nothing_from_it) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_pool_t *pool = pool_on(stream);
  hal_memory_release(take_on(stream, LARGE));
  hal_block_t *block;
  cr_assert_eq(hal_memory_set_limit(0, (size_t)reserved() + LARGE), HAL_OK);
  cr_expect_eq(hal_memory_allocate(0, stream, 40 * LARGE, &block), HAL_RESOURCE_EXHAUSTED, "in the pool");
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  const int64_t bytes = reserved();
  cr_expect_eq(hal_memory_allocate(0, stream, 40 * LARGE, &block), HAL_RESOURCE_EXHAUSTED, "outside");
  cr_expect_eq(reserved(), bytes);
  hal_memory_pool_release(pool);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, blocks_that_are_held_outlive_it_and_then_join_the_stream) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_release(take_on(stream, SMALL)); /* the stream has its own pool, with a free block */
  hal_memory_pool_t *pool = pool_on(stream);
  hal_block_t *a = take_on(stream, SMALL), *b = take_on(stream, SMALL), *c = take_on(stream, SMALL);
  void *const address = address_of(b);
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  hal_memory_release(b);
  hal_memory_pool_release(pool);
  memset(address_of(a), 1, SMALL);
  memset(address_of(c), 1, SMALL);
  hal_memory_release(c), hal_memory_release(a);
  cr_expect_eq(double_stats(0).inactive_split_bytes[0].current, 0, "the pieces were joined again");
  int seen = 0;
  hal_block_t *blocks[2048];
  for (int i = 0; i < 2048; i++) {
    blocks[i] = take_on(stream, SMALL);
    seen |= address_of(blocks[i]) <= address && (char *)address < (char *)address_of(blocks[i]) + SMALL;
    if (seen) {
      for (; i >= 0; i--) hal_memory_release(blocks[i]);
      break;
    }
  }
  cr_expect(seen, "its memory is the stream's");
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, a_block_that_another_stream_uses_comes_back_to_the_pool_after_that_work) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1), *other = double_stream(0, 2);
  hal_memory_pool_t *pool = pool_on(stream);
  hal_block_t *block = take_on(stream, SMALL);
  void *const address = address_of(block);
  double_enqueue(other, address, SMALL);
  cr_assert_eq(hal_memory_record_stream(block, other), HAL_OK);
  hal_memory_release(block);
  hal_memory_pool_release(pool); /* also ends the routing, with a block that waits */
  hal_block_t *early = take_on(stream, SMALL);
  cr_expect_neq(address_of(early), address);
  double_finish(other);
  hal_memory_release(early);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(reserved(), 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, several_streams_share_a_pool_but_no_blocks) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *one = double_stream(0, 1), *two = double_stream(0, 2), *three = double_stream(0, 3);
  hal_memory_pool_t *pool = pool_on(one);
  cr_assert_eq(hal_memory_pool_begin(pool, two), HAL_OK);
  hal_block_t *block = take_on(one, SMALL);
  void *const address = address_of(block);
  hal_memory_release(block);
  block = take_on(two, SMALL);
  cr_expect_neq(address_of(block), address);
  hal_memory_release(block);
  block = take_on(three, SMALL);
  cr_expect_neq(address_of(block), address, "a stream that is not routed");
  hal_memory_release(block);
  hal_memory_pool_release(pool);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, invalid_uses_are_refused_with_a_message) {
  cr_assert_eq(double_open(2, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_pool_t *pool = pool_on(stream), *second = NULL;
  cr_assert_eq(hal_memory_pool_create(0, &second), HAL_OK);
  cr_expect_neq(hal_memory_pool_id(pool), hal_memory_pool_id(second));
  cr_expect_eq(hal_memory_pool_begin(second, stream), HAL_FAILED_PRECONDITION);
  cr_expect(strstr(hal_error_message(), "stream 1 of device") && strstr(hal_error_message(), "already"), "%s",
            hal_error_message());
  cr_expect_eq(hal_memory_pool_end(second, stream), HAL_FAILED_PRECONDITION);
  cr_expect_eq(hal_memory_pool_begin(second, double_stream(1, 1)), HAL_INVALID_ARGUMENT);
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  cr_expect_eq(hal_memory_pool_end(pool, stream), HAL_FAILED_PRECONDITION);
  hal_memory_pool_release(NULL);
  hal_memory_pool_release(second);
  hal_memory_pool_release(pool);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, it_ends_quietly_after_its_device) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_pool_t *pool = pool_on(double_stream(0, 1));
  hal_memory_release(take_on(double_stream(0, 1), SMALL));
  hal_allocator_close(hal_allocator_of(&hal_devices[0]));
  atomic_store(&hal_life.closed, 1);
  hal_memory_pool_release(pool);
  atomic_store(&hal_life.closed, 0);
}

static size_t blocks_of(hal_memory_block_info_t *blocks, size_t room) {
  size_t count = 0;
  cr_assert_eq(hal_memory_blocks(0, blocks, sizeof(*blocks), room, &count), HAL_OK, "%s", hal_error_message());
  return count;
}

Test(memory_private, a_pool_without_splits_allocates_a_segment_per_allocation) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_stream_t *stream = double_stream(0, 1);
  hal_memory_pool_t *pool = NULL;
  hal_block_t *held[4];
  cr_assert_eq(hal_memory_pool_create_with(0, HAL_MEMORY_POOL_NO_SPLIT, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, stream), HAL_OK);
  for (int i = 0; i < 4; i++) held[i] = take_on(stream, i < 2 ? SMALL : LARGE);
  cr_assert_eq(hal_memory_pool_end(pool, stream), HAL_OK);
  hal_memory_block_info_t blocks[8];
  cr_assert_eq(blocks_of(blocks, 8), 4);
  for (int i = 0; i < 4; i++) {
    cr_expect_eq(blocks[i].size, blocks[i].segment_size);
    cr_expect_eq(blocks[i].address, blocks[i].segment);
    cr_expect_eq(blocks[i].pool, hal_memory_pool_id(pool));
    for (int j = 0; j < i; j++) cr_expect_neq(blocks[i].segment, blocks[j].segment);
    hal_memory_release(held[i]);
  }
  hal_memory_pool_release(pool);
  hal_block_t *first = take_on(stream, SMALL),
              *second = take_on(stream, SMALL); /* the memory now belongs to the stream */
  cr_assert_eq(blocks_of(blocks, 8), 6, "the two share what was two segments and is split again");
  hal_memory_release(first);
  hal_memory_release(second);
  cr_assert_eq(double_close(), 0);
}

Test(memory_private, an_unknown_flag_of_a_pool_is_refused) {
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_pool_create_with(0, 2, &pool), HAL_UNIMPLEMENTED);
  cr_assert(strstr(hal_error_message(), "0x2"), "%s", hal_error_message());
  cr_assert_eq(double_close(), 0);
}
