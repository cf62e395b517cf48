/* host_memory_internal.h: the part of a device's allocator that caches page-locked host memory. Private to hal/src.
 *
 * Its blocks are records of the allocator (hal_block_t, source HAL_MEM_HOST) under the allocator's lock, so that
 * pending.c waits for streams that use them as for streams that use device memory. A block is the result of one call of
 * the plugin; it is never split. */
#ifndef HAL_SRC_HOST_MEMORY_INTERNAL_H_
#define HAL_SRC_HOST_MEMORY_INTERNAL_H_

#include "device/device.h"
#include "hal/host_memory.h"
#include "hal/memory.h"

#define HAL_MEM_HOST_LEAST ((size_t)4096)       /* a page: the minimum that can be locked */
#define HAL_MEM_HOST_POWERS ((size_t)1 << 20)   /* classes up to this size are powers of two */
#define HAL_MEM_HOST_STEPS 4                    /* number of classes per power of two above */
#define HAL_MEM_HOST_MOST ((size_t)PTRDIFF_MAX) /* no C object is larger */
#define HAL_MEM_HOST_CLASSES (9 + HAL_MEM_HOST_STEPS * (63 - 20))
/* free blocks over pinned_max_cached_size_mb, which are about to be freed */
#define HAL_MEM_HOST_UNCACHED HAL_MEM_HOST_CLASSES

typedef struct hal_mem_history_s hal_mem_history_t;

typedef struct hal_mem_host_s {
  hal_block_t *map;                            /* by address: in use, waiting and cached */
  hal_block_t *registered;                     /* by address: memory of hal_host_register, for the history only */
  hal_block_t *bins[HAL_MEM_HOST_CLASSES + 1]; /* free blocks by class, the last freed first */
  hal_host_stats_t stats;
  hal_mem_history_t *history; /* history.h; never NULL while HAL_MEM_HOST_RECORDED is set */
} hal_mem_host_t;

/* Returns the class of a size from 1 to HAL_MEM_HOST_MOST and the size of its blocks. */
uint32_t hal_mem_host_class(size_t size, size_t *out_rounded);

/* Returns an unused block to the cache. The caller holds the lock. */
void hal_mem_host_return(hal_allocator_t *allocator, hal_block_t *block);

/* Frees the free blocks from class `first` on. The caller holds the lock, which is released while the plugin is
 * called. */
void hal_mem_host_trim(hal_allocator_t *allocator, uint32_t first);

/* Frees all free blocks when the device is closed. Blocks that are still held remain, since host memory can be read
 * without the device. The caller holds the lock. */
void hal_mem_host_close(hal_allocator_t *allocator);

#endif /* HAL_SRC_HOST_MEMORY_INTERNAL_H_ */
