/* copy.c: memory_copy, memory_copy_2d and memory_fill. */
#include <hal/plugin_transfer.h>
#include <stdint.h>
#include <string.h>

#include "cuda_plugin.h"

/* ---- copies ----------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : cuda_check_alive(device); }

/* Copies between two ranges of host memory, in the order of the stream. */
static hal_status_t copy_on_host(hal_plugin_stream_t *stream, void *dst, const void *src, size_t size) {
  const hal_status_t status = hal_plugin_stream_synchronize(stream);
  if (!status) memcpy(dst, src, size);
  return status;
}

/* Retains the context of a device whose memory is copied, which other code may have created. */
static hal_status_t begin_device(int32_t device) {
  cuda_scope_t scope;
  const hal_status_t status = cuda_enter(device, &scope);
  if (!status) cuda_leave(&scope);
  return status;
}

static CUresult queue_copy(const cuda_submit_t *submit, void *dst, int32_t dst_device, const void *src,
                           int32_t src_device, size_t size) {
  const CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst, from = (CUdeviceptr)(uintptr_t)src;
  if (src_device == HAL_HOST) return drv.cuMemcpyHtoDAsync(to, src, size, submit->handle);
  if (dst_device == HAL_HOST) return drv.cuMemcpyDtoHAsync(dst, from, size, submit->handle);
  if (dst_device == src_device) return drv.cuMemcpyDtoDAsync(to, from, size, submit->handle);
  return drv.cuMemcpyPeerAsync(to, cuda.devices[dst_device].context, from, cuda.devices[src_device].context, size,
                               submit->handle);
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size || dst == src) return HAL_OK;
  hal_status_t status = check_side(dst_device);
  if (!status) status = check_side(src_device);
  if (status) return status;
  if (!dst || !src)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: copy of %zu bytes from %p to %p; neither may be NULL", size, src,
                      dst);
  if (dst_device == HAL_HOST && src_device == HAL_HOST) return copy_on_host(stream, dst, src, size);
  const int32_t device = dst_device != HAL_HOST ? dst_device : src_device;
  if (src_device != HAL_HOST && src_device != device) status = begin_device(src_device);
  if (!status && dst_device != HAL_HOST && stream && dst_device != stream->device) status = begin_device(dst_device);
  if (status) return status;
  cuda_submit_t submit;
  status = cuda_submit_begin(&submit, stream, device, "memory_copy");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = size;
  submit.work.direction = hal_copy_direction(dst_device, src_device);
  return cuda_submit_end(&submit, queue_copy(&submit, dst, dst_device, src, src_device, size));
}

/* ---- rectangles ------------------------------------------------------------------------------------------------- */

static CUresult queue_rectangle(const cuda_submit_t *submit, const hal_copy_2d_t *copy) {
  const CUDA_MEMCPY2D desc = {.srcMemoryType = copy->src_device == HAL_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                              .srcHost = copy->src_device == HAL_HOST ? copy->src : NULL,
                              .srcDevice = copy->src_device == HAL_HOST ? 0 : (CUdeviceptr)(uintptr_t)copy->src,
                              .srcPitch = copy->src_pitch,
                              .dstMemoryType = copy->dst_device == HAL_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                              .dstHost = copy->dst_device == HAL_HOST ? copy->dst : NULL,
                              .dstDevice = copy->dst_device == HAL_HOST ? 0 : (CUdeviceptr)(uintptr_t)copy->dst,
                              .dstPitch = copy->dst_pitch,
                              .WidthInBytes = copy->width,
                              .Height = copy->height};
  return drv.cuMemcpy2DAsync(&desc, submit->handle);
}

/* The driver limits the pitch, and has no such copy between two devices or within the host; these are copied by rows.
 * */
hal_status_t hal_plugin_memory_copy_2d(hal_plugin_stream_t *stream, const hal_copy_2d_t *copy) {
  if (!copy->width || !copy->height) return HAL_OK;
  hal_status_t status = hal_copy_2d_check("cuda", copy);
  if (!status) status = check_side(copy->dst_device);
  if (!status) status = check_side(copy->src_device);
  if (status) return status;
  const int32_t device = copy->dst_device != HAL_HOST ? copy->dst_device : copy->src_device;
  const size_t pitch = copy->dst_pitch > copy->src_pitch ? copy->dst_pitch : copy->src_pitch;
  const int is_peer =
      copy->dst_device != HAL_HOST && copy->src_device != HAL_HOST && copy->dst_device != copy->src_device;
  if (device == HAL_HOST || is_peer || (stream && stream->device != device) ||
      pitch > (size_t)cuda.devices[device].most_pitch)
    return hal_base_memory_copy_2d(stream, copy);
  cuda_submit_t submit;
  status = cuda_submit_begin(&submit, stream, device, "memory_copy_2d");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_COPY;
  submit.work.bytes = (uint64_t)copy->width * copy->height;
  submit.work.direction = hal_copy_direction(copy->dst_device, copy->src_device);
  return cuda_submit_end(&submit, queue_rectangle(&submit, copy));
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

/* Fills with a pattern and an address for which the driver has a function. */
static hal_status_t fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                         size_t pattern_size, size_t size) {
  cuda_submit_t submit;
  const CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst;
  uint32_t word = 0;
  const hal_status_t status = cuda_submit_begin(&submit, stream, device, "memory_fill");
  if (status) return status;
  submit.work.kind = HAL_PROFILE_FILL;
  submit.work.bytes = size;
  memcpy(&word, pattern, pattern_size);
  return cuda_submit_end(&submit, pattern_size == 1 ? drv.cuMemsetD8Async(to, (unsigned char)word, size, submit.handle)
                                  : pattern_size == 2
                                      ? drv.cuMemsetD16Async(to, (unsigned short)word, size / 2, submit.handle)
                                      : drv.cuMemsetD32Async(to, word, size / 4, submit.handle));
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  hal_status_t status = cuda_check_alive(device);
  if (!status) status = hal_fill_check("cuda", dst, pattern, pattern_size, size);
  if (status || !size) return status;
  pattern_size = hal_fill_shortest(pattern, pattern_size);
  if (pattern_size > sizeof(uint32_t) || (uintptr_t)dst % pattern_size)
    return hal_fill_by_copies(stream, device, dst, pattern, pattern_size, size, sizeof(uint32_t), fill);
  return fill(stream, device, dst, pattern, pattern_size, size);
}
