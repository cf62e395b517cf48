/* hint.c: memory_prefetch and memory_advise, for memory that migrates between devices and the host: CUDA's managed
 * memory, which programs allocate themselves, and on some machines all host memory. */
#include "cuda_plugin.h"

_Static_assert((int)HAL_ADVICE_READ_MOSTLY == CU_MEM_ADVISE_SET_READ_MOSTLY &&
                   (int)HAL_ADVICE_NOT_READ_MOSTLY == CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                   (int)HAL_ADVICE_PREFERRED == CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
                   (int)HAL_ADVICE_NOT_PREFERRED == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION &&
                   (int)HAL_ADVICE_ACCESSED == CU_MEM_ADVISE_SET_ACCESSED_BY &&
                   (int)HAL_ADVICE_NOT_ACCESSED == CU_MEM_ADVISE_UNSET_ACCESSED_BY,
               "the driver's numbers are the host's");

/* Returns whether the driver migrates the memory at an address. The context is current. */
static int moves(const cuda_device_t *device, const void *ptr) {
  CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  unsigned int type = 0, managed = 0;
  void *values[] = {&type, &managed};
  if (!drv.cuMemPrefetchAsync || !drv.cuMemAdvise) return 0;
  if (drv.cuPointerGetAttributes(2, what, values, (CUdeviceptr)(uintptr_t)ptr)) return 0;
  return type ? managed && device->moves_managed : device->moves_host;
}

/* Checks the destination device, and returns the driver's number of it. */
static hal_status_t find_place(int32_t ordinal, CUdevice *out_place) {
  *out_place = CU_DEVICE_CPU;
  if (ordinal == HAL_HOST) return HAL_OK;
  const hal_status_t status = cuda_check_device(ordinal);
  if (!status) *out_place = cuda.devices[ordinal].handle;
  return status;
}

hal_status_t hal_plugin_memory_prefetch(hal_plugin_stream_t *stream, int32_t ordinal, const void *ptr, size_t size,
                                        int32_t dst_device, uint32_t flags) {
  cuda_submit_t submit;
  CUdevice place;
  hal_status_t status = hal_flags_check("cuda: memory_prefetch", flags, 0);
  if (!status) status = find_place(dst_device, &place);
  if (status || !size) return status;
  if (stream && cuda_stream_is_captured(stream)) return HAL_OK; /* hints cannot be part of a graph */
  status = cuda_submit_begin(&submit, stream, ordinal, "memory_prefetch");
  if (status) return status;
  const CUresult code = moves(&cuda.devices[ordinal], ptr)
                            ? drv.cuMemPrefetchAsync((CUdeviceptr)(uintptr_t)ptr, size, place, submit.handle)
                            : CUDA_SUCCESS;
  return cuda_submit_end(&submit, code);
}

hal_status_t hal_plugin_memory_advise(int32_t ordinal, const void *ptr, size_t size, uint32_t advice, int32_t peer) {
  cuda_scope_t scope;
  CUdevice place;
  hal_status_t status = cuda_check_alive(ordinal);
  if (!status) status = hal_advice_check("cuda: memory_advise", advice);
  if (!status) status = find_place(peer, &place);
  if (status || !size) return status;
  status = cuda_enter(ordinal, &scope);
  if (status) return status;
  const CUresult code = moves(&cuda.devices[ordinal], ptr)
                            ? drv.cuMemAdvise((CUdeviceptr)(uintptr_t)ptr, size, (CUmem_advise)advice, place)
                            : CUDA_SUCCESS;
  cuda_leave(&scope);
  cuda_device_noticed(ordinal, code);
  return code ? cuda_driver_error(code, "cuda: the advice %u for %zu bytes at %p was refused", (unsigned)advice, size,
                                  ptr)
              : HAL_OK;
}
