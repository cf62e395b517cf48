/* allocator.h: a device's allocator, for other components. Private to hal/src. */
#ifndef HAL_SRC_MEMORY_ALLOCATOR_H_
#define HAL_SRC_MEMORY_ALLOCATOR_H_

#include "device/device.h"
#include "hal/memory.h"

typedef struct hal_allocator_s hal_allocator_t;

/* Returns the allocator of a ready device. */
static inline hal_allocator_t *hal_allocator_of(const hal_device_t *device) {
  return hal_device_slot(device, HAL_COMPONENT_MEMORY);
}

/* Called once per device, under device->lock (device/slot.h). */
hal_status_t hal_allocator_create(hal_device_t *device, hal_allocator_t **out_allocator);

/* Frees all memory of the plugin. The records remain until the process ends: blocks that are still held can be queried
 * and released. */
void hal_allocator_close(hal_allocator_t *allocator);

/* Frees an allocator, closed or not. All its blocks have been released. */
void hal_allocator_destroy(hal_allocator_t *allocator);

/* Waits until queued work no longer uses memory that was released, and frees it. */
void hal_allocator_drain(hal_allocator_t *allocator);

/* Frees cached objects of the allocator: segments, page-locked memory, events of memory that other processes have
 * used. */
void hal_allocator_trim(hal_allocator_t *allocator);

/* Returns the number of blocks, of device memory and page-locked memory, that were not released or that queued work
 * uses. */
uint64_t hal_allocator_blocks(hal_allocator_t *allocator);

/* Allocates from a private pool, regardless of the stream's current pool, and releases no cached memory for it. Used
 * while recorded work is queued: later recorded work may read memory that is free by now. The block is released like
 * any other, with the stream's pool current. Errors: those of hal_memory_allocate. */
hal_status_t hal_memory_pool_allocate(hal_memory_pool_t *pool, hal_stream_t *stream, size_t size,
                                      hal_block_t **out_block);

/* Allocates a whole segment that hal_memory_share may share; segments that grow cannot be shared. Otherwise as
 * hal_memory_allocate. */
hal_status_t hal_memory_allocate_shareable(int32_t device, hal_stream_t *stream, size_t size, hal_block_t **out_block);

/* Called when deferred work of a stream is taken to be launched: blocks that were released meanwhile
 * (hal_queue_calls_t.released) become free for requests of any size. */
void hal_memory_end_hold(hal_stream_t *stream);

/* For a plugin that pools memory. The first function removes the blocks that were released while deferred work may use
 * them; it is called before that work is taken. The second one frees them after it was queued. */
hal_block_t *hal_memory_take_leaving(hal_stream_t *stream);
void hal_memory_free_leaving(hal_stream_t *stream, hal_block_t *blocks);

/* Finds the segment of the allocator that contains an address. Returns whether there is one. */
int hal_allocator_segment(hal_allocator_t *allocator, const void *address, void **out_start, size_t *out_size);

/* Sets the function that is called before a segment that begins at `address` is freed, while no lock of an allocator is
 * held. There is one function per process. */
void hal_allocator_set_leaving(void (*leaving)(void *address));

/* Frees released memory that queued work no longer uses. */
void hal_memory_poll(hal_device_t *device);

#endif /* HAL_SRC_MEMORY_ALLOCATOR_H_ */
