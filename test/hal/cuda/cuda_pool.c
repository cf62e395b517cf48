/* Tests of stream-ordered memory: HAL_CUDA_POOLED=1, on the pools of the mock driver. */
#include <stdatomic.h>
#include <time.h>

#include "cuda_testing.h"

enum { MEGA = 1 << 20 };

TestSuite(cuda_pool, .fini = close_opencl, .timeout = 120);

static void open_pooled(void) {
  setenv("HAL_CUDA_POOLED", "1", 1);
  open_cuda();
}

static hal_block_t *block_on(hal_stream_t *stream, size_t size) {
  hal_block_t *block = NULL;
  assert_ok(hal_memory_allocate(0, stream, size, &block));
  return block;
}

static atomic_int is_open;
static void wait_for_gate(void *unused) {
  (void)unused;
  while (!atomic_load(&is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static int64_t used(void) {
  int64_t bytes = 0;
  assert_ok(hal_device_sensor(0, HAL_SENSOR_MEMORY_USED, &bytes));
  return bytes;
}

Test(cuda_pool, the_setting_decides_and_a_driver_without_pools_is_served_as_before) {
  hal_block_t *block = NULL;
  needs_mock("CUDA_MOCK_POOLS");
  setenv("CUDA_MOCK_POOLS", "0", 1);
  open_pooled();
  cr_assert_not(hal_device_flags(0) & HAL_DEVICE_POOLED);
  assert_ok(hal_memory_allocate(0, NULL, MEGA, &block));
  hal_memory_release(block);
}

Test(cuda_pool, without_the_setting_the_host_pools) {
  open_cuda();
  cr_assert_not(hal_device_flags(0) & HAL_DEVICE_POOLED);
}

Test(cuda_pool, memory_is_taken_again_by_its_stream_at_once_and_by_others_when_that_has_come_so_far) {
  hal_stream_t *first = NULL, *second = NULL;
  open_pooled();
  cr_assert(hal_device_flags(0) & HAL_DEVICE_POOLED);
  assert_ok(hal_stream_acquire(0, 0, &first));
  assert_ok(hal_stream_acquire(0, 0, &second));
  hal_block_t *block = block_on(first, MEGA);
  void *const address = hal_memory_block_address(block);
  assert_ok(hal_stream_host_call(first, wait_for_gate, NULL));
  hal_memory_release(block);
  hal_block_t *const other = block_on(second, MEGA), *const same = block_on(first, MEGA);
  cr_assert_neq(hal_memory_block_address(other), address);
  cr_assert_eq(hal_memory_block_address(same), address);
  hal_memory_release(same);
  atomic_store(&is_open, 1);
  assert_ok(hal_stream_synchronize(first));
  hal_block_t *const later = block_on(second, MEGA);
  cr_assert_eq(hal_memory_block_address(later), address);
  hal_memory_release(other);
  hal_memory_release(later);
}

Test(cuda_pool, what_was_written_is_there_until_the_stream_has_read_it) {
  enum { ROUNDS = 50, WORDS = 1000 };
  static uint32_t back[ROUNDS][WORDS];
  hal_stream_t *stream = NULL;
  open_pooled();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  for (uint32_t round = 0; round < ROUNDS; round++) {
    hal_block_t *const block = block_on(stream, sizeof back[0]);
    assert_ok(hal_memory_fill(stream, 0, hal_memory_block_address(block), &round, 4, sizeof back[0]));
    assert_ok(hal_memory_copy(stream, back[round], HAL_HOST, hal_memory_block_address(block), 0, sizeof back[0]));
    hal_memory_release(block);
  }
  assert_ok(hal_stream_synchronize(stream));
  for (uint32_t round = 0; round < ROUNDS; round++)
    for (int i = 0; i < WORDS; i++) cr_assert_eq(back[round][i], round);
}

Test(cuda_pool, statistics_count_what_is_in_use_and_the_pool_keeps_as_much_as_is_set) {
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  setenv("HAL_CUDA_POOL_KEEP", "4194304", 1);
  open_pooled();
  const int64_t before = used();
  hal_block_t *const large = block_on(NULL, 64 * MEGA), *const small = block_on(NULL, 2 * MEGA);
  assert_ok(hal_memory_stats(0, &stats));
  cr_assert_eq(stats.allocated_bytes[HAL_POOL_ALL].current, 66 * MEGA);
  cr_assert_eq(stats.reserved_bytes[HAL_POOL_ALL].current, 66 * MEGA);
  if (is_on_mock()) cr_assert_geq(used() - before, 66 * MEGA); /* others use a GPU, too */
  hal_memory_release(large);
  hal_memory_release(small);
  hal_stream_t *stream = NULL;
  assert_ok(hal_stream_default(0, &stream));
  assert_ok(hal_stream_synchronize(stream)); /* memory above the threshold is returned to the driver */
  if (is_on_mock()) cr_assert_leq(used() - before, 4 * MEGA);
  assert_ok(hal_memory_stats(0, &stats));
  cr_assert_eq(stats.allocated_bytes[HAL_POOL_ALL].current, 0);
  cr_assert_eq(stats.reserved_bytes[HAL_POOL_ALL].current, 0);
}

Test(cuda_pool, a_pool_that_is_full_of_other_sizes_is_emptied_before_memory_is_refused) {
  hal_block_t *blocks[6], *block = NULL;
  needs_mock("CUDA_MOCK_MEMORY");
  setenv("CUDA_MOCK_MEMORY", "67108864", 1);
  open_pooled();
  for (int i = 0; i < 6; i++) blocks[i] = block_on(NULL, 8 * MEGA);
  for (int i = 0; i < 6; i++) hal_memory_release(blocks[i]);
  assert_ok(hal_memory_allocate(0, NULL, 40 * MEGA, &block)); /* free, but in pieces of 8 */
  assert_fails(hal_memory_allocate(0, NULL, 40 * MEGA, blocks), HAL_RESOURCE_EXHAUSTED, "out of memory");
  hal_memory_release(block);
  assert_ok(hal_memory_allocate(0, NULL, 40 * MEGA, &block));
  hal_memory_release(block);
}

Test(cuda_pool, memory_of_a_graph_is_its_own) {
  hal_memory_pool_t *pool = NULL;
  hal_stream_t *stream = NULL;
  open_pooled();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_pool_create(0, &pool));
  assert_ok(hal_memory_pool_begin(pool, stream));
  hal_block_t *const block = block_on(stream, MEGA);
  void *const address = hal_memory_block_address(block);
  hal_memory_release(block);
  assert_ok(hal_memory_pool_end(pool, stream));
  hal_block_t *const other = block_on(stream, MEGA);
  cr_assert_neq(hal_memory_block_address(other), address);
  hal_memory_release(other);
  hal_memory_pool_release(pool);
}
