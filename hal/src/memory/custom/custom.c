/* custom.c: calls a program's allocator, and checks what it returns. */
#include "memory/custom/custom.h"

#include <string.h>

#include "memory/pool.h"
#include "plugin/slots.h"

#define LEAST_ALIGNMENT ((size_t)256) /* of memory_alloc */

static hal_memory_allocator_t process_calls; /* of hal_memory_set_allocator */

/* ---- calls ---- */

/* Returns the driver's handle of a stream; NULL if it has none. */
static void *native_of(hal_stream_t *stream) {
  void *native = NULL;
  return hal_stream_native(stream, &native) ? NULL : native;
}

static void release(const hal_memory_allocator_t *calls, hal_stream_t *stream, void *address, size_t size) {
  hal_callback_check();
  calls->release(calls->user_data, address, size, stream->device->index, native_of(stream));
}

/* Whether the byte of an address is the device's. */
typedef enum { OWNER_UNKNOWN, OWNER_DEVICE, OWNER_OTHER } owner_t;

static owner_t owner_of(const hal_device_t *device, const void *address) {
  hal_pointer_info_t info = {.struct_size = sizeof info, .device = HAL_HOST};
  if (hal_call_memory_pointer_info(device->plugin, address, &info)) return OWNER_UNKNOWN;
  return info.device == device->ordinal ? OWNER_DEVICE : OWNER_OTHER;
}

/* Returns whether memory is that of the device, as far as the plugin reports it. A device that accepts any address also
 * accepts memory that its plugin does not know, but not the memory of another device, nor a block that ends too early.
 */
static int is_of_device(const hal_device_t *device, const char *first, size_t size) {
  if (!hal_slot_is_provided(&device->plugin->api, HAL_SLOT_memory_pointer_info)) return 1;
  const int accepts_any = (device->info.flags & HAL_DEVICE_RAW_POINTERS) != 0;
  const owner_t owner = owner_of(device, first);
  if (owner != owner_of(device, first + size - 1)) return 0;
  return owner == OWNER_DEVICE || (owner == OWNER_UNKNOWN && accepts_any);
}

static hal_status_t check(const hal_device_t *device, const void *address, size_t size) {
  const size_t base = device->info.base_alignment;
  const size_t alignment = base > HAL_MEM_GRANULE ? HAL_MEM_GRANULE : base > LEAST_ALIGNMENT ? base : LEAST_ALIGNMENT;
  uintptr_t end;
  if ((uintptr_t)address % alignment)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "the program's allocator returned %p for %zu bytes of device %s; align memory to %zu bytes",
                         address, size, device->label, alignment);
  if (__builtin_add_overflow((uintptr_t)address, size, &end) || !is_of_device(device, address, size))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "the program's allocator returned %p for %zu bytes of device %s, which is not memory of that "
                         "device; return memory of the driver, or of hal_memory_raw_allocate",
                         address, size, device->label);
  return HAL_OK;
}

hal_status_t hal_mem_custom_obtain(hal_allocator_t *allocator, const hal_memory_allocator_t *calls,
                                   hal_stream_t *stream, size_t size, void **out_address) {
  hal_device_t *const device = allocator->device;
  hal_callback_check();
  void *const address = calls->allocate(calls->user_data, size, device->index, native_of(stream));
  if (!address)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the program's allocator returned NULL for %zu bytes", size);
  const hal_status_t status = check(device, address, size);
  if (status) {
    hal_error_saved_t saved;
    hal_error_save(&saved);
    release(calls, stream, address, size);
    hal_error_restore(&saved);
    return status;
  }
  *out_address = address;
  return HAL_OK;
}

/* Returns whether a range overlaps the ranges of a subtree of the address map, whose depth is small (map.c). */
static int overlaps(const hal_block_t *node, uintptr_t begin, uintptr_t end) {
  if (!node || node->reach <= begin) return 0;
  const uintptr_t at = (uintptr_t)node->address;
  if (at < end && begin < at + node->extent) return 1;
  return overlaps(node->left, begin, end) || (at < end && overlaps(node->right, begin, end));
}

