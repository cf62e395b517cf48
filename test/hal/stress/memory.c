/* stress/memory.c: eight threads on one allocator, for the thread sanitizer: allocations of all kinds, released by
 * other threads, used on other streams, adopted and deferred, while the cache is emptied, addresses are looked up, the
 * history starts, stops and is read, settings change, and streams make progress. At the end all memory must be freed.
 * A plain program: Criterion forks. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "../memory/memory_double.h"
#include "recorded.h"

enum { THREADS = 8, SLOTS = 64, STREAMS = 4 };

static _Atomic(hal_block_t *) slots[SLOTS];
static atomic_long adopted, freed, failures;
static long operations = 100000;

static uint64_t next_random(uint64_t *state) {
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

static void count_free(void *data) {
  (void)data;
  atomic_fetch_add(&freed, 1);
}

static size_t size_of(uint64_t r) { return r % 8 == 0 ? (size_t)(r >> 8) % (4u << 20) : (size_t)(r >> 8) % 20000; }

/* Creates a block, in most cases by allocation. */
static hal_block_t *make(uint64_t r) {
  static char memory[4096];
  hal_block_t *block = NULL;
  hal_stream_t *stream = double_stream(0, (int)((r >> 4) % STREAMS));
  if (r % 16 == 0) {
    if (hal_memory_adopt(0, stream, memory + (r >> 8) % 2048, 1 + (r >> 20) % 2048, count_free, NULL, &block)) {
      atomic_fetch_add(&failures, 1);
    } else {
      atomic_fetch_add(&adopted, 1);
    }
  } else if (hal_memory_allocate(0, stream, size_of(r), &block)) {
    atomic_fetch_add(&failures, 1);
  }
  return block;
}

static void other_calls(uint64_t r) {
  int32_t device;
  switch (r % 512) {
    case 0:
      if (hal_memory_empty_cache(0)) atomic_fetch_add(&failures, 1);
      break;
    case 1:
      atomic_fetch_add(&adopted, 1);
      if (hal_memory_defer(0, double_stream(0, (int)((r >> 9) % STREAMS)), count_free, NULL))
        atomic_fetch_add(&failures, 1);
      break;
    case 2:
      if (double_stats(0).allocated_bytes[0].current < 0) atomic_fetch_add(&failures, 1);
      break;
    case 4:
      if (record(hal_memory_history_start, 0, r >> 9)) atomic_fetch_add(&failures, 1);
      break;
    case 5:
      if (r >> 9 & 1) atomic_fetch_add(&failures, read_history(hal_memory_history_read, 0));
      break;
    case 6:
      if ((r >> 9) % 8 == 0 && hal_memory_history_stop(0)) atomic_fetch_add(&failures, 1);
      break;
    case 7:
      if (hal_memory_configure(r >> 9 & 1 ? "roundup_power2_divisions:4"
                                          : "roundup_power2_divisions:0,max_split_size_mb:30"))
        atomic_fetch_add(&failures, 1);
      break;
    case 3:
      hal_memory_find(&slots, &device);
      break;
    default:
      if (r % 8 == 0) double_finish(double_stream(0, (int)((r >> 9) % STREAMS)));
  }
}

static void *work(void *data) {
  uint64_t state = 0x9E3779B97F4A7C15u * (uint64_t)((intptr_t)data + 1);
  for (long i = 0; i < operations; i++) {
    const uint64_t r = next_random(&state);
    hal_block_t *block = make(r);
    if (block && r % 5 == 0) {
      hal_stream_t *other = double_stream(0, (int)((r >> 12) % STREAMS));
      double_enqueue(other, hal_memory_block_address(block), hal_memory_block_size(block));
      if (hal_memory_record_stream(block, other)) atomic_fetch_add(&failures, 1);
    }
    if (block && hal_memory_block_size(block) && r % 16) *(char *)hal_memory_block_address(block) = (char)r;
    hal_memory_release(atomic_exchange(&slots[(r >> 32) % SLOTS], block));
    other_calls(r >> 16);
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  if (argc > 1) operations = atol(argv[1]);
  if (double_open(1, 0)) return 1;
  for (intptr_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, work, (void *)i)) return 1;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < SLOTS; i++) hal_memory_release(atomic_exchange(&slots[i], NULL));
  hal_memory_empty_cache(0);
  const hal_memory_stats_t stats = double_stats(0);
  const long left =
      (long)(stats.active_bytes[0].current + stats.reserved_bytes[0].current + stats.inactive_split[0].current);
  const long unfreed = atomic_load(&adopted) - atomic_load(&freed), wrong = double_close();
  const long kept = atomic_load(&stacks);
  printf(
      "%d threads, %ld operations each: %ld bytes left, %ld adopted not freed, %ld stacks, %ld failures, %ld wrong at "
      "the end\n",
      THREADS, operations, left, unfreed, kept, atomic_load(&failures), wrong);
  return left || unfreed || kept || atomic_load(&failures) || wrong;
}
