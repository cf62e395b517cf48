/* memory.c: memory. A segment is a buffer. Where the host accesses device memory, the address of a segment is where it
 * is mapped. Elsewhere it is a range of reserved address space without permissions, so that addresses of all devices
 * differ from each other and from those of the host. Calls translate an address to a buffer and an offset. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph.h"

/* ---- segments --------------------------------------------------------------------------------------------------- */

void vulkan_segment_destroy(vulkan_segment_t *segment) {
  vulkan_device_t *const device = &vulkan.devices[segment->device];
  vk.DestroyBuffer(device->handle, segment->buffer, NULL);
  vk.FreeMemory(device->handle, segment->memory, NULL); /* which also unmaps it */
  if (segment->reserved) munmap(segment->base, segment->reserved);
  if (segment->kind == VULKAN_OWN) {
    atomic_fetch_sub(&device->used, segment->bytes);
    atomic_fetch_sub(&device->shareable, (uint32_t)segment->is_shareable);
  }
  vulkan_export_close(segment->exported);
  hal_host->mem_free(segment);
}

/* Counts bytes of device memory. Drivers for CPUs accept allocations beyond the size of the heap that they report. */
static VkResult count_bytes(vulkan_device_t *device, vulkan_segment_t *segment, VkDeviceSize bytes) {
  segment->bytes = bytes;
  if (segment->kind != VULKAN_OWN) return VK_SUCCESS;
  const uint64_t before = atomic_fetch_add(&device->used, bytes);
  return before > device->heap_bytes || bytes > device->heap_bytes - before ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                                                                            : VK_SUCCESS;
}

/* Creates the segment's buffer, with the size that it has in all processes. */
static VkResult create_buffer(const vulkan_device_t *device, vulkan_segment_t *segment, VkMemoryRequirements *needs) {
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .pNext = segment->is_shareable ? &external : NULL,
                                   .size = segment->size + VULKAN_ALIGNMENT,
                                   .usage = VULKAN_BUFFER_USAGE};
  const VkResult code = vk.CreateBuffer(device->handle, &info, NULL, &segment->buffer);
  if (!code) vk.GetBufferMemoryRequirements(device->handle, segment->buffer, needs);
  return code;
}

/* Allocates the memory of the buffer: new memory, or, if `file` is not -1, another process's. */
static VkResult bind_memory(const vulkan_device_t *device, vulkan_segment_t *segment, int file) {
  const uint32_t handle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  const VkMemoryDedicatedAllocateInfo dedicated = {.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
                                                   .buffer = segment->buffer};
  const void *const last = device->shares_dedicated ? &dedicated : NULL;
  const VkExportMemoryAllocateInfo export = {
      .sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .pNext = last, .handleTypes = handle};
  const VkImportMemoryFdInfoKHR import = {
      .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, .pNext = last, .handleType = handle, .fd = file};
  const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = !segment->is_shareable ? NULL
                                                : file < 0             ? (const void *)&export
                                                                       : &import,
                                       .allocationSize = segment->bytes,
                                       .memoryTypeIndex = segment->type};
  const VkResult code = vk.AllocateMemory(device->handle, &memory, NULL, &segment->memory);
  return code ? code : vk.BindBufferMemory(device->handle, segment->buffer, segment->memory, 0);
}

static VkResult allocate(vulkan_device_t *device, vulkan_segment_t *segment) {
  VkMemoryRequirements needs = {0};
  VkResult code = create_buffer(device, segment, &needs);
  if (code) return code;
  if (needs.size > device->largest_allocation) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  code = count_bytes(device, segment, needs.size);
  return code ? code : bind_memory(device, segment, -1);
}

/* Sets the address of a segment. The offset of opened memory is that in its process. */
static VkResult place(vulkan_device_t *device, vulkan_segment_t *segment, int is_mapped) {
  void *at = NULL;
  if (is_mapped) {
    const VkResult code = vk.MapMemory(device->handle, segment->memory, 0, VK_WHOLE_SIZE, 0, &at);
    if (code) return code;
    if (segment->kind != VULKAN_OPENED) segment->shift = -(uintptr_t)at & (VULKAN_ALIGNMENT - 1);
    segment->base = segment->mapped = (char *)at + segment->shift;
    return VK_SUCCESS;
  }
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (segment->size + page - 1) / page * page;
  at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return VK_ERROR_OUT_OF_HOST_MEMORY;
  segment->base = at;
  segment->reserved = bytes;
  return VK_SUCCESS;
}

