/* copy.c: memory_copy and memory_fill. */
#include <hal/plugin_transfer.h>
#include <stdint.h>
#include <string.h>

#include "cuda_plugin.h"

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

static hal_status_t check_side(int32_t device) { return device == HAL_HOST ? HAL_OK : cuda_check_alive(device); }

/* Between two ranges of the host's own memory, in the order of the stream. */
static hal_status_t copy_on_host(hal_plugin_stream_t *stream, void *dst, const void *src, size_t size) {
  const hal_status_t status = hal_plugin_stream_synchronize(stream);
  if (!status) memcpy(dst, src, size);
  return status;
}

/* The context of a device whose memory is copied, which others may have made. */
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

/* ---- fills ----------------------------------------------------------------------------------------------------------------- */

/* A pattern that the driver has a call for, at an address that it takes. */
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
