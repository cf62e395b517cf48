/* host_memory.c: the public functions of page-locked host memory: allocate, free, uses, owner, cache. */
#include "hal/host_memory.h"
#include "base/life.h"

#include <stdint.h>
#include <stdio.h>

#include "memory/history.h"
#include "memory/host_memory_block.h"
#include "plugin/slots.h"

/* ---- allocate ---- */

static hal_status_t exhausted(hal_allocator_t *allocator, size_t size, const char *cause) {
  hal_lock(&allocator->lock);
  const long long used = allocator->host.stats.active_bytes.current;
  const long long held = allocator->host.stats.allocated_bytes.current;
  hal_mem_host_history_exhausted(allocator, size);
  hal_unlock(&allocator->lock);
  return hal_error_set(HAL_RESOURCE_EXHAUSTED,
                       "out of page-locked host memory for device %s: tried to allocate %zu bytes; %lld bytes are in "
                       "use, %lld are cached. Free pinned memory that is no longer needed, or raise the system's limit "
                       "of locked memory (ulimit -l) (%s)",
                       allocator->device->label, size, used, held - used, cause);
}

/* Returns a cached block, whose allocation it records; NULL if there is none. */
static hal_block_t *reuse(hal_allocator_t *allocator, uint32_t class, size_t size) {
  hal_block_t *const block = hal_mem_host_reuse(allocator, class, size);
  if (block) hal_mem_history_allocated(allocator, block);
  return block;
}

/* Takes a cached block, or a new one. If memory is exhausted, it first waits for all streams that use blocks and frees
 * all cached blocks. The caller holds the lock, which is released while waiting. */
static hal_status_t take(hal_allocator_t *allocator, size_t size, hal_block_t **out_block) {
  hal_block_t *ready = NULL;
  size_t rounded;
  const uint32_t class = hal_mem_host_class(size, &rounded);
  *out_block = reuse(allocator, class, size);
  if (*out_block) return HAL_OK;
  const hal_status_t status = hal_mem_host_create(allocator, rounded, size, out_block);
  if (status != HAL_RESOURCE_EXHAUSTED) return status;
  hal_mem_pending_drain(allocator, &ready);
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready); /* may also free host memory */
  hal_lock(&allocator->lock);
  *out_block = reuse(allocator, class, size);
  if (*out_block) return HAL_OK;
  hal_mem_host_trim(allocator, 0);
  return hal_mem_host_create(allocator, rounded, size, out_block);
}

/* Allocates more than 0 bytes. */
static hal_status_t allocate(hal_allocator_t *allocator, size_t size, void **out_address) {
  hal_block_t *block = NULL, *ready = NULL;
  hal_lock(&allocator->lock);
  hal_mem_pending_poll(allocator, &ready);
  hal_mem_host_trim(allocator, HAL_MEM_HOST_UNCACHED);
  const hal_status_t status = take(allocator, size, &block);
  char cause[256] = "";
  if (status) snprintf(cause, sizeof(cause), "%s", hal_error_message());
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready);
  if (status == HAL_RESOURCE_EXHAUSTED) return exhausted(allocator, size, cause);
  if (status) return hal_error_set(status, "allocating %zu bytes of host memory: %s", size, cause);
  *out_address = block->address; /* the caller's until it is freed */
  return HAL_OK;
}

/* hal_host_allocate without the cache hit. */
static hal_status_t __attribute__((noinline))
allocate_slow(hal_allocator_t *allocator, size_t size, void **out_address) {
  if (HAL_LIKELY(!hal_mem_host_is_recorded(allocator))) return allocate(allocator, size, out_address);
  hal_mem_scope_t scope;
  hal_mem_host_history_enter(allocator, HAL_MEMORY_STACKS_LIVE, &scope);
  const hal_status_t status = allocate(allocator, size, out_address);
  hal_mem_history_leave(allocator, &scope);
  return status;
}

