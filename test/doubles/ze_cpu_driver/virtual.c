/* virtual.c: addresses without memory, and memory without addresses: unnamed files that are mapped there. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

enum { PAGE = 65536 };

typedef struct physical_s {
  int file;
  size_t size;
  device_t *device;
} physical_t;

static int is_whole(const void *ptr, size_t size) { return size && !(size % PAGE) && !((uintptr_t)ptr % 4096); }

static ze_result_t page_size(ze_context_handle_t context, ze_device_handle_t device, size_t size, size_t *out_size) {
  (void)context, (void)device, (void)size;
  if (driver_lacks("virtual")) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  *out_size = PAGE;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t reserve(ze_context_handle_t context, const void *start, size_t size, void **out) {
  (void)context, (void)start;
  if (!is_whole(NULL, size)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  void *const base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  const ze_result_t code = memory_note(base, size, RANGE_RESERVED, &devices[0]);
  if (code) munmap(base, size);
  if (!code) *out = base;
  return code;
}

static ze_result_t release(ze_context_handle_t context, const void *ptr, size_t size) {
  (void)context;
  size_t whole = 0;
  const ze_result_t code = memory_forget(ptr, RANGE_RESERVED, &whole);
  if (code) return code;
  munmap((void *)(uintptr_t)ptr, whole);
  return whole == size ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

static int protection(ze_memory_access_attribute_t access) {
  return access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE       ? PROT_NONE
         : access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? PROT_READ
                                                         : PROT_READ | PROT_WRITE;
}

static ze_result_t map(ze_context_handle_t context, const void *ptr, size_t size, ze_physical_mem_handle_t memory,
                       size_t offset, ze_memory_access_attribute_t access) {
  (void)context;
  const physical_t *const physical = (const physical_t *)memory;
  if (!is_whole(ptr, size) || offset % PAGE) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  if (offset > physical->size || size > physical->size - offset || memory_check(ptr, size))
    return ZE_RESULT_ERROR_INVALID_SIZE;
  void *const at = (void *)(uintptr_t)ptr;
  return mmap(at, size, protection(access), MAP_SHARED | MAP_FIXED, physical->file, (off_t)offset) == at
             ? ZE_RESULT_SUCCESS
             : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

static ze_result_t unmap(ze_context_handle_t context, const void *ptr, size_t size) {
  (void)context;
  void *const at = (void *)(uintptr_t)ptr;
  if (!is_whole(ptr, size) || memory_check(ptr, size)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at
             ? ZE_RESULT_SUCCESS
             : ZE_RESULT_ERROR_UNKNOWN;
}

static ze_result_t set_access(ze_context_handle_t context, const void *ptr, size_t size,
                              ze_memory_access_attribute_t access) {
  (void)context;
  if (!is_whole(ptr, size) || memory_check(ptr, size)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  return mprotect((void *)(uintptr_t)ptr, size, protection(access)) ? ZE_RESULT_ERROR_INVALID_ARGUMENT
                                                                    : ZE_RESULT_SUCCESS;
}

static ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, ze_physical_mem_desc_t *desc,
                          ze_physical_mem_handle_t *out) {
  (void)context;
  device_t *const owner = (device_t *)device;
  if (!is_whole(NULL, desc->size)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  if (fault_takes(FAULT_ALLOC) || !memory_take_bytes(owner, desc->size)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  physical_t *const physical = malloc(sizeof *physical);
  const int file = physical ? memfd_create("dmabuf", MFD_CLOEXEC) : -1;
  if (file < 0 || ftruncate(file, (off_t)desc->size)) {
    if (file >= 0) close(file);
    free(physical);
    memory_return_bytes(owner, desc->size);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  }
  *physical = (physical_t){file, desc->size, owner};
  *out = (ze_physical_mem_handle_t)physical;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t destroy(ze_context_handle_t context, ze_physical_mem_handle_t memory) {
  (void)context;
  physical_t *const physical = (physical_t *)memory;
  memory_return_bytes(physical->device, physical->size);
  close(physical->file);
  free(physical);
  return ZE_RESULT_SUCCESS;
}

void virtual_fill_tables(ze_virtual_mem_dditable_t *addresses, ze_physical_mem_dditable_t *memories) {
  if (addresses) {
    addresses->pfnReserve = reserve;
    addresses->pfnFree = release;
    addresses->pfnQueryPageSize = page_size;
    addresses->pfnMap = map;
    addresses->pfnUnmap = unmap;
    addresses->pfnSetAccessAttribute = set_access;
  }
  if (memories) {
    memories->pfnCreate = create;
    memories->pfnDestroy = destroy;
  }
}
