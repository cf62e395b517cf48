/* queue.c: the items of one stream, in chunks of memory.
 *
 * Producers write with the stream's lock held and publish by `tail`. The one thread that has claimed the stream reads
 * without a lock. An item is never split between two chunks. One of the chunks that were read is retained, so that a
 * queue whose depth stays below a chunk allocates nothing; a deeper queue grows, up to DEPTH items. */
#include <string.h>

#include "schedule.h"

/* About 250 launches of a binary kernel; small enough for thousands of streams, large enough that changing chunks is
 * rare. */
#define CHUNK_BYTES 32768

struct fake_chunk_s {
  fake_chunk_t *next;
  alignas(FAKE_CACHE_LINE) char data[CHUNK_BYTES];
};

/* Reserves space for the mark that ends a chunk: an item's header. */
#define CHUNK_ROOM (CHUNK_BYTES - (uint32_t)sizeof(fake_item_t))

_Static_assert(sizeof(fake_item_t) % 8 == 0, "argument addresses follow the header");
_Static_assert(sizeof(fake_note_t) % 16 == 0 && sizeof(fake_noted_t) % 16 == 0 &&
                   sizeof(fake_noted_t) == sizeof(fake_note_t) + sizeof(fake_trace_t),
               "a note at the end of an item is aligned");
_Static_assert(FAKE_MAX_ARGS *(FAKE_MAX_ARG_BYTES + sizeof(void *)) + sizeof(fake_item_t) + sizeof(fake_noted_t) + 16 <
                   CHUNK_ROOM,
               "every item has space");

/* Continues in another chunk; the caller holds the lock. */
static hal_status_t add_chunk(hal_plugin_stream_t *stream) {
  fake_chunk_t *chunk = atomic_exchange_explicit(&stream->spare, NULL, memory_order_acquire);
  if (!chunk) chunk = hal_host->mem_alloc(sizeof *chunk, FAKE_CACHE_LINE);
  if (!chunk) return HAL_RESOURCE_EXHAUSTED;
  chunk->next = NULL;
  fake_chunk_t *last = stream->write_chunk;
  if (last) {
    fake_item_t *mark = (fake_item_t *)(void *)(last->data + stream->write_offset);
    mark->size = 0;
    mark->kind = FAKE_ITEM_NEXT_CHUNK;
    last->next = chunk;
  } else {
    stream->read_chunk = chunk;
    stream->read_offset = 0;
  }
  stream->write_chunk = chunk;
  stream->write_offset = 0;
  return HAL_OK;
}

/* A stream accepts this many items before an enqueueing thread has to wait, as CUDA's streams do at 1024 launches. A
 * thread that enqueues without end must not fill the memory, nor leave hours of work to the thread that synchronizes.
 * The runner's count is in another cache line, so it is read at every DEPTH_STEP-th item only. */
enum { DEPTH = 1024, DEPTH_STEP = 64 };

/* Locks the stream, once its queue has space. */
static void lock_with_room(hal_plugin_stream_t *stream) {
  fake_lock(&stream->lock);
  const uint64_t number = atomic_load_explicit(&stream->tail, memory_order_relaxed) + 1;
  if (FAKE_LIKELY(number % DEPTH_STEP) || number - fake_stream_done(stream) <= DEPTH) return;
  fake_unlock(&stream->lock);
  fake_stream_wait(stream, number - DEPTH / 2); /* half of it, because sleeping and waking for each item is slow */
  fake_lock(&stream->lock);
}

