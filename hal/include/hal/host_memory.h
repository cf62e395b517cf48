/* host_memory.h: page-locked ("pinned") host memory from a cache, which devices copy from and to while the host goes on.
 *
 * An allocation is known by its address and may be used by the host like any other memory. Before work is queued that uses
 * it, hal_host_record_stream names the work's stream; the memory may then be freed at any time, and is used again only when
 * that work is done:
 *
 *   void *staging = NULL;
 *   hal_status_t status = hal_host_allocate(0, size, &staging);
 *   if (!status) status = hal_host_record_stream(staging, stream);
 *   if (!status) memcpy(staging, source, size);
 *   if (!status) status = hal_memory_copy(stream, address, 0, staging, HAL_HOST, size);
 *   hal_host_free(staging);
 *
 * Freed memory is kept for later requests of the same device: page-locking costs a driver far more than the use. Requests
 * are rounded up to size classes, powers of two from 4 KiB to 1 MiB and four steps per power of two above, so that at most a
 * quarter of a large block is not used. PYTORCH_ALLOC_CONF=pinned_max_cached_size_mb:N keeps larger blocks out of the cache.
 *
 * Where a plugin has no host_alloc the memory is ordinary, hal_host_find does not know it, and all else works alike. */
#ifndef HAL_HOST_MEMORY_H_
#define HAL_HOST_MEMORY_H_

#include "hal/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `size` bytes of host memory, aligned to 64 bytes, that are page-locked for the device where its plugin offers
 * that; the values in it are whatever it holds. Size 0 gives NULL. Freed by hal_host_free. Errors: HAL_RESOURCE_EXHAUSTED,
 * after cached memory was given back, with what is in use and cached; as hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_host_allocate(int32_t device, size_t size, void **out_address);

/* Frees what hal_host_allocate gave; NULL is allowed. Work of recorded streams may still use it. In a forked child, and after
 * hal_registry_close, nothing happens and the memory stays. Errors: HAL_INVALID_ARGUMENT = freed before, the inside of an
 * allocation, or no allocation of hal_host_allocate; nothing is freed then. Since 0.1. */
HAL_API hal_status_t hal_host_free(void *address);

/* Tells that work queued on `stream` (NULL: current stream of the memory's device) until the memory is freed uses it.
 * `address` may lie inside the allocation, `stream` may be of any device. Errors: HAL_NOT_FOUND = no allocation of
 * hal_host_allocate that is in use; HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_host_record_stream(const void *address, hal_stream_t *stream);

/* Tells for which device an address, which may lie inside an allocation, is page-locked: memory in use of hal_host_allocate,
 * and what the plugins call pinned. Initialises no device. Errors: HAL_NOT_FOUND = it is pageable, or no host memory.
 * Since 0.1. */
HAL_API hal_status_t hal_host_find(const void *address, int32_t *out_device);

/* Returns the address by which kernels of a program (hal/kernel.h) on the device read and write page-locked host memory without a copy: for values that
 * the host polls, or data that is read once. `address` may lie inside an allocation of hal_host_allocate, of any device of the same plugin; the result is
 * valid until that is freed. What kernels write is there for the host once their stream was synchronized.
 * Errors: HAL_NOT_FOUND = no page-locked memory lies there; HAL_UNIMPLEMENTED = the device's kernels do not reach host memory; HAL_OUT_OF_RANGE.
 * Since 0.3. */
HAL_API hal_status_t hal_host_device_pointer(const void *address, int32_t device, void **out_address);

/* Gives cached memory back to the plugin; what queued work still uses stays, as does memory in use. `device` -1 = all that
 * were used. Errors: as hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_host_empty_cache(int32_t device);

/* How long the plugin took, in microseconds; all zero before the first call. */
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

/* Gives the statistics of a device; zeros, and no start of the device, before it is used. The caller sets
 * `out_stats->struct_size`. Errors: HAL_INVALID_ARGUMENT = it is not set; HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_stats(int32_t device, hal_host_stats_t *out_stats);

/* Sets every peak to the current value. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_reset_peak_stats(int32_t device);

/* Sets every total, count and time to zero. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_host_reset_accumulated_stats(int32_t device);

#ifdef __cplusplus
}
#endif
#endif /* HAL_HOST_MEMORY_H_ */
