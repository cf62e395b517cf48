/* memory.c: device memory. */
#include <stdio.h>
#include <string.h>

#include "opencl.h"

uint64_t ocl_memory_flags(void) { return HAL_DEVICE_HOST_VISIBLE; }

hal_status_t ocl_memory_choose(void) {
  for (int32_t i = 0; i < ocl.device_count; i++)
    if (!icd.clSVMAlloc || !(ocl.devices[i].svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER))
      return ocl_error(HAL_UNAVAILABLE, 0,
                       "opencl: '%s' has no fine-grained shared virtual memory, the only kind that is used",
                       ocl.devices[i].name);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  const hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  ocl_device_t *device = &ocl.devices[ordinal];
  if (!size || flags)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: memory_alloc(%d, %zu, flags 0x%x); the size must not be 0 and the flags must",
                     (int)ordinal, size, (unsigned)flags);
  if (size > device->most_bytes)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0,
                     "opencl: tried to allocate %zu bytes on '%s', whose driver gives at most %llu bytes at once "
                     "(CL_DEVICE_MAX_MEM_ALLOC_SIZE); use smaller tensors",
                     size, device->name, (unsigned long long)device->most_bytes);
  void *ptr = icd.clSVMAlloc(ocl.context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, size, 0);
  if (!ptr)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0,
                     "opencl: the driver has no %zu bytes of memory for '%s', which has %llu in all; free some tensors",
                     size, device->name, (unsigned long long)device->global_bytes);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t ordinal, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  icd.clSVMFree(ocl.context, ptr);
  return HAL_OK;
}
