/* memory_model.c: the caching allocator compared with a reference model, and the rules of splitting and merging. */
#include <criterion/criterion.h>

#include "memory_double.h"

#define MIB ((size_t)1 << 20)

TestSuite(memory_model, .timeout = 60);

static hal_block_t *take(size_t size) {
  hal_block_t *block = NULL;
  cr_assert_eq(hal_memory_allocate(0, NULL, size, &block), HAL_OK, "%s", hal_error_message());
  return block;
}

/* xorshift64*, so that a failure is reproducible. */
static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 2685821657736338717u;
}

static size_t random_size(void) {
  const uint64_t shape = next_random() % 10, r = next_random();
  if (shape == 0) return 0;
  if (shape < 6) return 1 + r % 4096;
  if (shape < 8) return 1 + r % MIB;
  if (shape < 9) return MIB + r % (9 * MIB);
  return 10 * MIB + r % (6 * MIB);
}

enum { LIVE = 200, STEPS = 30000, MODEL_STREAMS = 3 };

typedef struct model_block_s {
  hal_block_t *block;
  unsigned char *address;
  size_t size;
  unsigned char tag;
} model_block_t;

/* Marks both ends of a block, like data of a user. */
static void mark(const model_block_t *m) {
  if (m->size) m->address[0] = m->address[m->size - 1] = m->tag;
}

static void check_mark(const model_block_t *m) {
  if (!m->size) return;
  cr_assert(m->address[0] == m->tag && m->address[m->size - 1] == m->tag, "another block wrote into this one");
}

static void check_new(const model_block_t *live, const model_block_t *m) {
  cr_assert_eq(hal_memory_block_size(m->block), m->size);
  cr_assert_eq((uintptr_t)m->address % 512, 0u, "aligned to 512 bytes");
  cr_assert_eq(m->address == NULL, m->size == 0, "only size 0 returns NULL");
  for (int i = 0; i < LIVE && m->size; i++) {
    if (!live[i].block || !live[i].size) continue;
    cr_assert(m->address + m->size <= live[i].address || live[i].address + live[i].size <= m->address, "no overlap");
  }
}

/* The statistics must equal those of the model and those of the device. */
static void check_stats(const model_block_t *live) {
  int64_t count = 0, bytes = 0, rounded = 0;
  const hal_memory_stats_t s = double_stats(0);
  for (int i = 0; i < LIVE; i++) {
    if (!live[i].block || !live[i].size) continue;
    count++, bytes += (int64_t)live[i].size, rounded += (int64_t)((live[i].size + 511) / 512 * 512);
  }
  cr_assert_eq(s.allocation[HAL_POOL_ALL].current, count);
  cr_assert_eq(s.active[HAL_POOL_ALL].current, count, "nothing is pending");
  cr_assert_eq(s.requested_bytes[HAL_POOL_ALL].current, bytes);
  cr_assert_geq(s.allocated_bytes[HAL_POOL_ALL].current, rounded);
  cr_assert_eq(s.active_bytes[HAL_POOL_ALL].current, s.allocated_bytes[HAL_POOL_ALL].current);
  cr_assert_eq(s.segment[HAL_POOL_ALL].current, (int64_t)double_.live_count);
  cr_assert_eq(s.reserved_bytes[HAL_POOL_ALL].current, (int64_t)double_.live_bytes);
  cr_assert_leq(s.allocated_bytes[HAL_POOL_ALL].current + s.inactive_split_bytes[HAL_POOL_ALL].current,
                s.reserved_bytes[HAL_POOL_ALL].current);
  const hal_stat_t *const all[] = {s.allocation,      s.segment,        s.active,          s.inactive_split,
                                   s.allocated_bytes, s.reserved_bytes, s.requested_bytes, s.inactive_split_bytes};
  for (size_t q = 0; q < sizeof(all) / sizeof(all[0]); q++) {
    for (int p = 0; p < HAL_POOL_COUNT; p++) {
      cr_assert_eq(all[q][p].allocated - all[q][p].freed, all[q][p].current, "quantity %zu pool %d", q, p);
      cr_assert_geq(all[q][p].peak, all[q][p].current);
    }
    cr_assert_eq(all[q][0].current, all[q][1].current + all[q][2].current);
  }
}

