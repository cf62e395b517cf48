/* transfer.c: the driver's copies and fills, by kind of memory, and the conversion of addresses. */
#include "opencl.h"

hal_status_t ocl_place(const char *op, int32_t device, const void *ptr, size_t size, ocl_segment_t *near,
                       ocl_place_t *out_place) {
  *out_place = (ocl_place_t){.ptr = (void *)(uintptr_t)ptr};
  if (device == HAL_HOST || ocl.memory != OCL_MEMORY_BUFFER) return HAL_OK;
  const int is_near = near->base && (uintptr_t)ptr - (uintptr_t)near->base < near->size;
  if (OCL_UNLIKELY((!is_near && !ocl_map_find(ptr, near)) || near->device == HAL_HOST))
    return ocl_error(
        HAL_INVALID_ARGUMENT, 0,
        "opencl: %s with address %p, which is not in memory of device %d; pass an address of memory_alloc, or an "
        "address inside",
        op, ptr, (int)device);
  out_place->memory = near->memory;
  out_place->offset = (size_t)((const char *)ptr - near->base);
  out_place->left = near->size - out_place->offset;
  if (size > out_place->left)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: %s of %zu bytes at %p, %zu bytes before the end of its allocation", op, size, ptr,
                     out_place->left);
  return HAL_OK;
}

cl_int ocl_enqueue_copy(ocl_submit_t *submit, const ocl_place_t *to, const ocl_place_t *from, size_t size) {
  cl_event *event = &submit->work.event;
  const cl_command_queue queue = submit->queue;
  if (ocl.memory == OCL_MEMORY_USM) return ocl.usm.copy(queue, CL_FALSE, to->ptr, from->ptr, size, 0, NULL, event);
  if (ocl.memory != OCL_MEMORY_BUFFER)
    return icd.clEnqueueSVMMemcpy(queue, CL_FALSE, to->ptr, from->ptr, size, 0, NULL, event);
  if (to->memory && from->memory)
    return icd.clEnqueueCopyBuffer(queue, from->memory, to->memory, from->offset, to->offset, size, 0, NULL, event);
  if (to->memory)
    return icd.clEnqueueWriteBuffer(queue, to->memory, CL_FALSE, to->offset, size, from->ptr, 0, NULL, event);
  return icd.clEnqueueReadBuffer(queue, from->memory, CL_FALSE, from->offset, size, to->ptr, 0, NULL, event);
}

/* OpenCL requires the position of the first byte in the buffer as column and row, with rows of the pitch. */
static void origin_of(size_t offset, size_t pitch, size_t origin[3]) {
  origin[0] = offset % pitch, origin[1] = offset / pitch, origin[2] = 0;
}

cl_int ocl_enqueue_copy_2d(ocl_submit_t *submit, const ocl_place_t *to, const ocl_place_t *from,
                           const hal_copy_2d_t *copy) {
  const size_t region[3] = {copy->width, copy->height, 1}, here[3] = {0, 0, 0};
  const size_t to_pitch = copy->dst_pitch, from_pitch = copy->src_pitch;
  size_t there[3], other[3];
  cl_event *const event = &submit->work.event;
  if (to->memory && from->memory) {
    origin_of(from->offset, from_pitch, other);
    origin_of(to->offset, to_pitch, there);
    return icd.clEnqueueCopyBufferRect(submit->queue, from->memory, to->memory, other, there, region, from_pitch, 0,
                                       to_pitch, 0, 0, NULL, event);
  }
  if (to->memory) {
    origin_of(to->offset, to_pitch, there);
    return icd.clEnqueueWriteBufferRect(submit->queue, to->memory, CL_FALSE, there, here, region, to_pitch, 0,
                                        from_pitch, 0, from->ptr, 0, NULL, event);
  }
  origin_of(from->offset, from_pitch, there);
  return icd.clEnqueueReadBufferRect(submit->queue, from->memory, CL_FALSE, there, here, region, from_pitch, 0,
                                     to_pitch, 0, to->ptr, 0, NULL, event);
}

cl_int ocl_enqueue_fill(ocl_submit_t *submit, const ocl_place_t *to, const void *pattern, size_t pattern_size,
                        size_t size) {
  cl_event *event = &submit->work.event;
  const cl_command_queue queue = submit->queue;
  if (ocl.memory == OCL_MEMORY_USM) return ocl.usm.fill(queue, to->ptr, pattern, pattern_size, size, 0, NULL, event);
  if (ocl.memory != OCL_MEMORY_BUFFER)
    return icd.clEnqueueSVMMemFill(queue, to->ptr, pattern, pattern_size, size, 0, NULL, event);
  return icd.clEnqueueFillBuffer(queue, to->memory, pattern, pattern_size, to->offset, size, 0, NULL, event);
}