int hal_mem_custom_overlaps(const hal_allocator_t *allocator, const void *address, size_t size) {
  return overlaps(allocator->map, (uintptr_t)address, (uintptr_t)address + size);
}

hal_status_t hal_mem_custom_reject(const hal_memory_allocator_t *calls, hal_stream_t *stream, void *address,
                                   size_t size) {
  release(calls, stream, address, size);
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "the program's allocator returned %p for %zu bytes of device %s, which overlaps memory that is "
                       "in use; return each address once until it is released",
                       address, size, stream->device->label);
}

/* ---- the allocator of the process ---- */

static void free_block(void *data) { hal_mem_custom_release(data); }

static hal_status_t out_of_memory(hal_allocator_t *allocator, size_t size) {
  hal_lock(&allocator->lock);
  allocator->stats.num_ooms++;
  hal_unlock(&allocator->lock);
  return hal_mem_error_exhausted(allocator, "allocate", size, "the program's allocator returned NULL");
}

/* Allocates; if there is no memory, waits for memory that was released and tries again. */
static hal_status_t obtain(hal_allocator_t *allocator, hal_stream_t *stream, size_t size, void **out_address) {
  const hal_status_t status = hal_mem_custom_obtain(allocator, &allocator->custom, stream, size, out_address);
  if (status != HAL_RESOURCE_EXHAUSTED) return status;
  hal_lock(&allocator->lock);
  allocator->stats.num_alloc_retries++;
  hal_unlock(&allocator->lock);
  hal_allocator_drain(allocator);
  return hal_mem_custom_obtain(allocator, &allocator->custom, stream, size, out_address);
}

hal_status_t hal_mem_custom_allocate(hal_allocator_t *allocator, hal_stream_t *stream, size_t size,
                                     hal_block_t **out_block) {
  void *address = NULL;
  hal_mem_custom_t *const custom = hal_calloc(1, sizeof *custom);
  if (!custom) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  hal_status_t status = obtain(allocator, stream, size, &address);
  if (status) {
    hal_free(custom);
    return status == HAL_RESOURCE_EXHAUSTED ? out_of_memory(allocator, size) : status;
  }
  *custom = (hal_mem_custom_t){.calls = allocator->custom, .address = address, .size = size, .stream = stream};
  hal_lock(&allocator->lock);
  const int is_used = hal_mem_custom_overlaps(allocator, address, size);
  hal_unlock(&allocator->lock);
  if (is_used) {
    hal_free(custom);
    return hal_mem_custom_reject(&allocator->custom, stream, address, size);
  }
  status = hal_memory_adopt(allocator->device->index, stream, address, size, free_block, custom, out_block);
  if (status) {
    hal_error_saved_t saved;
    hal_error_save(&saved);
    hal_mem_custom_release(custom);
    hal_error_restore(&saved);
  }
  return status;
}

void hal_mem_custom_setup(hal_allocator_t *allocator) { allocator->custom = process_calls; }

hal_status_t hal_mem_custom_check(const char *function, const hal_memory_allocator_t *calls) {
  if (calls && calls->struct_size >= sizeof *calls && calls->allocate && calls->release) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "%s: set struct_size to sizeof(hal_memory_allocator_t), `allocate` and `release`", function);
}

hal_status_t hal_memory_set_allocator(const hal_memory_allocator_t *calls) {
  if (calls) HAL_RETURN_IF_ERROR(hal_mem_custom_check("hal_memory_set_allocator", calls));
  for (int32_t i = 0; i < hal_registry.device_count; i++) {
    if (!hal_device_is_alive(&hal_devices[i])) continue;
    hal_allocator_t *const allocator = hal_allocator_of(&hal_devices[i]);
    hal_lock(&allocator->lock);
    const int is_used = allocator->stats.counter[0][HAL_MEM_ALLOCATION].allocated ||
                        allocator->stats.counter[1][HAL_MEM_ALLOCATION].allocated || allocator->map;
    hal_unlock(&allocator->lock);
    if (is_used)
      return hal_error_set(HAL_FAILED_PRECONDITION,
                           "device %s has already allocated memory; change the allocator before the first allocation",
                           hal_devices[i].label);
  }
  process_calls = calls ? *calls : (hal_memory_allocator_t){.struct_size = 0};
  for (int32_t i = 0; i < hal_registry.device_count; i++)
    if (hal_device_is_alive(&hal_devices[i])) hal_allocator_of(&hal_devices[i])->custom = process_calls;
  return HAL_OK;
}