Test(memory_model, thousands_of_random_operations_agree_with_the_model) {
  static model_block_t live[LIVE];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (int step = 0; step < STEPS; step++) {
    model_block_t *m = &live[next_random() % LIVE];
    if (m->block) {
      check_mark(m);
      hal_memory_release(m->block);
      m->block = NULL;
    } else {
      m->size = random_size();
      m->tag = (unsigned char)step;
      hal_block_t *block = NULL;
      hal_stream_t *stream = double_stream(0, (int)(next_random() % MODEL_STREAMS));
      cr_assert_eq(hal_memory_allocate(0, stream, m->size, &block), HAL_OK, "%s", hal_error_message());
      m->block = block;
      m->address = hal_memory_block_address(block);
      model_block_t fresh = *m;
      m->block = NULL; /* not adjacent to itself */
      check_new(live, &fresh);
      m->block = block;
      mark(m);
    }
    if (step % 64 == 0) check_stats(live);
    if (step % 5000 == 4999) cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  }
  for (int i = 0; i < LIVE; i++) {
    if (live[i].block) check_mark(&live[i]);
    hal_memory_release(live[i].block);
    live[i].block = NULL;
  }
  check_stats(live);
  const hal_memory_stats_t s = double_stats(0);
  cr_assert_eq(s.inactive_split[HAL_POOL_ALL].current, 0, "all free pieces were joined to whole segments");
  cr_assert_eq(s.inactive_split_bytes[HAL_POOL_ALL].current, 0);
  cr_assert_eq(hal_memory_empty_cache(-1), HAL_OK);
  cr_assert_eq(double_.live_bytes, 0u, "all memory went back to the plugin");
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, segments_have_torchs_sizes) {
  static const struct {
    size_t request, segment;
  } cases[] = {{1, 2 * MIB},         {MIB, 2 * MIB},       {MIB + 1, 20 * MIB}, {10 * MIB - 512, 20 * MIB},
               {10 * MIB, 10 * MIB}, {11 * MIB, 12 * MIB}, {64 * MIB, 64 * MIB}};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    hal_block_t *block = take(cases[i].request);
    cr_expect_eq(double_.live_bytes, cases[i].segment, "a request of %zu", cases[i].request);
    hal_memory_release(block);
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  }
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, released_memory_is_reused_by_its_stream_without_a_call_of_the_plugin) {
  static const size_t sizes[] = {1, 512, 100000, 2 * MIB, 64 * MIB};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    hal_block_t *block = take(sizes[i]);
    void *address = hal_memory_block_address(block);
    double_enqueue(double_stream(0, 0), address, sizes[i]); /* still running: correct, because the stream keeps the
                                                               order */
    hal_memory_release(block);
    const int calls = double_.calls[HAL_SLOT_memory_alloc];
    block = take(sizes[i]);
    cr_expect_eq(hal_memory_block_address(block), address);
    cr_expect_eq(double_.calls[HAL_SLOT_memory_alloc], calls);
    hal_memory_release(block);
  }
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, the_smallest_free_block_that_fits_is_taken) {
  hal_block_t *hole[3], *wall[3];
  static const size_t sizes[] = {4096, 1024, 2048};
  cr_assert_eq(double_open(1, 0), HAL_OK);
  void *address[3];
  for (int i = 0; i < 3; i++) {
    hole[i] = take(sizes[i]), wall[i] = take(512);
    address[i] = hal_memory_block_address(hole[i]);
  }
  for (int i = 0; i < 3; i++) hal_memory_release(hole[i]);
  hal_block_t *a = take(2048), *b = take(700), *c = take(4000), *d = take(512);
  cr_expect_eq(hal_memory_block_address(a), address[2], "2048 of 4096, 1024, 2048");
  cr_expect_eq(hal_memory_block_address(b), address[1], "700 bytes take 1024");
  cr_expect_eq(hal_memory_block_address(c), address[0]);
  hal_memory_release(a), hal_memory_release(b), hal_memory_release(c), hal_memory_release(d);
  for (int i = 0; i < 3; i++) hal_memory_release(wall[i]);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, the_best_fit_among_large_blocks_is_taken_too) {
  hal_block_t *hole[4], *wall[4];
  /* The first three blocks are in one bin; the last block is released last and fits any request. */
  static const size_t sizes[] = {3 * MIB, 3 * MIB + 8192, 3 * MIB + 24576, 6 * MIB};
  void *address[4];
  cr_assert_eq(double_open(1, 0), HAL_OK);
  for (int i = 0; i < 4; i++) {
    hole[i] = take(sizes[i]), wall[i] = take(MIB + 512);
    address[i] = hal_memory_block_address(hole[i]);
  }
  for (int i = 0; i < 4; i++) hal_memory_release(hole[i]);
  hal_block_t *a = take(3 * MIB + 4096), *b = take(3 * MIB + 4096), *c = take(3 * MIB + 4096);
  cr_expect_eq(hal_memory_block_address(a), address[1]);
  cr_expect_eq(hal_memory_block_address(b), address[2]);
  cr_expect_neq(hal_memory_block_address(c), address[0], "3 MiB are too small");
  hal_memory_release(c);
  hal_memory_release(a), hal_memory_release(b);
  for (int i = 0; i < 4; i++) hal_memory_release(wall[i]);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, large_remainders_of_at_most_1_mib_are_not_split_off) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *block = take(11 * MIB); /* of a segment of 12 MiB, 1 MiB remains */
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_LARGE].current, (int64_t)(12 * MIB));
  hal_memory_release(block);
  block = take(11 * MIB - 512);
  cr_expect_eq(double_stats(0).allocated_bytes[HAL_POOL_LARGE].current, (int64_t)(11 * MIB - 512));
  cr_expect_eq(double_stats(0).inactive_split[HAL_POOL_LARGE].current, 1);
  hal_memory_release(block);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, resets_affect_peaks_and_totals_only) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *a = take(1000), *b = take(3000);
  hal_memory_release(b);
  cr_expect_eq(double_stats(0).requested_bytes[0].peak, 4000);
  cr_assert_eq(hal_memory_reset_peak_stats(0), HAL_OK);
  cr_expect_eq(double_stats(0).requested_bytes[0].peak, 1000);
  cr_assert_eq(hal_memory_reset_accumulated_stats(0), HAL_OK);
  hal_memory_release(a);
  const hal_memory_stats_t s = double_stats(0);
  cr_expect_eq(s.allocation[0].allocated, 0);
  cr_expect_eq(s.allocation[0].freed, 1);
  cr_expect_eq(s.active[0].freed, 1);
  cr_expect_eq(s.allocation[0].current, 0);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, a_second_release_is_reported_and_ignored) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *keep = take(512), *block = take(512), *wall = take(512);
  hal_memory_release(block);
  hal_memory_release(block);
  hal_memory_release(NULL);
  cr_expect_eq(double_stats(0).allocation[0].current, 2);
  hal_memory_release(keep), hal_memory_release(wall);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, an_address_leads_to_its_device) {
  int32_t device = -7;
  char host[16];
  cr_assert_eq(double_open(2, 0), HAL_OK);
  hal_block_t *block[2] = {NULL, NULL};
  for (int32_t i = 0; i < 2; i++) cr_assert_eq(hal_memory_allocate(i, NULL, 5000, &block[i]), HAL_OK);
  for (int32_t i = 0; i < 2; i++) {
    cr_expect_eq(hal_memory_block_device(block[i]), i);
    cr_expect_eq(hal_memory_find((char *)hal_memory_block_address(block[i]) + 4999, &device), HAL_OK);
    cr_expect_eq(device, i);
  }
  device = -7;
  cr_expect_eq(hal_memory_find(host, &device), HAL_NOT_FOUND);
  cr_expect_eq(device, -7, "must be unchanged on failure");
  for (int32_t i = 0; i < 2; i++) hal_memory_release(block[i]);
  cr_assert_eq(double_close(), 0);
}