fake_item_t *fake_queue_reserve(hal_plugin_stream_t *stream, uint32_t size, uint32_t kind) {
  size = (size + 15) & ~15u;
  if (fake_is_captured(stream)) return fake_capture_reserve(stream, size, kind);
  lock_with_room(stream);
  if (fake_is_captured(stream)) { /* changed meanwhile */
    fake_unlock(&stream->lock);
    return fake_capture_reserve(stream, size, kind);
  }
  if (FAKE_UNLIKELY(!stream->write_chunk || stream->write_offset + size > CHUNK_ROOM) && add_chunk(stream)) {
    fake_unlock(&stream->lock);
    fake_error(HAL_RESOURCE_EXHAUSTED, 0,
               "fake: no host memory to queue another item on a stream with %llu items waiting; synchronize more often",
               (unsigned long long)(fake_stream_tail(stream) - fake_stream_done(stream)));
    return NULL;
  }
  fake_item_t *item = (fake_item_t *)(void *)(stream->write_chunk->data + stream->write_offset);
  item->size = size;
  item->kind = (uint16_t)kind;
  item->flags = 0;
  return item;
}

/* Returns the weight of an item for FAKE_BACKLOG. */
static uint32_t weight(const fake_item_t *item) {
  const hal_host_range_t *const range = &item->u.launch.range;
  const int large = item->kind == FAKE_ITEM_LAUNCH && range->end - range->begin >= item->u.launch.kernel->grain;
  const int told = item->kind == FAKE_ITEM_SIGNAL; /* another process, which runs no items here, may wait for it */
  return large || told || item->kind == FAKE_ITEM_GRAPH ? FAKE_BACKLOG : 1;
}

uint64_t fake_queue_commit(hal_plugin_stream_t *stream, fake_item_t *item) {
  if (fake_is_captured(stream)) {
    fake_capture_commit(stream, item);
    return 0;
  }
  stream->write_offset += item->size;
  const uint64_t number = atomic_load_explicit(&stream->tail, memory_order_relaxed) + 1;
  atomic_store_explicit(&stream->tail, number, memory_order_release);
  const uint32_t before = atomic_load_explicit(&stream->backlog, memory_order_relaxed);
  const uint32_t backlog = before < FAKE_BACKLOG ? before + weight(item) : before;
  if (FAKE_UNLIKELY(backlog != before)) atomic_store_explicit(&stream->backlog, backlog, memory_order_relaxed);
  if (FAKE_LIKELY(stream->state != FAKE_STREAM_IDLE)) {
    const int wake = before < FAKE_BACKLOG && backlog >= FAKE_BACKLOG && stream->state == FAKE_STREAM_READY;
    fake_unlock(&stream->lock);
    if (FAKE_UNLIKELY(wake)) fake_pool_wake();
    return number;
  }
  fake_stream_make_ready(stream, backlog >= FAKE_BACKLOG);
  return number;
}

fake_item_t *fake_queue_front(hal_plugin_stream_t *stream) {
  fake_chunk_t *chunk = stream->read_chunk;
  fake_item_t *item = (fake_item_t *)(void *)(chunk->data + stream->read_offset);
  if (FAKE_LIKELY(item->kind != FAKE_ITEM_NEXT_CHUNK)) return item;
  stream->read_chunk = chunk->next;
  stream->read_offset = 0;
  fake_chunk_t *surplus = atomic_exchange_explicit(&stream->spare, chunk, memory_order_acq_rel);
  hal_host->mem_free(surplus);
  return (fake_item_t *)(void *)stream->read_chunk->data;
}

void fake_queue_pop(hal_plugin_stream_t *stream, const fake_item_t *item) { stream->read_offset += item->size; }

void fake_queue_rewind(hal_plugin_stream_t *stream) {
  if (stream->read_chunk == stream->write_chunk) stream->read_offset = stream->write_offset = 0;
}

void fake_queue_clear(hal_plugin_stream_t *stream, int leak) {
  fake_chunk_t *chunk = stream->read_chunk;
  while (chunk && !leak) {
    fake_chunk_t *next = chunk == stream->write_chunk ? NULL : chunk->next;
    hal_host->mem_free(chunk);
    chunk = next;
  }
  fake_chunk_t *spare = atomic_exchange_explicit(&stream->spare, NULL, memory_order_acq_rel);
  if (!leak) hal_host->mem_free(spare);
  stream->read_chunk = stream->write_chunk = NULL;
  stream->read_offset = stream->write_offset = 0;
}
