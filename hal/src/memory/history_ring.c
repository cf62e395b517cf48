/* history_ring.c: the ring of events. It grows by chunks, so that no event is copied and `max` may be large; a full one
 * reuses the chunk of the oldest events. */
#include "memory/history.h"

#include <string.h>

#include "base/host_malloc.h"

/* Removes the first chunk, whose events are removed; one chunk is kept for the next one that is needed. */
static void drop_chunk(hal_mem_ring_t *ring) {
  hal_mem_ring_chunk_t *const chunk = ring->first;
  ring->first = chunk->next;
  if (!ring->first) ring->last = NULL;
  ring->begin = 0;
  if (ring->spare)
    hal_free(chunk);
  else
    ring->spare = chunk;
}

static void drop_oldest(hal_mem_ring_t *ring, hal_mem_stack_t **dead) {
  hal_mem_stack_drop(ring->first->events[ring->begin++].stack, dead);
  ring->count--;
  const size_t end = ring->first == ring->last ? ring->end : HAL_MEM_RING_CHUNK;
  if (ring->begin == end) drop_chunk(ring);
}

void hal_mem_ring_shrink(hal_mem_ring_t *ring, size_t count, hal_mem_stack_t **dead) {
  while (ring->count > count) drop_oldest(ring, dead);
}

/* Returns a chunk. If the host has no memory, it is that of the oldest events, which are lost; NULL = there is none. */
static hal_mem_ring_chunk_t *chunk_for(hal_mem_ring_t *ring, hal_mem_stack_t **dead) {
  hal_mem_ring_chunk_t *chunk = ring->spare ? ring->spare : hal_malloc(sizeof(*chunk));
  if (!chunk && ring->first) {
    const size_t end = ring->first == ring->last ? ring->end : HAL_MEM_RING_CHUNK;
    const size_t events = end - ring->begin;
    hal_mem_ring_shrink(ring, ring->count - events, dead);
    ring->lost += events;
    chunk = ring->spare;
  }
  ring->spare = NULL;
  return chunk;
}

hal_memory_event_t *hal_mem_ring_push(hal_mem_ring_t *ring, hal_mem_stack_t **dead) {
  if (!ring->max) return NULL;
  hal_mem_ring_shrink(ring, ring->max - 1, dead);
  if (!ring->last || ring->end == HAL_MEM_RING_CHUNK) {
    hal_mem_ring_chunk_t *const chunk = chunk_for(ring, dead);
    if (!chunk) {
      ring->lost++;
      return NULL;
    }
    chunk->next = NULL;
    if (ring->last)
      ring->last->next = chunk;
    else
      ring->first = chunk;
    ring->last = chunk;
    ring->end = 0;
  }
  ring->count++;
  return &ring->last->events[ring->end++];
}

void hal_mem_ring_copy(const hal_mem_ring_t *ring, hal_memory_event_t *out_events) {
  size_t begin = ring->begin;
  for (const hal_mem_ring_chunk_t *chunk = ring->first; chunk; chunk = chunk->next, begin = 0) {
    const size_t count = (chunk == ring->last ? ring->end : HAL_MEM_RING_CHUNK) - begin;
    memcpy(out_events, chunk->events + begin, count * sizeof(*out_events));
    for (size_t i = 0; i < count; i++) hal_mem_stack_retain(out_events[i].stack);
    out_events += count;
  }
}

void hal_mem_ring_destroy(hal_mem_ring_t *ring) {
  hal_free(ring->spare);
  ring->spare = NULL;
}