Test(memory_model, adopted_ranges_that_overlap_are_all_found) {
  static char memory[4096];
  hal_block_t *block[40];
  int32_t device = -1;
  cr_assert_eq(double_open(1, 0), HAL_OK);
  hal_block_t *around = NULL;
  cr_assert_eq(hal_memory_adopt(0, NULL, memory, sizeof(memory), NULL, NULL, &around), HAL_OK);
  for (int i = 0; i < 40; i++) {
    char *begin = memory + (i * 37) % 1000;
    cr_assert_eq(hal_memory_adopt(0, NULL, begin, (size_t)(50 + i * 40), NULL, NULL, &block[i]), HAL_OK);
  }
  for (int i = 0; i < 40; i++) {
    const char *begin = memory + (i * 37) % 1000;
    cr_expect_eq(hal_memory_find(memory + 4095, &device), HAL_OK, "the range around all others");
    cr_expect_eq(hal_memory_find(begin + 50 + i * 40 - 1, &device), HAL_OK, "end of range %d", i);
    hal_memory_release(block[i]);
  }
  hal_memory_release(around);
  for (int i = 0; i < 40; i++) cr_expect_eq(hal_memory_find(memory + i * 100, &device), HAL_NOT_FOUND);
  cr_assert_eq(double_close(), 0);
}
