/* arena.h: memory whose pieces are freed together. Private to hal/src. */
#ifndef HAL_SRC_CAPTURE_ARENA_H_
#define HAL_SRC_CAPTURE_ARENA_H_

#include <stddef.h>

#include "base/likely.h"

typedef struct hal_arena_chunk_s {
  struct hal_arena_chunk_s *next;
  size_t used, room;
  max_align_t data[];
} hal_arena_chunk_t;

/* Zeroed memory is an empty one. */
typedef struct hal_arena_s {
  hal_arena_chunk_t *chunks; /* the newest first */
  hal_arena_chunk_t *spare;  /* of pieces that were freed */
  size_t bytes;              /* of all pieces */
} hal_arena_t;

static inline size_t hal_arena_round(size_t size) {
  return (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
}

void *hal_arena_take_slow(hal_arena_t *arena, size_t size);

/* Returns `size` bytes, aligned for any type; NULL = the host has no memory. Freed by hal_arena_destroy. */
static inline void *hal_arena_take(hal_arena_t *arena, size_t size) {
  hal_arena_chunk_t *const chunk = arena->chunks;
  const size_t rounded = hal_arena_round(size);
  if (HAL_UNLIKELY(!chunk || chunk->room - chunk->used < rounded || rounded < size))
    return hal_arena_take_slow(arena, size);
  char *const piece = (char *)chunk->data + chunk->used;
  chunk->used += rounded;
  arena->bytes += rounded;
  return piece;
}

/* Releases the last `size` bytes. */
void hal_arena_give_back(hal_arena_t *arena, size_t size);

/* Returns a copy of `size` bytes; NULL = no memory. */
void *hal_arena_copy(hal_arena_t *arena, const void *data, size_t size);

/* Frees all pieces, and keeps their memory for later ones. */
void hal_arena_rewind(hal_arena_t *arena);

void hal_arena_destroy(hal_arena_t *arena);

#endif /* HAL_SRC_CAPTURE_ARENA_H_ */
