/* arena.c: see arena.h. */
#include "capture/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/host_malloc.h"
#include "base/likely.h"
#include "base/lock.h"

enum { CHUNK = 65536, MOST_KEPT = 16 };

/* Unused chunks, for the next arena: allocating memory is slower than writing it. */
static struct {
  hal_lock_t lock;
  hal_arena_chunk_t *first;
  uint32_t count;
} kept;

static hal_arena_chunk_t *take_kept(void) {
  hal_lock(&kept.lock);
  hal_arena_chunk_t *const chunk = kept.first;
  if (chunk) kept.first = chunk->next;
  kept.count -= chunk != NULL;
  hal_unlock(&kept.lock);
  return chunk;
}

static void give_back(hal_arena_chunk_t *chunk) {
  hal_lock(&kept.lock);
  const int keeps = chunk->room == CHUNK && kept.count < MOST_KEPT;
  if (keeps) {
    chunk->next = kept.first;
    kept.first = chunk;
    kept.count++;
  }
  hal_unlock(&kept.lock);
  if (!keeps) hal_free(chunk);
}

static int grow(hal_arena_t *arena, size_t size) {
  hal_arena_chunk_t *chunk = arena->spare;
  if (chunk && chunk->room >= size) {
    arena->spare = chunk->next;
  } else {
    const size_t room = size > CHUNK ? size : CHUNK;
    if (room > SIZE_MAX - sizeof(hal_arena_chunk_t)) return 0;
    chunk = room == CHUNK ? take_kept() : NULL;
    if (!chunk) chunk = hal_malloc(sizeof *chunk + room);
    if (!chunk) return 0;
    chunk->room = room;
  }
  chunk->used = 0;
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  return 1;
}

void *hal_arena_take_slow(hal_arena_t *arena, size_t size) {
  return size <= SIZE_MAX - sizeof(max_align_t) && grow(arena, hal_arena_round(size)) ? hal_arena_take(arena, size)
                                                                                      : NULL;
}

void hal_arena_give_back(hal_arena_t *arena, size_t size) {
  arena->chunks->used -= hal_arena_round(size);
  arena->bytes -= hal_arena_round(size);
}

void *hal_arena_copy(hal_arena_t *arena, const void *data, size_t size) {
  void *const piece = hal_arena_take(arena, size);
  if (piece && size) memcpy(piece, data, size);
  return piece;
}

void hal_arena_rewind(hal_arena_t *arena) {
  while (arena->chunks) {
    hal_arena_chunk_t *const chunk = arena->chunks;
    arena->chunks = chunk->next;
    chunk->next = arena->spare;
    arena->spare = chunk;
  }
  arena->bytes = 0;
}

void hal_arena_destroy(hal_arena_t *arena) {
  hal_arena_rewind(arena);
  while (arena->spare) {
    hal_arena_chunk_t *const chunk = arena->spare;
    arena->spare = chunk->next;
    give_back(chunk);
  }
}
