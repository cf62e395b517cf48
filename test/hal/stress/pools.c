/* stress/pools.c: four threads allocate, use and release blocks of a stream while private pools of it begin, end and
 * are released, and the cache is emptied. A block may outlive its pool, and a pool may end while a request is in the
 * plugin. At the end all memory must be freed. A plain program for the sanitizers: Criterion forks. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "../memory/memory_double.h"
#include "timed.h"

enum { THREADS = 4, SLOTS = 32 };

static _Atomic(hal_block_t *) slots[SLOTS];
static atomic_int stop;
static atomic_long failures, blocks, pools;

#define expect(good) expect_at((good), __LINE__)
static void expect_at(int good, int line) {
  if (good) return;
  if (!atomic_fetch_add(&failures, 1)) fprintf(stderr, "line %d fails first: %s\n", line, hal_error_message());
}

/* Small and large blocks, which use separate pools. */
static size_t size_of(uint64_t r) { return r % 4 ? 1 + (r >> 8) % 8192 : (1u << 20) + (r >> 8) % (1u << 20); }

static void use(hal_block_t *block, uint64_t r) {
  hal_block_t *found = NULL;
  const size_t size = hal_memory_block_size(block);
  char *const bytes = hal_memory_block_address(block);
  bytes[0] = bytes[size - 1] = (char)r;
  expect(hal_memory_block_device(block) == 0);
  if (r % 3 == 0) expect(hal_memory_record_stream(block, double_stream(0, 2)) == HAL_OK);
  if (r % 5 == 0) expect(hal_memory_find_block(bytes + size / 2, &found) == HAL_OK && found == block);
}

static void *allocate(void *data) {
  uint64_t state = UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)((intptr_t)data + 1);
  while (!atomic_load(&stop)) {
    const uint64_t r = timed_random(&state);
    hal_block_t *block = NULL;
    expect(hal_memory_allocate(0, double_stream(0, 1), size_of(r), &block) == HAL_OK);
    if (block) use(block, r >> 16);
    atomic_fetch_add(&blocks, 1);
    hal_memory_release(atomic_exchange(&slots[(r >> 32) % SLOTS], block));
    if (r % 64 == 0) expect(hal_memory_empty_cache(0) == HAL_OK);
    if (r % 8 == 0) double_finish(double_stream(0, 2));
  }
  return NULL;
}

/* Begins, uses and ends a pool. Other threads allocate from it meanwhile, since it is the stream that is routed to
   it. */
static void play_pool(uint64_t r) {
  hal_memory_pool_t *pool = NULL;
  hal_block_t *own = NULL;
  hal_stream_t *const stream = double_stream(0, 1);
  expect(hal_memory_pool_create(0, &pool) == HAL_OK);
  expect(hal_memory_pool_begin(pool, stream) == HAL_OK);
  if (r % 2) expect(hal_memory_allocate(0, stream, size_of(r), &own) == HAL_OK);
  if (r % 4 == 0) expect(hal_memory_pool_allocate(pool, stream, size_of(r >> 8), &own) == HAL_OK);
  if (r % 8) expect(hal_memory_pool_end(pool, stream) == HAL_OK); /* else its release ends it */
  hal_memory_pool_release(pool);
  hal_memory_release(own);
  atomic_fetch_add(&pools, 1);
}

int main(void) {
  pthread_t threads[THREADS - 1];
  const double end = timed_end();
  uint64_t state = 4711;
  if (double_open(1, 0)) return 1;
  for (intptr_t i = 0; i < THREADS - 1; i++)
    if (pthread_create(&threads[i], NULL, allocate, (void *)i)) return 1;
  while (timed_now() < end) play_pool(timed_random(&state));
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS - 1; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < SLOTS; i++) hal_memory_release(atomic_exchange(&slots[i], NULL));
  double_finish(double_stream(0, 2));
  hal_memory_empty_cache(0);
  const hal_memory_stats_t stats = double_stats(0);
  const long left = (long)(stats.active_bytes[0].current + stats.reserved_bytes[0].current);
  const long wrong = double_close();
  printf("%ld pools, %ld blocks: %ld bytes left, %ld failures, %ld wrong at the end\n", atomic_load(&pools),
         atomic_load(&blocks), left, atomic_load(&failures), wrong);
  return left || atomic_load(&failures) || wrong;
}
