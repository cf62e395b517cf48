/* memory.c: unified shared memory: host memory, with an account of whose it is. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef struct range_s {
  char *base;
  size_t size;
  ze_memory_type_t type;
  device_t *device;
  uint64_t id;
  struct range_s *next;
} range_t;

static range_t *ranges;
static uint64_t last_id;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Bytes of a device: ZE_CPU_MEMORY, 8 GiB otherwise. */
static unsigned long long limit(void) {
  const char *const text = getenv("ZE_CPU_MEMORY");
  const unsigned long long bytes = text ? strtoull(text, NULL, 10) : 0;
  return bytes ? bytes : 8ull << 30;
}

static ze_result_t take(size_t size, size_t alignment, ze_memory_type_t type, device_t *device, void **out) {
  enum { LEAST_ALIGNMENT = 256 };
  void *base = NULL;
  if (alignment & (alignment - 1)) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  if (!size || size > limit()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  if (device && atomic_load(&device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (fault_takes(device ? FAULT_ALLOC : FAULT_HOST))
    return device ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (device && atomic_fetch_add(&device->used, size) + size > limit()) {
    atomic_fetch_sub(&device->used, size);
    return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  range_t *const range = calloc(1, sizeof *range);
  if (!range || posix_memalign(&base, alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT, size)) {
    free(range);
    if (device) atomic_fetch_sub(&device->used, size);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  }
  pthread_mutex_lock(&lock);
  *range = (range_t){.base = base, .size = size, .type = type, .device = device, .id = ++last_id, .next = ranges};
  ranges = range;
  pthread_mutex_unlock(&lock);
  *out = base;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t alloc_shared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *device_desc,
                                const ze_host_mem_alloc_desc_t *host_desc, size_t size, size_t alignment,
                                ze_device_handle_t device, void **out) {
  (void)context, (void)device_desc, (void)host_desc;
  return take(size, alignment, ZE_MEMORY_TYPE_SHARED, (device_t *)device, out);
}

static ze_result_t alloc_device(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                size_t alignment, ze_device_handle_t device, void **out) {
  (void)context, (void)desc;
  return take(size, alignment, ZE_MEMORY_TYPE_DEVICE, (device_t *)device, out);
}

static ze_result_t alloc_host(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                              size_t alignment, void **out) {
  (void)context, (void)desc;
  return take(size, alignment, ZE_MEMORY_TYPE_HOST, NULL, out);
}

static ze_result_t give_back(ze_context_handle_t context, void *ptr) {
  (void)context;
  pthread_mutex_lock(&lock);
  range_t **at = &ranges;
  while (*at && (*at)->base != ptr) at = &(*at)->next;
  range_t *const range = *at;
  if (range) *at = range->next;
  pthread_mutex_unlock(&lock);
  if (!range) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (range->device) atomic_fetch_sub(&range->device->used, range->size);
  free(range->base);
  free(range);
  return ZE_RESULT_SUCCESS;
}

/* Copies what is known of the range that an address lies in. Returns 0 when it lies in none. */
static int find(const void *ptr, range_t *out_range) {
  pthread_mutex_lock(&lock);
  const range_t *range = ranges;
  while (range && (uintptr_t)ptr - (uintptr_t)range->base >= range->size) range = range->next;
  if (range) *out_range = *range;
  pthread_mutex_unlock(&lock);
  return range != NULL;
}

ze_result_t memory_check(const void *ptr, size_t size) {
  range_t range;
  if (!ptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (!find(ptr, &range)) return ZE_RESULT_SUCCESS; /* the host's own */
  const size_t offset = (size_t)((const char *)ptr - range.base);
  return size <= range.size - offset ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_SIZE;
}

static ze_result_t properties(ze_context_handle_t context, const void *ptr, ze_memory_allocation_properties_t *out,
                              ze_device_handle_t *out_device) {
  (void)context;
  range_t range = {.type = ZE_MEMORY_TYPE_UNKNOWN};
  find(ptr, &range);
  out->type = range.type;
  out->id = range.id;
  out->pageSize = 4096;
  if (out_device) *out_device = (ze_device_handle_t)range.device;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t address_range(ze_context_handle_t context, const void *ptr, void **out_base, size_t *out_size) {
  (void)context;
  range_t range;
  if (!find(ptr, &range)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (out_base) *out_base = range.base;
  if (out_size) *out_size = range.size;
  return ZE_RESULT_SUCCESS;
}

void memory_fill_table(ze_mem_dditable_t *table) {
  table->pfnAllocShared = alloc_shared;
  table->pfnAllocDevice = alloc_device;
  table->pfnAllocHost = alloc_host;
  table->pfnFree = give_back;
  table->pfnGetAllocProperties = properties;
  table->pfnGetAddressRange = address_range;
}
