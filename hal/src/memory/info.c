/* info.c: the size of memory, the device of an address, and the limit. */
#include "base/life.h"
#include "memory/internal.h"

/* HAL_UNIMPLEMENTED = the plugin does not report it. */
static hal_status_t query_plugin(const hal_device_t *device, size_t *out_free, size_t *out_total) {
  const hal_status_t status = hal_call_memory_info(device->plugin, device->ordinal, out_free, out_total);
  if (!status || status == HAL_UNIMPLEMENTED) return status;
  return hal_error_plugin(device->plugin, HAL_SLOT_memory_info, status);
}

hal_status_t hal_memory_info(int32_t index, size_t *out_free, size_t *out_total) {
  hal_device_t *device;
  size_t free_bytes = 0, total = 0;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  const hal_status_t status = query_plugin(device, &free_bytes, &total);
  if (status && status != HAL_UNIMPLEMENTED) return status;
  if (status) {
    hal_allocator_t *allocator = hal_allocator_of(device);
    hal_lock(&allocator->lock);
    const size_t capacity = hal_mem_capacity(allocator), taken = (size_t)hal_mem_reserved(allocator);
    const size_t used = (size_t)hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATED_BYTES);
    hal_unlock(&allocator->lock);
    const int known = capacity != SIZE_MAX;
    total = known ? capacity : taken;
    free_bytes = known ? (total > taken ? total - taken : 0) : taken > used ? taken - used : 0;
  }
  *out_free = free_bytes;
  *out_total = total;
  return HAL_OK;
}

hal_status_t hal_memory_capacity(int32_t index, size_t *out_bytes) {
  hal_device_t *device;
  size_t free_bytes = 0, total = 0;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  const hal_status_t status = query_plugin(device, &free_bytes, &total);
  if (status && status != HAL_UNIMPLEMENTED) return status;
  if (status) total = (size_t)device->info.total_memory;
  if (!total)
    return hal_error_set(
        HAL_NOT_FOUND,
        "the memory of device %s is unknown; its plugin would report it by memory_info, or by total_memory "
        "of device_info",
        device->label);
  *out_bytes = total;
  return HAL_OK;
}

hal_status_t hal_memory_set_limit(int32_t index, size_t bytes) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  hal_lock(&hal_allocator_of(device)->lock);
  hal_allocator_of(device)->limit = bytes;
  hal_unlock(&hal_allocator_of(device)->lock);
  return HAL_OK;
}

int hal_mem_ask_plugins(const void *address, int pinned, int32_t *out_device) {
  /* After a fork or hal_registry_close the plugins must not be called. */
  if (hal_life_ended()) return 0;
  for (int32_t i = 0; i < hal_registry.plugin_count; i++) {
    hal_plugin_t *plugin = &hal_registry.plugins[i];
    hal_pointer_info_t info = {.struct_size = sizeof(info), .device = HAL_HOST};
    if (atomic_load_explicit(&plugin->state, memory_order_acquire) != HAL_PLUGIN_READY) continue;
    if (hal_call_memory_pointer_info(plugin, address, &info)) continue;
    const int32_t place = hal_plugin_place_of(plugin, info.device);
    const int of_device = place >= 0;
    if (pinned ? info.kind != HAL_POINTER_PINNED : !of_device) continue;
    /* pinned memory may belong to all devices of the plugin */
    *out_device = plugin->first_device + (of_device ? place : 0);
    return 1;
  }
  return 0;
}

/* Returns the block that contains an address, where `first` is the first block of its memory; NULL if there is none.
 * The caller holds the lock. */
static hal_block_t *block_at(hal_block_t *first, const void *address) {
  hal_block_t *block = first;
  while (block && (uintptr_t)address - (uintptr_t)block->address >= block->size) block = block->next;
  return block;
}

static int is_used(const hal_block_t *block) {
  return block->state == HAL_MEM_PLAIN || block->state == HAL_MEM_SPECIAL;
}

/* Returns whether a block of an expandable segment is only a range of addresses. */
static int is_addresses(const hal_block_t *block) {
  return block->state == HAL_MEM_UNMAPPED || block->state == HAL_MEM_MOVING;
}

/* Finds the memory that contains an address: its device, and the block in use there, NULL if it is free. Returns
 * whether there is a device. */
static int find_memory(const void *address, int32_t *out_device, hal_block_t **out_block) {
  for (int32_t i = 0; i < hal_registry.device_count; i++) {
    hal_device_t *device = &hal_devices[i];
    if (!hal_device_is_alive(device)) continue;
    hal_lock(&hal_allocator_of(device)->lock);
    hal_block_t *const first = hal_mem_map_find(hal_allocator_of(device)->map, (uintptr_t)address);
    hal_block_t *const block = first ? block_at(first, address) : NULL;
    const int found = first && !(block && is_addresses(block));
    *out_block = block && is_used(block) ? block : NULL;
    hal_unlock(&hal_allocator_of(device)->lock);
    if (!found) continue;
    *out_device = i;
    return 1;
  }
  return 0;
}

hal_status_t hal_memory_find_block(const void *address, hal_block_t **out_block) {
  int32_t device;
  hal_block_t *block = NULL;
  if (!out_block) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_find_block: out_block is NULL");
  if (!find_memory(address, &device, &block) || !block)
    return hal_error_set(HAL_NOT_FOUND, "address %p is in no block that is in use", address);
  *out_block = block;
  return HAL_OK;
}

hal_status_t hal_memory_find(const void *address, int32_t *out_device) {
  hal_block_t *block;
  if (find_memory(address, out_device, &block)) return HAL_OK;
  if (hal_mem_ask_plugins(address, 0, out_device)) return HAL_OK;
  return hal_error_set(HAL_NOT_FOUND, "address %p is not memory of a device; is it host memory?", address);
}
