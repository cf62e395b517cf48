/* allocator.h: the life of a device's allocator. Private to hal/src. */
#ifndef HAL_SRC_MEMORY_ALLOCATOR_H_
#define HAL_SRC_MEMORY_ALLOCATOR_H_

#include "device/device.h"
#include "hal/memory.h"

/* Called once per device, under device->lock. */
hal_status_t hal_allocator_create(hal_device_t *device, hal_allocator_t **out_allocator);

/* Gives all memory back to the plugin. The records stay: blocks that somebody holds can be asked and released for as long
 * as the process lives. */
void hal_allocator_close(hal_allocator_t *allocator);

/* Frees an allocator, closed or not, of which nobody holds a block. */
void hal_allocator_destroy(hal_allocator_t *allocator);

/* Waits for what queued work still uses of the memory that was released, and ends it. */
void hal_allocator_drain(hal_allocator_t *allocator);

/* Allocates from a private pool, whatever the stream allocates from; nothing that the cache holds is given back for it. For those who queue
 * work that was recorded: memory that is free by now may be what the work behind it reads. Released as any block; the pool is the stream's
 * then. Errors: as of hal_memory_allocate. */
hal_status_t hal_memory_pool_allocate(hal_memory_pool_t *pool, hal_stream_t *stream, size_t size,
                                      hal_block_t **out_block);

/* Deferred work of a stream was taken to be launched: blocks that were released meanwhile (hal_queue_calls_t.released) are free for requests of
 * any size. */
void hal_memory_end_hold(hal_stream_t *stream);

/* Frees what the device's work has finished with. */
void hal_memory_poll(hal_device_t *device);

#endif /* HAL_SRC_MEMORY_ALLOCATOR_H_ */