/* Whether no block waits for events, none is about to be freed, and nothing is recorded. The caller holds the lock. */
static inline int is_quiet(const hal_allocator_t *allocator) {
  return HAL_LIKELY(!atomic_load_explicit(&allocator->pending, memory_order_relaxed) &&
                    !allocator->host.bins[HAL_MEM_HOST_UNCACHED]);
}

hal_status_t hal_host_allocate(int32_t index, size_t size, void **out_address) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  if (!size) {
    *out_address = NULL;
    return HAL_OK;
  }
  if (size > HAL_MEM_HOST_MOST) {
    return hal_error_set(
        HAL_RESOURCE_EXHAUSTED,
        "hal_host_allocate: %zu bytes of host memory for device %s: no machine has so much; the size is "
        "probably the result of an overflow or a negative number",
        size, device->label);
  }
  hal_allocator_t *allocator = hal_allocator_of(device);
  size_t rounded;
  const uint32_t class = hal_mem_host_class(size, &rounded);
  hal_lock(&allocator->lock);
  hal_block_t *const block = is_quiet(allocator) ? hal_mem_host_reuse(allocator, class, size) : NULL;
  hal_unlock(&allocator->lock);
  if (HAL_UNLIKELY(!block)) return allocate_slow(allocator, size, out_address);
  *out_address = block->address; /* the caller's until it is freed */
  return HAL_OK;
}

/* ---- by address ---- */

/* Returns the block that contains an address, with its allocator locked; NULL if there is none. In a forked child no
 * device is ready, so none is searched. */
static hal_block_t *lock_owner(const void *address) {
  for (int32_t i = 0; i < hal_registry.device_count; i++) {
    hal_device_t *device = &hal_devices[i];
    if (!hal_device_is_alive(device)) continue;
    hal_lock(&hal_allocator_of(device)->lock);
    hal_block_t *block = hal_mem_map_find(hal_allocator_of(device)->host.map, (uintptr_t)address);
    if (block) return block;
    hal_unlock(&hal_allocator_of(device)->lock);
  }
  return NULL;
}

static int is_used(const hal_block_t *block) { return block->state == HAL_MEM_SPECIAL; }

static hal_status_t not_ours(const void *address) {
  if (hal_life_ended()) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "hal_host_free: %p is not memory of hal_host_allocate; free it by its own counterpart", address);
}

/* Frees the memory at an address in a block. Called with the lock held, which it releases. */
static hal_status_t free_block(hal_allocator_t *allocator, hal_block_t *block, void *address) {
  hal_block_t *ready = NULL;
  const char *base = block->address;
  const int used = is_used(block), good = used && base == address;
  if (good) {
    hal_mem_history_requested(allocator, block);
    hal_mem_block_end(allocator, block, 0, &ready);
  }
  hal_mem_pending_poll(allocator, &ready);
  hal_mem_host_trim(allocator, HAL_MEM_HOST_UNCACHED);
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready);
  if (good) return HAL_OK;
  if (!used) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_host_free: %p was freed before; free it once", address);
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "hal_host_free: %p is %zu bytes inside the allocation at %p; free that address", address,
                       (size_t)((const char *)address - base), (const void *)base);
}

/* hal_host_free for a block that other streams use, is recorded, or is not to be freed. Called with the lock held,
 * which it releases. */
static hal_status_t __attribute__((noinline)) free_slow(hal_allocator_t *allocator, hal_block_t *block, void *address) {
  if (HAL_LIKELY(!hal_mem_host_is_recorded(allocator))) return free_block(allocator, block, address);
  hal_mem_scope_t scope;
  hal_unlock(&allocator->lock);
  hal_mem_host_history_enter(allocator, HAL_MEMORY_STACKS_ALL, &scope);
  block = lock_owner(address); /* another thread may have freed it meanwhile */
  const hal_status_t status = block ? free_block(allocator, block, address) : not_ours(address);
  hal_mem_history_leave(allocator, &scope);
  return status;
}

