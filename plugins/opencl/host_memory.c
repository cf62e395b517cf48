/* host_memory.c: page-locked host memory: a buffer of the driver's own host memory, mapped for its whole lifetime. */
#include "opencl.h"

hal_status_t hal_plugin_host_alloc(int32_t ordinal, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = ocl_check_device(ordinal);
  if (!status) status = hal_flags_check("opencl: host_alloc", flags, 0);
  if (status) return status;
  if (!size) return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: host_alloc of 0 bytes; request at least one");
  const ocl_device_t *device = &ocl.devices[ordinal];
  cl_int code = CL_SUCCESS;
  cl_mem memory = icd.clCreateBuffer(ocl.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, NULL, &code);
  if (!code && !memory) code = CL_INVALID_MEM_OBJECT;
  if (code)
    return ocl_error(HAL_RESOURCE_EXHAUSTED, code,
                     "opencl: the driver has no %zu bytes of page-locked memory (%s), the maximum of one allocation is "
                     "%llu; free some "
                     "memory",
                     size, ocl_error_name(code), (unsigned long long)device->most_bytes);
  void *ptr =
      icd.clEnqueueMapBuffer(device->queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &code);
  if (!code && !ptr) code = CL_MAP_FAILURE;
  if (code) {
    icd.clReleaseMemObject(memory);
    return ocl_driver_error(code, "opencl: %zu bytes of page-locked memory cannot be mapped", size);
  }
  const ocl_segment_t segment = {.base = ptr, .size = size, .device = HAL_HOST, .memory = memory};
  status = ocl_map_add(&segment);
  if (status) {
    icd.clReleaseMemObject(memory);
    return status;
  }
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_host_free(int32_t ordinal, void *ptr) {
  if (!ptr) return HAL_OK;
  const hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  ocl_segment_t segment;
  if (!ocl_map_take(HAL_HOST, ptr, &segment))
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: host_free of %p, which host_alloc did not return, or which was freed", ptr);
  cl_event unmapped = NULL;
  const cl_int code = icd.clEnqueueUnmapMemObject(ocl.devices[ordinal].queue, segment.memory, ptr, 0, NULL, &unmapped);
  if (!code && unmapped) {
    icd.clWaitForEvents(1, &unmapped);
    icd.clReleaseEvent(unmapped);
  }
  icd.clReleaseMemObject(segment.memory);
  return code ? ocl_driver_error(code, "opencl: page-locked memory at %p cannot be unmapped", ptr) : HAL_OK;
}
