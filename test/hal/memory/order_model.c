/* order_model.c: random calls of the allocator, streams, events and private pools, compared with a reference model of
 * the order of work. Memory may go to a new owner only if all earlier work that uses it is done, or is done before what
 * the new owner queues; memory of a private pool to allocations of that pool only. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <criterion/criterion.h>

#include "memory_virtual.h"

TestSuite(order_model, .timeout = 60);

enum { LIVE = 48, STREAMS = 4, EVENTS = 6, POOLS = 2, STEPS = 100000, USES = 4096, RANGES = 4096 };

typedef struct owner_s {
  hal_block_t *block;
  const char *address;
  size_t size;
  int stream;
  unsigned others; /* streams whose work uses the block, without hal_memory_record_stream */
} owner_t;

typedef struct range_s {
  const char *begin, *end;
  int pool;
} range_t;

static struct {
  uint64_t random;
  int forgets; /* the program has a defect: some blocks are released while other streams use them */
  owner_t live[LIVE];
  double_use_t uses[USES];
  int use_count;
  struct {
    hal_event_t *event;
    const hal_plugin_stream_t *stream; /* NULL: not recorded */
    uint64_t mark;
  } events[EVENTS];
  hal_memory_pool_t *pools[POOLS];
  int route[STREAMS];     /* the pool of a stream's allocations; -1: none */
  range_t ranges[RANGES]; /* memory that private pools had */
  int range_count;
  int conflicts, reused, waited; /* unordered owners; memory whose last use was not done; ... but was ordered */
} model;

static uint32_t below(uint32_t bound) {
  model.random ^= model.random >> 12, model.random ^= model.random << 25, model.random ^= model.random >> 27;
  return (uint32_t)((model.random * UINT64_C(2685821657736338717)) >> 33) % bound;
}