hal_status_t hal_host_free(void *address) {
  if (!address) return HAL_OK;
  hal_block_t *const block = lock_owner(address);
  if (!block) return not_ours(address);
  hal_allocator_t *const allocator = block->pool->allocator;
  if (HAL_UNLIKELY(!is_used(block) || block->address != address || block->uses || !is_quiet(allocator)))
    return free_slow(allocator, block, address);
  hal_mem_host_return(allocator, block);
  hal_mem_host_trim(allocator, HAL_MEM_HOST_UNCACHED);
  hal_unlock(&allocator->lock);
  return HAL_OK;
}

hal_status_t hal_host_record_stream(const void *address, hal_stream_t *stream) {
  hal_block_t *block = lock_owner(address);
  if (!block) {
    return hal_error_set(HAL_NOT_FOUND, "hal_host_record_stream: %p is not memory of hal_host_allocate", address);
  }
  hal_allocator_t *allocator = block->pool->allocator;
  const int used = is_used(block);
  const hal_status_t status =
      used ? hal_mem_block_use(allocator, block, hal_stream_or_current(allocator->device, stream)) : HAL_NOT_FOUND;
  hal_unlock(&allocator->lock);
  if (used) return status;
  return hal_error_set(HAL_NOT_FOUND, "hal_host_record_stream: %p was freed; record its streams before that", address);
}

hal_status_t hal_host_find(const void *address, int32_t *out_device) {
  hal_block_t *block = lock_owner(address);
  if (block) {
    const hal_device_t *device = block->pool->allocator->device;
    const int pinned = is_used(block) && hal_slot_is_provided(&device->plugin->api, HAL_SLOT_host_alloc);
    hal_unlock(&block->pool->allocator->lock);
    if (pinned) {
      *out_device = device->index;
      return HAL_OK;
    }
  } else if (hal_mem_ask_plugins(address, 1, out_device)) {
    return HAL_OK;
  }
  return hal_error_set(HAL_NOT_FOUND, "address %p is not page-locked for a device", address);
}

hal_status_t hal_host_device_pointer(const void *address, int32_t index, void **out_address) {
  hal_device_t *device = NULL;
  int32_t owner = -1;
  void *found = NULL;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  HAL_RETURN_IF_ERROR(hal_host_find(address, &owner));
  const hal_plugin_t *const theirs = hal_devices[owner].plugin;
  if (theirs != device->plugin)
    return hal_error_set(HAL_NOT_FOUND,
                         "hal_host_device_pointer: %p is page-locked for device %s, of another plugin than device %s; "
                         "allocate it with hal_host_allocate(%d, ...)",
                         address, hal_device_label(owner), device->label, (int)index);
  const hal_status_t status =
      hal_call_host_device_pointer(device->plugin, device->ordinal, (void *)(uintptr_t)address, &found);
  if (status == HAL_UNIMPLEMENTED)
    return hal_error_set(status, "kernels of device %s cannot access host memory; copy it with hal_memory_copy",
                         device->label);
  HAL_RETURN_IF_ERROR(hal_error_plugin_made(device->plugin, HAL_SLOT_host_device_pointer, status, found));
  *out_address = found;
  return HAL_OK;
}

/* ---- cache ---- */

static void empty_cache(hal_allocator_t *allocator) {
  hal_block_t *ready = NULL;
  hal_mem_scope_t scope;
  const int is_recorded = hal_mem_host_is_recorded(allocator);
  if (is_recorded) hal_mem_host_history_enter(allocator, HAL_MEMORY_STACKS_ALL, &scope);
  hal_lock(&allocator->lock);
  hal_mem_pending_poll(allocator, &ready);
  hal_mem_host_trim(allocator, 0);
  hal_unlock(&allocator->lock);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  hal_mem_ready_run(ready);
}

hal_status_t hal_host_empty_cache(int32_t index) {
  hal_device_t *device;
  if (index != -1) {
    HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
    empty_cache(hal_allocator_of(device));
    return HAL_OK;
  }
  for (int32_t i = 0; i < hal_registry.device_count; i++) { /* a device that was not used has no blocks */
    device = &hal_devices[i];
    if (hal_device_is_alive(device)) empty_cache(hal_allocator_of(device));
  }
  return HAL_OK;
}

