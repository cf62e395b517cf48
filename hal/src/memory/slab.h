/* slab.h: recycled fixed-size records (blocks, stream uses), so that a cache hit never calls malloc. The owner's
 * lock guards it. Private to hal/src. */
#ifndef HAL_SRC_MEMORY_SLAB_H_
#define HAL_SRC_MEMORY_SLAB_H_

#include <stddef.h>

#include "base/likely.h"

typedef struct hal_mem_slab_s {
  void *free;   /* each free record holds the address of the next */
  void *chunks; /* each chunk begins with the address of the next */
  size_t item_size;
} hal_mem_slab_t;

/* Allocates one more chunk and takes a record from it; NULL if the host has no memory. */
void *hal_mem_slab_grow(hal_mem_slab_t *slab);

/* Frees all chunks, even if records are in use. */
void hal_mem_slab_destroy(hal_mem_slab_t *slab);

/* Takes a record, not zeroed; NULL if the host has no memory. */
static inline void *hal_mem_slab_take(hal_mem_slab_t *slab) {
  void *item = slab->free;
  if (HAL_UNLIKELY(!item)) return hal_mem_slab_grow(slab);
  slab->free = *(void **)item;
  return item;
}

static inline void hal_mem_slab_give(hal_mem_slab_t *slab, void *item) {
  *(void **)item = slab->free;
  slab->free = item;
}

#endif /* HAL_SRC_MEMORY_SLAB_H_ */