/* Returns NULL with a message if there is no memory. */
static vulkan_segment_t *make_segment(const vulkan_device_t *device, size_t size, int32_t kind) {
  vulkan_segment_t *const segment = hal_host->mem_alloc(sizeof *segment, alignof(vulkan_segment_t));
  if (segment)
    *segment = (vulkan_segment_t){.size = size, .device = device->ordinal, .kind = kind};
  else
    vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a segment; free some memory");
  return segment;
}

/* Returns whether other processes can open one segment more. */
static int take_shareable(vulkan_device_t *device) {
  if (!device->memory_file) return 0;
  if (atomic_fetch_add(&device->shareable, 1) < device->most_shareable) return 1;
  atomic_fetch_sub(&device->shareable, 1);
  return 0;
}

static hal_status_t create(vulkan_device_t *device, size_t size, int32_t kind, vulkan_segment_t **out_segment) {
  const int is_host = kind >= VULKAN_PINNED;
  if (size > device->largest_allocation || device->largest_allocation - size < VULKAN_ALIGNMENT)
    return vulkan_error(
        HAL_RESOURCE_EXHAUSTED, 0,
        "vulkan: tried to allocate %zu bytes on '%s', whose driver allocates at most %llu bytes at once "
        "(maxMemoryAllocationSize); use smaller tensors",
        size, device->facts.deviceName, (unsigned long long)device->largest_allocation);
  vulkan_segment_t *const segment = make_segment(device, size, kind);
  if (!segment) return HAL_RESOURCE_EXHAUSTED;
  segment->type = is_host ? device->host_type : device->device_type;
  segment->is_shareable = kind == VULKAN_OWN && take_shareable(device);
  VkResult code = allocate(device, segment);
  if (!code) code = place(device, segment, is_host || device->visible);
  if (!code) {
    *out_segment = segment;
    return HAL_OK;
  }
  vulkan_segment_destroy(segment);
  vulkan_noticed(device, code);
  return vulkan_driver_error(
      code,
      "vulkan: there are no %zu bytes of %s memory for '%s', which has %llu bytes in total; free "
      "some tensors",
      size, is_host ? "host" : "device", device->facts.deviceName, (unsigned long long)device->heap_bytes);
}

/* The type is that of another process: the driver's, but not necessarily one that this process selected. */
static int is_type(const vulkan_device_t *device, uint32_t type, uint32_t allowed) {
  const VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (type >= device->memory.memoryTypeCount || !(allowed >> type & 1)) return 0;
  return !device->visible || (device->memory.memoryTypes[type].propertyFlags & host) == host;
}

hal_status_t vulkan_segment_open(vulkan_device_t *device, const vulkan_foreign_t *foreign, int file,
                                 vulkan_segment_t **out_segment) {
  VkMemoryRequirements needs = {0};
  vulkan_segment_t *const segment = make_segment(device, foreign->size, VULKAN_OPENED);
  if (!segment) return HAL_RESOURCE_EXHAUSTED;
  segment->is_shareable = 1;
  segment->shift = foreign->shift;
  segment->bytes = foreign->bytes;
  segment->type = foreign->type;
  VkResult code = create_buffer(device, segment, &needs);
  if (!code && (needs.size > foreign->bytes || !is_type(device, foreign->type, needs.memoryTypeBits)))
    code = VK_ERROR_INVALID_EXTERNAL_HANDLE;
  if (!code) code = bind_memory(device, segment, file);
  if (!code) code = place(device, segment, device->visible);
  if (!code) {
    *out_segment = segment;
    return HAL_OK;
  }
  vulkan_segment_destroy(segment);
  vulkan_noticed(device, code);
  return vulkan_driver_error(code,
                             "vulkan: '%s' cannot open %zu bytes of another process; check that HAL_VULKAN_MEMORY is "
                             "the same in both processes, and free some memory",
                             device->facts.deviceName, (size_t)foreign->size);
}

/* ---- memory_alloc, host_alloc ----------------------------------------------------------------------------------- */