static hal_stream_t *stream_at(int i) { return double_stream(0, i); }
static hal_plugin_stream_t *handle_at(int i) { return stream_at(i)->direct.handle; }
static int overlaps(const char *a, size_t a_size, const char *b, size_t b_size) {
  return a < b + b_size && b < a + a_size;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void forget_done_uses(void) {
  int kept = 0;
  for (int i = 0; i < model.use_count; i++)
    if (model.uses[i].stream->done < model.uses[i].mark) model.uses[kept++] = model.uses[i];
  model.use_count = kept;
}

/* Checks the order of earlier work and what the stream queues next. */
static void check_order(const owner_t *owner) {
  const hal_plugin_stream_t *const stream = handle_at(owner->stream);
  forget_done_uses();
  for (int i = 0; i < model.use_count; i++) {
    const double_use_t *const use = &model.uses[i];
    if (!overlaps(use->begin, use->size, owner->address, owner->size)) continue;
    model.reused++;
    if (use->stream == stream) continue;
    if (stream->after.of[double_number(use->stream)] >= use->mark)
      model.waited++;
    else
      model.conflicts++;
  }
}

static void check_owners(const owner_t *owner) {
  for (int i = 0; i < LIVE; i++) {
    const owner_t *const other = &model.live[i];
    if (other != owner && other->block)
      cr_assert(!overlaps(other->address, other->size, owner->address, owner->size), "a block has two owners");
  }
}

static void check_pools(const owner_t *owner) {
  const int pool = model.route[owner->stream];
  for (int i = 0; i < model.range_count; i++) {
    const range_t *const range = &model.ranges[i];
    if (range->pool != pool)
      cr_assert(!overlaps(range->begin, (size_t)(range->end - range->begin), owner->address, owner->size),
                "memory of pool %d in an allocation of pool %d", range->pool, pool);
  }
  if (pool >= 0 && model.range_count < RANGES)
    model.ranges[model.range_count++] = (range_t){owner->address, owner->address + owner->size, pool};
}

static void forget_ranges(int pool) {
  int kept = 0;
  for (int i = 0; i < model.range_count; i++)
    if (model.ranges[i].pool != pool) model.ranges[kept++] = model.ranges[i];
  model.range_count = kept;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void allocate(owner_t *owner) {
  static const size_t sizes[] = {1, 512, 4000, 100000, (size_t)1 << 20, (size_t)3 << 20};
  const size_t size = sizes[below(6)];
  *owner = (owner_t){.size = size - (below(2) ? 0 : below((uint32_t)size)), .stream = (int)below(STREAMS)};
  const hal_status_t status = hal_memory_allocate(0, stream_at(owner->stream), owner->size, &owner->block);
  cr_assert_eq(status, HAL_OK, "%s", hal_error_message());
  owner->address = hal_memory_block_address(owner->block);
  check_owners(owner);
  check_order(owner);
  check_pools(owner);
}

static void use(owner_t *owner, int stream) {
  if (model.use_count == USES) forget_done_uses();
  cr_assert_lt(model.use_count, USES);
  double_enqueue(stream_at(stream), owner->address, owner->size);
  model.uses[model.use_count++] = (double_use_t){
      .stream = handle_at(stream), .mark = handle_at(stream)->queued, .begin = owner->address, .size = owner->size};
  if (stream == owner->stream) return;
  if (below(2))
    cr_assert_eq(hal_memory_record_stream(owner->block, stream_at(stream)), HAL_OK);
  else
    owner->others |= 1u << stream;
}

/* The owner's stream waits for the others by an event that is destroyed before its work is done. */
static void join(const owner_t *owner, int stream) {
  hal_event_t *event = NULL;
  cr_assert_eq(hal_event_create(0, 0, &event), HAL_OK);
  cr_assert_eq(hal_event_record(event, stream_at(stream)), HAL_OK);
  cr_assert_eq(hal_stream_wait_event(stream_at(owner->stream), event), HAL_OK);
  hal_event_destroy(event);
}

static void release(owner_t *owner) {
  for (int i = 0; i < STREAMS; i++)
    if (owner->others & 1u << i && !(model.forgets && below(2))) join(owner, i);
  hal_memory_release(owner->block);
  owner->block = NULL;
}

static void check_event(int i) {
  const hal_plugin_stream_t *const stream = model.events[i].stream;
  const hal_status_t expected = stream && stream->done < model.events[i].mark ? HAL_NOT_READY : HAL_OK;
  cr_assert_eq(hal_event_query(model.events[i].event), expected, "event %d: %s", i, hal_error_message());
}

static void change_event(int i) {
  const int stream = (int)below(STREAMS);
  hal_event_t *const event = model.events[i].event;
  switch (below(12)) {
    case 0:
    case 1:
    case 2:
      cr_assert_eq(hal_event_record(event, stream_at(stream)), HAL_OK);
      model.events[i].stream = handle_at(stream), model.events[i].mark = handle_at(stream)->queued;
      return;
    case 3:
    case 4:
      cr_assert_eq(hal_stream_wait_event(stream_at(stream), event), HAL_OK);
      return;
    case 5:
      cr_assert_eq(hal_event_synchronize(event), HAL_OK);
      cr_assert(!model.events[i].stream || model.events[i].stream->done >= model.events[i].mark, "not waited for");
      return;
    case 6:
    case 7:
      hal_event_destroy(event);
      model.events[i].stream = NULL;
      cr_assert_eq(hal_event_create(0, 0, &model.events[i].event), HAL_OK);
      return;
    default:
      check_event(i);
  }
}

static void change_pool(int i) {
  const int stream = (int)below(STREAMS);
  if (model.route[stream] >= 0) {
    cr_assert_eq(hal_memory_pool_end(model.pools[model.route[stream]], stream_at(stream)), HAL_OK);
    model.route[stream] = -1;
  } else if (below(4)) {
    cr_assert_eq(hal_memory_pool_begin(model.pools[i], stream_at(stream)), HAL_OK);
    model.route[stream] = i;
  } else {
    for (int k = 0; k < STREAMS; k++)
      if (model.route[k] == i) return;
    hal_memory_pool_release(model.pools[i]); /* its memory joins that of the streams */
    forget_ranges(i);
    cr_assert_eq(hal_memory_pool_create(0, &model.pools[i]), HAL_OK);
  }
}

static void check_stream(int i) {
  const hal_plugin_stream_t *const handle = handle_at(i);
  const hal_status_t expected = handle->done < handle->queued ? HAL_NOT_READY : HAL_OK;
  cr_assert_eq(hal_stream_query(stream_at(i)), expected, "stream %d: %s", i, hal_error_message());
  if (below(4)) return;
  cr_assert_eq(hal_stream_synchronize(stream_at(i)), HAL_OK);
  cr_assert_eq(handle->done, handle->queued);
}

static void step(void) {
  owner_t *const owner = &model.live[below(LIVE)];
  const uint32_t kind = below(100);
  if (kind < 40 && !owner->block)
    allocate(owner);
  else if (kind < 30 && owner->block)
    release(owner);
  else if (kind < 75 && owner->block)
    use(owner, (int)below(STREAMS));
  else if (kind < 88)
    for (uint32_t i = below(3); i > 0; i--) double_advance(stream_at((int)below(STREAMS)));
  else if (kind < 95)
    change_event((int)below(EVENTS));
  else if (kind < 98)
    change_pool((int)below(POOLS));
  else if (kind < 99)
    check_stream((int)below(STREAMS));
  else if (!below(20))
    cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
}

static void begin(uint64_t seed, int forgets) {
  model.random = seed, model.forgets = forgets;
  for (int i = 0; i < EVENTS; i++) cr_assert_eq(hal_event_create(0, 0, &model.events[i].event), HAL_OK);
  for (int i = 0; i < POOLS; i++) cr_assert_eq(hal_memory_pool_create(0, &model.pools[i]), HAL_OK);
  for (int i = 0; i < STREAMS; i++) model.route[i] = -1;
}

static void end(void) {
  for (int i = 0; i < STREAMS; i++)
    if (model.route[i] >= 0) cr_assert_eq(hal_memory_pool_end(model.pools[model.route[i]], stream_at(i)), HAL_OK);
  for (int i = 0; i < LIVE; i++)
    if (model.live[i].block) release(&model.live[i]);
  for (int i = 0; i < POOLS; i++) hal_memory_pool_release(model.pools[i]);
  for (int i = 0; i < EVENTS; i++) hal_event_destroy(model.events[i].event);
  for (int i = 0; i < STREAMS; i++) cr_assert_eq(hal_stream_synchronize(stream_at(i)), HAL_OK);
  cr_assert_eq(hal_memory_empty_cache(0), HAL_OK);
  cr_expect_eq(double_stats(0).active[0].current, 0);
  cr_expect_eq(double_stats(0).reserved_bytes[0].current, 0);
}

static void run(uint64_t granularity, uint64_t seed) {
  cr_assert_eq(granularity ? virtual_open(1, granularity) : double_open(1, 0), HAL_OK);
  begin(seed, 0);
  for (int i = 0; i < STEPS; i++) step();
  end();
  cr_expect_eq(model.conflicts, 0, "memory went to owners whose work is not ordered after the earlier work");
  cr_expect_gt(model.reused, 100, "memory is reused while its last use is not done: %d", model.reused);
  cr_expect_gt(model.waited, 10, "the order of streams is made by events: %d", model.waited);
  cr_expect_eq(virtual_close(), 0);
}

Test(order_model, random_calls_agree_with_the_model) { run(0, UINT64_C(88172645463325252)); }

Test(order_model, with_another_seed) { run(0, UINT64_C(2463534242)); }

Test(order_model, with_expandable_segments) { run((uint64_t)64 << 10, UINT64_C(362436069)); }

Test(order_model, a_program_that_releases_blocks_in_use_is_noticed) {
  cr_assert_eq(double_open(1, 0), HAL_OK);
  begin(UINT64_C(521288629), 1);
  for (int i = 0; i < STEPS; i++) step();
  cr_expect_gt(model.conflicts, 10, "the model cannot find a defect");
}
