/* arena.h: memory whose pieces live as long as the whole. Private to hal/src/program. */
#ifndef HAL_SRC_PROGRAM_ARENA_H_
#define HAL_SRC_PROGRAM_ARENA_H_

#include <stddef.h>

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

/* Gives `size` bytes, aligned for any type; NULL = the host has no memory. Freed by hal_arena_destroy. */
void *hal_arena_take(hal_arena_t *arena, size_t size);

/* Gives a copy of `size` bytes; NULL = no memory. */
void *hal_arena_copy(hal_arena_t *arena, const void *data, size_t size);

/* Frees all pieces, and keeps their memory for those to come. */
void hal_arena_rewind(hal_arena_t *arena);

void hal_arena_destroy(hal_arena_t *arena);

#endif /* HAL_SRC_PROGRAM_ARENA_H_ */
