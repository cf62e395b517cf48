/* host_memory.h: page-locked ("pinned") host memory from a cache, for asynchronous copies from and to devices.
 *
 * An allocation is identified by its address; the host uses it like any other memory. Before queuing work that uses it,
 * call hal_host_record_stream with the stream of the work. The memory may then be freed at any time; it is reused only
 * after that work is done:
 *
 *   void *staging = NULL;
 *   hal_status_t status = hal_host_allocate(0, size, &staging);
 *   if (!status) status = hal_host_record_stream(staging, stream);
 *   if (!status) memcpy(staging, source, size);
 *   if (!status) status = hal_memory_copy(stream, address, 0, staging, HAL_HOST, size);
 *   hal_host_free(staging);
 *
 * Freed memory is cached for later requests of the same device, because page-locking is slow. Requests are rounded up
 * to size classes: powers of two from 4 KiB to 1 MiB, and four classes per power of two above, so that at most a
 * quarter of a large block is unused. PYTORCH_ALLOC_CONF=pinned_max_cached_size_mb:N keeps larger blocks out of the
 * cache.
 *
 * If a plugin has no host_alloc the memory is pageable and hal_host_find does not find it; all else is the same. */
#ifndef HAL_HOST_MEMORY_H_
#define HAL_HOST_MEMORY_H_

#include "hal/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `size` bytes of uninitialized host memory, aligned to 64 bytes, and page-locked for the device if its
 * plugin supports that. Size 0 returns NULL. Freed by hal_host_free. Errors: HAL_RESOURCE_EXHAUSTED, after cached
 * memory was released, with the bytes in use and cached; those of hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_host_allocate(int32_t device, size_t size, void **out_address);

/* Frees memory of hal_host_allocate; NULL is allowed. Work of recorded streams may still use it. Does nothing in a
 * forked child and after hal_registry_close; the memory remains. Errors: HAL_INVALID_ARGUMENT = freed before, an
 * address inside an allocation, or not memory of hal_host_allocate; nothing is freed. Since 0.1. */
HAL_API hal_status_t hal_host_free(void *address);

/* Records that work queued on `stream` (NULL: current stream of the memory's device) before the memory is freed uses
 * it. `address` may be inside the allocation; `stream` may be of any device. Errors: HAL_NOT_FOUND = not an allocation
 * of hal_host_allocate in use; HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_host_record_stream(const void *address, hal_stream_t *stream);

/* Returns the device for which an address is page-locked: memory of hal_host_allocate in use, or memory that a plugin
 * reports as pinned. The address may be inside an allocation. Initializes no device. Errors: HAL_NOT_FOUND = pageable
 * memory, or not host memory. Since 0.1. */
HAL_API hal_status_t hal_host_find(const void *address, int32_t *out_device);

/* Returns the address by which kernels of a program (hal/kernel.h) on the device access page-locked host memory without
 * a copy: for values that the host polls, or data that is read once. `address` may be inside an allocation of
 * hal_host_allocate, of any device of the same plugin; the result is valid until that is freed. The host sees what
 * kernels write after a synchronization of their stream. Errors: HAL_NOT_FOUND = not page-locked memory;
 * HAL_UNIMPLEMENTED = the device's kernels cannot access host memory; HAL_OUT_OF_RANGE. Since 0.3. */
HAL_API hal_status_t hal_host_device_pointer(const void *address, int32_t device, void **out_address);

/* Page-locks `size` bytes of host memory that the caller owns, so that copies from and to it are asynchronous;
 * hal_host_find finds it. Undone by hal_host_unregister before the memory is freed. Errors: HAL_INVALID_ARGUMENT = no
 * bytes, or memory that is page-locked already; HAL_UNIMPLEMENTED = the plugin does not page-lock memory of others; the
 * plugin's. Since 0.5. */
HAL_API hal_status_t hal_host_register(int32_t device, void *address, size_t size);

/* Ends hal_host_register for memory that begins at `address`. The caller waits for work that uses it. Errors:
 * HAL_INVALID_ARGUMENT = it is not registered; the plugin's. Since 0.5. */
HAL_API hal_status_t hal_host_unregister(int32_t device, void *address);

/* Frees cached memory of a device (-1 = all that were used), except memory in use and memory that queued work still
 * uses. Errors: as hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_host_empty_cache(int32_t device);

/* Durations of calls of the plugin, in microseconds; all zero before the first call. */
typedef struct hal_duration_s {
  int64_t total, max, min, count;
} hal_duration_t;

/* The statistics under torch's names (torch.cuda.host_memory_stats), in blocks and bytes of rounded size. */
typedef struct hal_host_stats_s {
  size_t struct_size;
  hal_stat_t allocations, allocated_bytes;        /* page-locked: in use, cached, and waiting for streams */
  hal_stat_t active_requests, active_bytes;       /* in use, and waiting for streams */
  hal_duration_t host_alloc_time, host_free_time; /* calls of the plugin */
  int64_t num_host_alloc, num_host_free;
} hal_host_stats_t;

/* Returns the statistics of a device. They are zero for a device that was not used, which is not initialized. The
 * caller sets `out_stats->struct_size`. Errors: HAL_INVALID_ARGUMENT = it is not set; HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_stats(int32_t device, hal_host_stats_t *out_stats);

/* Sets every peak to the current value. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_reset_peak_stats(int32_t device);

/* Sets every total, count and time to zero. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_reset_accumulated_stats(int32_t device);

/* Starts to record the page-locked host memory of a device, or changes what is recorded: the same events, stacks and
 * options as hal_memory_history_start (hal/memory.h), in a history of its own. Blocks are not divided, so each is a
 * segment; memory of hal_host_register is one, too. Stream and pool are 0, and so is `free_bytes` of OOM events, which
 * is unknown. There are no SNAPSHOT events. While a device is not recorded, the history costs three tests a call.
 * Errors: as of hal_memory_history_start. Since 0.5. */
HAL_API hal_status_t hal_host_history_start(int32_t device, const hal_memory_history_desc_t *desc);

/* Ends the recording, and removes all events and stacks. Errors: HAL_OUT_OF_RANGE. Since 0.5. */
HAL_API hal_status_t hal_host_history_stop(int32_t device);

/* Returns whether the page-locked host memory of a device is recorded: 1 or 0. Since 0.5. */
HAL_API int hal_host_history_is_recorded(int32_t device);

/* Copies the history of a device's page-locked host memory and its blocks: in use, cached, waiting for streams, and of
 * hal_host_register. Without a recording there are blocks and no events. Read by the functions of hal_memory_history_t.
 * Errors: HAL_OUT_OF_RANGE, HAL_RESOURCE_EXHAUSTED. Since 0.5. */
HAL_API hal_status_t hal_host_history_read(int32_t device, hal_memory_history_t **out_history);

#ifdef __cplusplus
}
#endif
#endif /* HAL_HOST_MEMORY_H_ */
