/* memory_custom.c: allocators of programs: for the process, and for a private pool. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include "memory/allocator.h"
#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(memory_custom, .timeout = 60);

/* The program's allocator: whole pages of the host, and a list of what is allocated. */
static struct {
  struct {
    void *address;
    size_t size;
  } live[64];
  int calls, releases, errors;
  void *returns; /* returned in place of memory, if `lies` */
  int lies;
} program;

static void *allocate(void *user_data, size_t size, int32_t device, void *stream) {
  (void)stream;
  program.calls++;
  cr_assert_eq(user_data, &program);
  cr_assert_eq(device, 0);
  if (program.lies) return program.returns;
  for (size_t i = 0; i < 64; i++) {
    if (program.live[i].address) continue;
    program.live[i].address = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
    program.live[i].size = size;
    return program.live[i].address;
  }
  return NULL;
}

static void release(void *user_data, void *address, size_t size, int32_t device, void *stream) {
  (void)user_data, (void)device, (void)stream;
  program.releases++;
  for (int u = 0; u < double_.use_count; u++)
    if (double_.uses[u].stream->done < double_.uses[u].mark && (char *)address == double_.uses[u].begin)
      program.errors++; /* work still uses it */
  for (size_t i = 0; i < 64; i++) {
    if (program.live[i].address != address) continue;
    if (program.live[i].size != size) program.errors++;
    program.live[i].address = NULL;
    free(address);
    return;
  }
  if (!program.lies) program.errors++;
}

static const hal_memory_allocator_t calls = {
    .struct_size = sizeof calls, .allocate = allocate, .release = release, .user_data = &program};

static int live(void) {
  int count = 0;
  for (size_t i = 0; i < 64; i++) count += program.live[i].address != NULL;
  return count;
}

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

static size_t current(const hal_stat_t *stat) { return (size_t)stat[HAL_POOL_ALL].current; }

/* ---- the process ---- */

Test(memory_custom, each_allocation_is_one_call) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_allocator(&calls), HAL_OK, "%s", hal_error_message());
  hal_block_t *a = take(100), *b = take(3 * MIB), *empty = take(0);
  cr_expect_eq(program.calls, 2);
  cr_expect_eq(live(), 2);
  const hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(current(s.allocated_bytes), 3 * MIB + 100);
  cr_expect_eq(current(s.reserved_bytes), 3 * MIB + 100);
  cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], 0);
  hal_memory_release(a), hal_memory_release(b), hal_memory_release(empty);
  cr_expect_eq(live(), 0, "nothing is cached");
  cr_expect_eq(current(double_stats(0).reserved_bytes), 0u);
  cr_expect_eq(program.errors, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_custom, memory_is_released_after_the_work_of_all_streams_that_use_it) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_allocator(&calls), HAL_OK);
  hal_block_t *block = take(1000);
  double_enqueue(double_stream(0, 0), hal_memory_block_address(block), 1000);
  double_enqueue(double_stream(0, 1), hal_memory_block_address(block), 1000);
  cr_assert_eq(hal_memory_record_stream(block, double_stream(0, 1)), HAL_OK);
  hal_memory_release(block);
  cr_expect_eq(live(), 1);
  double_finish(double_stream(0, 0));
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(live(), 1);
  double_finish(double_stream(0, 1));
  hal_memory_poll(&hal_devices[0]);
  cr_expect_eq(live(), 0);
  cr_expect_eq(program.errors, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_custom, it_is_set_before_the_first_allocation_only) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_memory_release(take(100));
  cr_expect_eq(hal_memory_set_allocator(&calls), HAL_FAILED_PRECONDITION);
  cr_expect_not_null(strstr(hal_error_message(), "before the first allocation"), "%s", hal_error_message());
  const hal_memory_allocator_t half = {.struct_size = sizeof half, .allocate = allocate};
  cr_expect_eq(hal_memory_set_allocator(&half), HAL_INVALID_ARGUMENT);
  cr_assert_eq(double_close(), 0);
}

Test(memory_custom, the_limit_counts_its_memory) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_set_allocator(&calls), HAL_OK);
  cr_assert_eq(hal_memory_set_limit(0, MIB), HAL_OK);
  hal_block_t *block = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 2 * MIB, &block), HAL_RESOURCE_EXHAUSTED);
  cr_expect_eq(live(), 0, "the memory was returned");
  cr_assert_eq(double_close(), 0);
}

/* ---- invalid results ---- */

static void expect_error(hal_status_t expected, const char *part) {
  hal_block_t *block = NULL;
  cr_expect_eq(hal_memory_allocate(0, NULL, 1000, &block), expected);
  cr_expect_null(block);
  cr_expect_not_null(strstr(hal_error_message(), part), "no \"%s\" in: %s", part, hal_error_message());
}

static hal_status_t pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  for (size_t i = 0; i < 64; i++) {
    const char *const base = program.live[i].address;
    if (!base || (const char *)ptr < base || (const char *)ptr >= base + program.live[i].size) continue;
    out_info->device = 0;
    return HAL_OK;
  }
  return HAL_NOT_FOUND;
}