/* ---- memory of the caller ---- */

/* Creates the record of registered memory, which the history lists; NULL if the host has no memory. */
static hal_block_t *create_record(hal_allocator_t *allocator, void *address, size_t size) {
  hal_lock(&allocator->lock);
  hal_block_t *const block = hal_mem_slab_take(&allocator->blocks);
  if (block)
    *block = (hal_block_t){.address = address,
                           .size = size,
                           .requested = size,
                           .pool = &allocator->foreign[HAL_MEM_HOST][0],
                           .state = HAL_MEM_SPECIAL};
  hal_unlock(&allocator->lock);
  return block;
}

static hal_status_t register_memory(hal_allocator_t *allocator, void *address, size_t size) {
  const hal_device_t *const device = allocator->device;
  hal_block_t *const block = create_record(allocator, address, size);
  if (!block) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  const hal_status_t status =
      hal_error_plugin(device->plugin, HAL_SLOT_host_register,
                       hal_call_host_register(device->plugin, device->ordinal, address, size, 0));
  hal_lock(&allocator->lock);
  if (status) {
    hal_mem_block_forget(allocator, block);
  } else {
    hal_mem_map_insert(&allocator->host.registered, block, size);
    hal_mem_history_segment(allocator, block);
    hal_mem_history_allocated(allocator, block);
  }
  hal_unlock(&allocator->lock);
  return status;
}

hal_status_t hal_host_register(int32_t index, void *address, size_t size) {
  hal_device_t *device;
  int32_t of = 0;
  uintptr_t end;
  if (!address || !size || __builtin_add_overflow((uintptr_t)address, size, &end))
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_host_register: invalid range of %zu bytes at %p", size, address);
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  if (!hal_host_find(address, &of))
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_host_register: memory at %p is page-locked already, for device %s",
                         address, hal_device_label(of));
  hal_allocator_t *const allocator = hal_allocator_of(device);
  hal_mem_scope_t scope;
  const int is_recorded = hal_mem_host_is_recorded(allocator);
  if (is_recorded) hal_mem_host_history_enter(allocator, HAL_MEMORY_STACKS_LIVE, &scope);
  const hal_status_t status = register_memory(allocator, address, size);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  return status;
}

/* Returns the record of registered memory, which only its unregistration removes; NULL if there is none. */
static hal_block_t *find_record(hal_allocator_t *allocator, const void *address) {
  hal_lock(&allocator->lock);
  hal_block_t *const block = hal_mem_map_find(allocator->host.registered, (uintptr_t)address);
  hal_unlock(&allocator->lock);
  return block && block->address == address ? block : NULL;
}

static void end_record(hal_allocator_t *allocator, hal_block_t *block) {
  hal_lock(&allocator->lock);
  hal_mem_map_remove(&allocator->host.registered, block);
  hal_mem_history_requested(allocator, block);
  hal_mem_history_freed(allocator, block);
  hal_mem_history_segment_freed(allocator, block);
  hal_mem_block_forget(allocator, block);
  hal_unlock(&allocator->lock);
}

hal_status_t hal_host_unregister(int32_t index, void *address) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  hal_allocator_t *const allocator = hal_allocator_of(device);
  hal_mem_scope_t scope;
  const int is_recorded = hal_mem_host_is_recorded(allocator);
  if (is_recorded) hal_mem_host_history_enter(allocator, HAL_MEMORY_STACKS_ALL, &scope);
  /* Found before the call, after which another thread may register the address again. */
  hal_block_t *const block = find_record(allocator, address);
  const hal_status_t status = hal_error_plugin(device->plugin, HAL_SLOT_host_unregister,
                                               hal_call_host_unregister(device->plugin, device->ordinal, address));
  if (block && !status) end_record(allocator, block);
  if (is_recorded) hal_mem_history_leave(allocator, &scope);
  return status;
}
