/* host_memory_block.h: blocks of page-locked host memory for requests, for host_memory.c. All functions are called with
 * the lock held. Private to hal/src. */
#ifndef HAL_SRC_HOST_MEMORY_BLOCK_H_
#define HAL_SRC_HOST_MEMORY_BLOCK_H_

#include "memory/internal.h"

/* Takes a free block of a class for a request; NULL if there is none. */
hal_block_t *hal_mem_host_reuse(hal_allocator_t *allocator, uint32_t class, size_t requested);

/* Creates a block of `size` bytes for a request. The lock is released while the plugin is called.
 * Errors: HAL_RESOURCE_EXHAUSTED (plugin or host), the plugin's own. */
hal_status_t hal_mem_host_create(hal_allocator_t *allocator, size_t size, size_t requested, hal_block_t **out_block);

#endif /* HAL_SRC_HOST_MEMORY_BLOCK_H_ */