static void check_invalid_results(void) {
  static _Alignas(4096) char foreign[8192];
  program.lies = 1;
  program.returns = NULL;
  expect_error(HAL_RESOURCE_EXHAUSTED, "the program's allocator returned NULL");
  cr_expect_eq(double_stats(0).num_ooms, 1);
  const int before = program.releases;
  program.returns = foreign + 8;
  expect_error(HAL_INVALID_ARGUMENT, "align memory");
  cr_expect_eq(program.releases, before + 1, "it was returned");
  program.returns = foreign;
  expect_error(HAL_INVALID_ARGUMENT, "not memory of that device");
  program.lies = 0;
  hal_block_t *block = take(1000);
  program.lies = 1;
  program.returns = hal_memory_block_address(block);
  expect_error(HAL_INVALID_ARGUMENT, "overlaps memory that is in use");
}

/* The release of the last lie frees the block's memory, as that allocator requests: so the allocator records it. */
static void lying_release(void *user_data, void *address, size_t size, int32_t device, void *stream) {
  if (program.lies)
    program.releases++;
  else
    release(user_data, address, size, device, stream);
}

static const hal_memory_allocator_t liar = {
    .struct_size = sizeof liar, .allocate = allocate, .release = lying_release, .user_data = &program};

static void provide_pointer_info(void) {
  static uint64_t provided[HAL_SLOT_COUNT / 64 + 1];
  hal_plugin_api_t *const api = &hal_registry.plugins[0].api;
  memcpy(provided, api->provided, sizeof provided);
  provided[HAL_SLOT_memory_pointer_info / 64] |= UINT64_C(1) << (HAL_SLOT_memory_pointer_info % 64);
  api->provided = provided;
  api->memory_pointer_info = pointer_info;
}

Test(memory_custom, an_invalid_result_is_one_error_and_nothing_is_lost) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  provide_pointer_info();
  cr_assert_eq(hal_memory_set_allocator(&liar), HAL_OK);
  check_invalid_results();
  program.lies = 0;
  cr_expect_eq(double_stats(0).allocation[0].current, 1);
  cr_assert_eq(double_close(), 0);
}

Test(memory_custom, an_invalid_result_for_a_pool_is_one_error_and_nothing_is_lost) {
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  provide_pointer_info();
  cr_assert_eq(hal_memory_pool_create_from(0, HAL_MEMORY_POOL_NO_SPLIT, &liar, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  check_invalid_results();
  program.lies = 0;
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  cr_expect_eq(current(double_stats(0).reserved_bytes), 2 * MIB);
  hal_memory_pool_release(pool);
  cr_assert_eq(double_close(), 0);
  cr_expect_eq(live(), 0);
}

/* ---- a pool ---- */

Test(memory_custom, a_pool_allocates_its_segments_and_returns_them) {
  hal_memory_pool_t *pool = NULL;
  hal_block_t *own, *blocks[3];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  own = take(100);
  cr_assert_eq(hal_memory_pool_create_from(0, 0, &calls, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  blocks[0] = take(100), blocks[1] = take(200), blocks[2] = take(30 * MIB);
  cr_expect_eq(program.calls, 2, "two small blocks share a segment");
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  hal_memory_release(blocks[2]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(live(), 2, "a pool keeps its segments");
  hal_memory_release(blocks[0]);
  hal_memory_pool_release(pool);
  cr_expect_eq(live(), 1, "the unused segment was returned");
  hal_block_t *other = take(100);
  cr_expect_eq(program.calls, 2, "other allocations do not use the pool's memory");
  cr_expect_eq(double_.live_count, 1u);
  hal_memory_release(blocks[1]);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(live(), 0);
  hal_memory_release(own), hal_memory_release(other);
  cr_expect_eq(program.errors, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_custom, memory_that_is_used_at_the_end_is_returned_then) {
  hal_memory_pool_t *pool = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_pool_create_from(0, 0, &calls, &pool), HAL_OK);
  cr_assert_eq(hal_memory_pool_begin(pool, NULL), HAL_OK);
  take(100);
  cr_assert_eq(hal_memory_pool_end(pool, NULL), HAL_OK);
  hal_memory_pool_release(pool);
  cr_expect_eq(live(), 1);
  cr_assert_eq(double_close(), 0);
  cr_expect_eq(live(), 0);
}

Test(memory_custom, raw_memory_is_the_plugins) {
  void *address = NULL;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  cr_assert_eq(hal_memory_raw_allocate(0, 5000, &address), HAL_OK);
  cr_expect_eq(double_.live_count, 1u);
  cr_expect_eq(current(double_stats(0).reserved_bytes), 0u);
  cr_assert_eq(hal_memory_raw_free(0, address), HAL_OK);
  cr_expect_eq(hal_memory_raw_free(0, address), HAL_INVALID_ARGUMENT);
  cr_expect_eq(hal_memory_raw_allocate(0, 0, &address), HAL_INVALID_ARGUMENT);
  cr_assert_eq(double_close(), 0);
}
