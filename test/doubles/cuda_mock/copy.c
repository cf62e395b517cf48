/* copy.c: copies and fills. */
#include <string.h>

#include "mock.h"

typedef struct transfer_s {
  command_t command;
  char *to;
  const char *from;
  size_t count, width; /* of a fill: elements, and bytes of one; of a rectangle: rows, and bytes of one */
  size_t to_pitch, from_pitch;
  unsigned value;
} transfer_t;

static void run_copy(command_t *command, CUcontext context) {
  const transfer_t *const copy = (const transfer_t *)command;
  (void)context;
  memmove(copy->to, copy->from, copy->count);
}

static void run_rectangle(command_t *command, CUcontext context) {
  const transfer_t *const copy = (const transfer_t *)command;
  (void)context;
  for (size_t row = 0; row < copy->count; row++)
    memmove(copy->to + row * copy->to_pitch, copy->from + row * copy->from_pitch, copy->width);
}

static void run_fill(command_t *command, CUcontext context) {
  const transfer_t *const fill = (const transfer_t *)command;
  (void)context;
  for (size_t i = 0; i < fill->count; i++) memcpy(fill->to + i * fill->width, &fill->value, fill->width);
}

static CUresult push(const transfer_t *transfer, void (*run)(command_t *, CUcontext), CUstream stream,
                     CUcontext context) {
  if (fault_takes(FAULT_COPY)) return CUDA_ERROR_INVALID_VALUE;
  transfer_t *const own = command_new(sizeof *own, run);
  if (!own) return CUDA_ERROR_OUT_OF_MEMORY;
  const command_t head = own->command;
  *own = *transfer;
  own->command = head;
  return command_push(stream, context, &own->command);
}

static CUresult copy(CUdeviceptr to, int to_device, CUdeviceptr from, int from_device, size_t bytes, CUstream stream) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code || !bytes) return code;
  if (!to || !from || (to_device && !is_device_range(to, bytes)) || (from_device && !is_device_range(from, bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  const transfer_t transfer = {.to = (char *)(uintptr_t)to, .from = (const char *)(uintptr_t)from, .count = bytes};
  const int pageable =
      (!to_device && !is_locked_range(transfer.to, bytes)) || (!from_device && !is_locked_range(transfer.from, bytes));
  const CUresult queued = push(&transfer, run_copy, stream, context);
  if (!queued && pageable)
    stream_finish(stream, context); /* the driver copies it to a staging buffer, and waits for
                                                              that */
  return queued;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return copy(to, 1, (CUdeviceptr)(uintptr_t)from, 0, bytes, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy((CUdeviceptr)(uintptr_t)to, 0, from, 1, bytes, stream);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(to, 1, from, 1, bytes, stream);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t bytes, CUstream stream) {
  if (!to_context || !from_context) return CUDA_ERROR_INVALID_CONTEXT;
  return copy(to, 1, from, 1, bytes, stream);
}

/* One side of a rectangle: its first byte; NULL = it is not memory of the given kind, or only in part. */
static char *side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch, size_t x, size_t y,
                     const CUDA_MEMCPY2D *copy) {
  const size_t bytes = (copy->Height - 1) * pitch + copy->WidthInBytes;
  char *const first =
      (type == CU_MEMORYTYPE_HOST ? (char *)(uintptr_t)host : (char *)(uintptr_t)device) + y * pitch + x;
  if (pitch < copy->WidthInBytes || pitch > MOST_PITCH) return NULL;
  if (type == CU_MEMORYTYPE_DEVICE && !is_device_range((CUdeviceptr)(uintptr_t)first, bytes)) return NULL;
  return type == CU_MEMORYTYPE_HOST && !host ? NULL : first;
}

API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!copy->WidthInBytes || !copy->Height) return CUDA_SUCCESS;
  const transfer_t transfer = {.to = side_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstPitch,
                                             copy->dstXInBytes, copy->dstY, copy),
                               .from = side_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcPitch,
                                               copy->srcXInBytes, copy->srcY, copy),
                               .count = copy->Height,
                               .width = copy->WidthInBytes,
                               .to_pitch = copy->dstPitch,
                               .from_pitch = copy->srcPitch};
  if (!transfer.to || !transfer.from) return CUDA_ERROR_INVALID_VALUE;
  const size_t rows = copy->Height - 1;
  const int pageable = (copy->dstMemoryType == CU_MEMORYTYPE_HOST &&
                        !is_locked_range(transfer.to, rows * copy->dstPitch + copy->WidthInBytes)) ||
                       (copy->srcMemoryType == CU_MEMORYTYPE_HOST &&
                        !is_locked_range(transfer.from, rows * copy->srcPitch + copy->WidthInBytes));
  const CUresult queued = push(&transfer, run_rectangle, stream, context);
  if (!queued && pageable)
    stream_finish(stream, context); /* the driver copies it to a staging buffer, and waits for
                                                              that */
  return queued;
}

static CUresult fill(CUdeviceptr to, unsigned value, size_t width, size_t count, CUstream stream) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code || !count) return code;
  if (to % width || count > SIZE_MAX / width || !is_device_range(to, count * width)) return CUDA_ERROR_INVALID_VALUE;
  const transfer_t transfer = {.to = (char *)(uintptr_t)to, .count = count, .width = width, .value = value};
  return push(&transfer, run_fill, stream, context);
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, value, 1, count, stream);
}

API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, value, 2, count, stream);
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return fill(to, value, 4, count, stream);
}