static hal_status_t add(int32_t ordinal, size_t size, uint32_t flags, int32_t kind, void **out_ptr) {
  const char *const op = kind == VULKAN_PINNED ? "vulkan: host_alloc" : "vulkan: memory_alloc";
  vulkan_segment_t *segment = NULL;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_flags_check(op, flags, 0);
  if (!status && !size) status = vulkan_error(HAL_INVALID_ARGUMENT, 0, "%s of 0 bytes; request at least one", op);
  if (!status) status = create(&vulkan.devices[ordinal], size, kind, &segment);
  if (status) return status;
  status = vulkan_map_add(segment);
  if (status)
    vulkan_segment_destroy(segment);
  else
    *out_ptr = segment->base;
  return status;
}

static hal_status_t take(int32_t ordinal, int32_t kind, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  vulkan_segment_t *const segment = vulkan_map_take(ordinal, kind, ptr);
  if (!segment)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: %s(%d, %p): this is not the start of an allocation of this device; free each once",
                        kind == VULKAN_PINNED ? "host_free" : "memory_free", (int)ordinal, ptr);
  vulkan_segment_destroy(segment);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = vulkan_capture_forbid(NULL, "memory_alloc");
  return status ? status : add(device, size, flags, VULKAN_OWN, out_ptr);
}
hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) { return take(device, VULKAN_OWN, ptr); }
hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  return add(device, size, flags, VULKAN_PINNED, out_ptr);
}
hal_status_t hal_plugin_host_free(int32_t device, void *ptr) { return take(device, VULKAN_PINNED, ptr); }

/* ---- host_register ---------------------------------------------------------------------------------------------- */

/* Returns a type of memory for imported memory, which the host and the device access without flushes. */
static uint32_t import_type(const vulkan_device_t *device, uint32_t allowed) {
  const VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (allowed & 1u << device->host_type) return device->host_type;
  for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++)
    if (allowed & 1u << i && (device->memory.memoryTypes[i].propertyFlags & host) == host) return i;
  return UINT32_MAX;
}

/* Creates the buffer of `bytes` bytes at `start`. */
static VkResult import_pages(vulkan_device_t *device, vulkan_segment_t *segment, void *start, VkDeviceSize bytes) {
  const uint32_t kind = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = kind};
  const VkBufferCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .pNext = &external, .size = bytes, .usage = VULKAN_BUFFER_USAGE};
  VkMemoryHostPointerPropertiesEXT facts = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  VkMemoryRequirements needs = {0};
  VkResult code = device->host_pointer(device->handle, kind, start, &facts);
  if (!code) code = vk.CreateBuffer(device->handle, &info, NULL, &segment->buffer);
  if (code) return code;
  vk.GetBufferMemoryRequirements(device->handle, segment->buffer, &needs);
  const uint32_t type = import_type(device, facts.memoryTypeBits & needs.memoryTypeBits);
  if (type == UINT32_MAX || needs.size > bytes) return VK_ERROR_FEATURE_NOT_PRESENT;
  const VkImportMemoryHostPointerInfoEXT import = {
      .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, .handleType = kind, .pHostPointer = start};
  const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &import,
                                       .allocationSize = bytes,
                                       .memoryTypeIndex = type};
  code = vk.AllocateMemory(device->handle, &memory, NULL, &segment->memory);
  return code ? code : vk.BindBufferMemory(device->handle, segment->buffer, segment->memory, 0);
}

/* Imports the whole pages that contain the memory. */
static hal_status_t import_memory(vulkan_device_t *device, void *ptr, size_t size, vulkan_segment_t **out_segment) {
  const uintptr_t unit = (uintptr_t)device->host_alignment, at = (uintptr_t)ptr, start = at / unit * unit;
  const VkDeviceSize bytes = (at - start + size + unit - 1) / unit * unit;
  vulkan_segment_t *const segment = make_segment(device, size, VULKAN_REGISTERED);
  if (!segment) return HAL_RESOURCE_EXHAUSTED;
  segment->base = segment->mapped = ptr;
  segment->shift = at - start;
  const VkResult code = import_pages(device, segment, (void *)start, bytes);
  if (!code) {
    *out_segment = segment;
    return HAL_OK;
  }
  vulkan_segment_destroy(segment);
  vulkan_noticed(device, code);
  return vulkan_driver_error(code, "vulkan: '%s' cannot page-lock %zu bytes at %p; copy them, or use host_alloc",
                             device->facts.deviceName, size, ptr);
}

