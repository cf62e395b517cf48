/* slab.c: allocates and frees the chunks of slabs. */
#include "memory/slab.h"

#include <stdint.h>

#include "base/host_malloc.h"

#define ITEMS_PER_CHUNK 128
/* Records start on a cache line: the first line of a block contains everything that a cache hit accesses. */
#define LINE 64

void *hal_mem_slab_grow(hal_mem_slab_t *slab) {
  const size_t bytes = sizeof(void *) + LINE + ITEMS_PER_CHUNK * slab->item_size;
  char *chunk = hal_malloc(bytes);
  if (!chunk) return NULL;
  *(void **)chunk = slab->chunks;
  slab->chunks = chunk;
  const uintptr_t first = ((uintptr_t)chunk + sizeof(void *) + LINE - 1) & ~(uintptr_t)(LINE - 1);
  char *items = chunk + (first - (uintptr_t)chunk);
  for (size_t i = ITEMS_PER_CHUNK - 1; i > 0; i--) hal_mem_slab_give(slab, items + i * slab->item_size);
  return items;
}

void hal_mem_slab_destroy(hal_mem_slab_t *slab) {
  while (slab->chunks) {
    void *chunk = slab->chunks;
    slab->chunks = *(void **)chunk;
    hal_free(chunk);
  }
  slab->free = NULL;
}