/* ---- segments of private pools ---- */

void hal_mem_custom_add(hal_allocator_t *allocator, hal_mem_custom_t *custom) {
  custom->next = allocator->customs;
  allocator->customs = custom;
}

hal_mem_custom_t *hal_mem_custom_take(hal_allocator_t *allocator, const void *address) {
  hal_mem_custom_t **link = &allocator->customs;
  while (*link && (*link)->address != address) link = &(*link)->next;
  hal_mem_custom_t *const custom = *link;
  if (custom) *link = custom->next;
  return custom;
}

void hal_mem_custom_release(hal_mem_custom_t *custom) {
  release(&custom->calls, custom->stream, custom->address, custom->size);
  hal_free(custom);
}

/* Returns whether a pool has segments in a subtree of the address map. */
static int has_segments(const hal_block_t *node, const hal_mem_pool_t *pool) {
  return node && (node->pool == pool || has_segments(node->left, pool) || has_segments(node->right, pool));
}

/* Frees the unused segments of a pool that has ended, and the pool if it has no others. */
static size_t trim(hal_allocator_t *allocator, hal_mem_pool_t *pool) {
  hal_mem_pool_pin(pool);
  const size_t freed = hal_mem_segment_trim(pool, SIZE_MAX);
  hal_mem_pool_unpin(pool);
  if (pool->pins || has_segments(allocator->map, pool)) return freed;
  hal_mem_pool_t **link = &allocator->orphans;
  while (*link && *link != pool) link = &(*link)->displaced;
  if (!*link) return freed;
  *link = pool->displaced;
  hal_free(pool);
  return freed;
}

void hal_mem_custom_orphan(hal_allocator_t *allocator, hal_mem_pool_t *pool) {
  pool->owner = NULL;
  pool->displaced = allocator->orphans;
  allocator->orphans = pool;
  trim(allocator, pool);
}

size_t hal_mem_custom_trim(hal_allocator_t *allocator) {
  size_t freed = 0, count = 0;
  for (const hal_mem_pool_t *pool = allocator->orphans; pool; pool = pool->displaced) count++;
  while (count--) { /* the list may change while the lock is released */
    hal_mem_pool_t *pool = allocator->orphans;
    for (size_t i = 0; pool && i < count; i++) pool = pool->displaced;
    if (pool) freed += trim(allocator, pool);
  }
  return freed;
}

void hal_mem_custom_close(hal_allocator_t *allocator) {
  while (allocator->customs) hal_mem_custom_release(hal_mem_custom_take(allocator, allocator->customs->address));
}

/* ---- raw memory ---- */

hal_status_t hal_memory_raw_allocate(int32_t index, size_t size, void **out_address) {
  hal_device_t *device;
  void *address = NULL;
  if (!size || !out_address)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_memory_raw_allocate: %zu bytes, out_address %p; expected neither 0 nor NULL", size,
                         (void *)out_address);
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  const hal_status_t status = hal_call_memory_alloc(device->plugin, device->ordinal, size, 0, &address);
  HAL_RETURN_IF_ERROR(hal_error_plugin_made(device->plugin, HAL_SLOT_memory_alloc, status, address));
  *out_address = address;
  return HAL_OK;
}

hal_status_t hal_memory_raw_free(int32_t index, void *address) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  return hal_error_plugin(device->plugin, HAL_SLOT_memory_free,
                          hal_call_memory_free(device->plugin, device->ordinal, address));
}