hal_status_t hal_plugin_host_register(int32_t ordinal, void *ptr, size_t size, uint32_t flags) {
  vulkan_segment_t *segment = NULL;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_flags_check("vulkan: host_register", flags, 0);
  if (status) return status;
  vulkan_device_t *const device = &vulkan.devices[ordinal];
  if (!ptr || !size || size > PTRDIFF_MAX || (uintptr_t)ptr > UINTPTR_MAX - size)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: host_register of %zu bytes at %p", size, ptr);
  if (!device->host_pointer || !device->host_alignment)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: the driver of '%s' has no VK_EXT_external_memory_host, which page-locks memory of the "
                        "program; use host_alloc",
                        device->facts.deviceName);
  status = import_memory(device, ptr, size, &segment);
  if (status) return status;
  status = vulkan_map_add(segment);
  if (status) vulkan_segment_destroy(segment);
  return status;
}

hal_status_t hal_plugin_host_unregister(int32_t ordinal, void *ptr) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  vulkan_segment_t *const segment = vulkan_map_take(ordinal, VULKAN_REGISTERED, ptr);
  if (!segment)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: %p is not the start of memory of host_register", ptr);
  vulkan_segment_destroy(segment);
  return HAL_OK;
}

/* ---- questions about memory ------------------------------------------------------------------------------------- */

/* Launches translate the address of page-locked memory as they do addresses of the device. */
hal_status_t hal_plugin_host_device_pointer(int32_t ordinal, void *ptr, void **out_ptr) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  const vulkan_segment_t *const segment = vulkan_map_find(ptr);
  if (!segment || segment->kind < VULKAN_PINNED)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: %p is not in page-locked memory; allocate it with host_alloc, or register it", ptr);
  if (segment->device != ordinal)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: %p is page-locked memory of device %d, which device %d cannot access", ptr,
                        (int)segment->device, (int)ordinal);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  const vulkan_segment_t *const segment = atomic_load(&vulkan.forked) ? NULL : vulkan_map_find(ptr);
  if (!segment) return vulkan_error(HAL_NOT_FOUND, 0, "vulkan: %p is not in an allocation of this plugin", ptr);
  const int is_host = segment->kind >= VULKAN_PINNED;
  const hal_pointer_info_t info = {.struct_size = out_info->struct_size,
                                   .base = segment->base,
                                   .size = segment->size,
                                   .device = is_host ? HAL_HOST : segment->device,
                                   .kind = is_host ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* Other processes use the memory, too: VK_EXT_memory_budget reports what remains. */
hal_status_t hal_plugin_memory_info(int32_t ordinal, size_t *out_free, size_t *out_total) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  vulkan_device_t *const device = &vulkan.devices[ordinal];
  const uint64_t used = atomic_load(&device->used);
  uint64_t left = used < device->heap_bytes ? device->heap_bytes - used : 0;
  if (device->has_budget) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                .pNext = &budget};
    vk.GetPhysicalDeviceMemoryProperties2(device->physical, &memory);
    const uint64_t most = budget.heapBudget[device->heap], now = budget.heapUsage[device->heap];
    const uint64_t remains = most > now ? most - now : 0;
    if (remains < left) left = remains;
  }
  *out_free = (size_t)left;
  *out_total = (size_t)device->heap_bytes;
  return HAL_OK;
}

/* ---- staging memory --------------------------------------------------------------------------------------------- */

hal_status_t vulkan_chunk_take(vulkan_device_t *device, vulkan_segment_t **out_chunk) {
  pthread_mutex_lock(&device->lock);
  vulkan_segment_t *const chunk = device->chunks;
  if (chunk) device->chunks = chunk->next;
  pthread_mutex_unlock(&device->lock);
  if (!chunk) return create(device, VULKAN_CHUNK, VULKAN_PINNED, out_chunk);
  chunk->next = NULL;
  *out_chunk = chunk;
  return HAL_OK;
}

void vulkan_chunk_give(vulkan_device_t *device, vulkan_segment_t *chunk) {
  pthread_mutex_lock(&device->lock);
  chunk->next = device->chunks;
  device->chunks = chunk;
  pthread_mutex_unlock(&device->lock);
}
