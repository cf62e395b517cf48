/* custom.h: device memory of a program's own allocator (hal_memory_allocator_t), in place of the plugin's. Private to
 * hal/src/memory. */
#ifndef HAL_SRC_MEMORY_CUSTOM_H_
#define HAL_SRC_MEMORY_CUSTOM_H_

#include "memory/internal.h"

/* A segment of a private pool with an allocator of its own. */
struct hal_mem_custom_s {
  hal_mem_custom_t *next;
  hal_memory_allocator_t calls;
  void *address;
  size_t size;
  hal_stream_t *stream;
};

/* Allocates memory and checks it. Called without the lock. Errors: HAL_RESOURCE_EXHAUSTED = the allocator returned
 * NULL; HAL_INVALID_ARGUMENT = not memory of the device. */
hal_status_t hal_mem_custom_obtain(hal_allocator_t *allocator, const hal_memory_allocator_t *calls,
                                   hal_stream_t *stream, size_t size, void **out_address);
/* Returns whether an address is in other memory of the device. The caller holds the lock. */
int hal_mem_custom_overlaps(const hal_allocator_t *allocator, const void *address, size_t size);
/* Sets the error of memory that overlaps other memory, which is released. Called without the lock. */
hal_status_t hal_mem_custom_reject(const hal_memory_allocator_t *calls, hal_stream_t *stream, void *address,
                                   size_t size);

/* Allocates a block from the allocator of the process. Called without the lock. Errors: as hal_memory_allocate. */
hal_status_t hal_mem_custom_allocate(hal_allocator_t *allocator, hal_stream_t *stream, size_t size,
                                     hal_block_t **out_block);

/* Records a segment of a pool's allocator, and removes the record; NULL = the plugin has allocated it. The caller holds
 * the lock. */
void hal_mem_custom_add(hal_allocator_t *allocator, hal_mem_custom_t *custom);
hal_mem_custom_t *hal_mem_custom_take(hal_allocator_t *allocator, const void *address);
/* Returns memory to its allocator, and frees the record. Called without the lock. */
void hal_mem_custom_release(hal_mem_custom_t *custom);

/* Ends a private pool with an allocator: frees its unused segments. Those in use remain in the pool, which ends with
 * the last one. The caller holds the lock, which is released meanwhile. */
void hal_mem_custom_orphan(hal_allocator_t *allocator, hal_mem_pool_t *pool);
/* Frees unused segments of pools that have ended. Returns the number of bytes. As above. */
size_t hal_mem_custom_trim(hal_allocator_t *allocator);
/* Releases all segments at the end. Called without the lock. */
void hal_mem_custom_close(hal_allocator_t *allocator);

/* Checks the struct of an allocator. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_mem_custom_check(const char *function, const hal_memory_allocator_t *calls);
/* Sets the allocator of the process for a new device. */
void hal_mem_custom_setup(hal_allocator_t *allocator);

#endif /* HAL_SRC_MEMORY_CUSTOM_H_ */
