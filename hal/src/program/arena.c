/* arena.c: see arena.h. */
#include "program/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/host_malloc.h"
#include "base/likely.h"

enum { CHUNK = 16384 };

static int grow(hal_arena_t *arena, size_t size) {
  const size_t room = size > CHUNK ? size : CHUNK;
  if (room > SIZE_MAX - sizeof(hal_arena_chunk_t)) return 0;
  hal_arena_chunk_t *const chunk = hal_malloc(sizeof *chunk + room);
  if (!chunk) return 0;
  *chunk = (hal_arena_chunk_t){.next = arena->chunks, .room = room};
  arena->chunks = chunk;
  return 1;
}

void *hal_arena_take(hal_arena_t *arena, size_t size) {
  const size_t align = sizeof(max_align_t);
  if (size > SIZE_MAX - align) return NULL;
  size = (size + align - 1) & ~(align - 1);
  if (HAL_UNLIKELY(!arena->chunks || arena->chunks->room - arena->chunks->used < size) && !grow(arena, size))
    return NULL;
  hal_arena_chunk_t *const chunk = arena->chunks;
  char *const piece = (char *)chunk->data + chunk->used;
  chunk->used += size;
  arena->bytes += size;
  return piece;
}

void *hal_arena_copy(hal_arena_t *arena, const void *data, size_t size) {
  void *const piece = hal_arena_take(arena, size);
  if (piece && size) memcpy(piece, data, size);
  return piece;
}

void hal_arena_rewind(hal_arena_t *arena) {
  hal_arena_chunk_t *const newest = arena->chunks;
  if (!newest) return;
  arena->chunks = newest->next;
  hal_arena_destroy(arena);
  newest->next = NULL;
  newest->used = 0;
  arena->chunks = newest;
}

void hal_arena_destroy(hal_arena_t *arena) {
  while (arena->chunks) {
    hal_arena_chunk_t *const chunk = arena->chunks;
    arena->chunks = chunk->next;
    hal_free(chunk);
  }
  arena->bytes = 0;
}
