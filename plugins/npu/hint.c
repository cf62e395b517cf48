/* hint.c: memory_prefetch and memory_advise, for shared memory (HAL_NPU_MEMORY=shared), which the driver moves between
 * the device and the host. These functions are optional in a driver. */
#include "npu.h"

/* Returns whether the driver moves the memory at an address. */
static int moves(const void *ptr) {
  ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
  ze_device_handle_t device = NULL;
  return !ze.zeMemGetAllocProperties(npu.context, ptr, &properties, &device) &&
         properties.type == ZE_MEMORY_TYPE_SHARED;
}

static hal_status_t check(int32_t device, int32_t place) {
  const hal_status_t status = npu_check_alive(device);
  return status || place == HAL_HOST ? status : npu_check_device(place);
}

/* Hints have no events, so a barrier represents them in the order of the stream. */
static hal_status_t end(npu_submit_t *submit, ze_result_t code) {
  submit->work.noted = 0;
  if (!code) code = ze.zeCommandListAppendBarrier(submit->list, submit->signal, submit->wait_count, submit->waits);
  return npu_submit_end(submit, code);
}

/* Moves memory to the device of the list; the driver has no function that moves it to the host. */
hal_status_t hal_plugin_memory_prefetch(hal_plugin_stream_t *stream, int32_t device, const void *ptr, size_t size,
                                        int32_t dst_device, uint32_t flags) {
  npu_submit_t submit;
  hal_status_t status = hal_flags_check("npu: memory_prefetch", flags, 0);
  if (!status) status = check(device, dst_device);
  if (status || !size || dst_device != device || !ze.zeCommandListAppendMemoryPrefetch || !moves(ptr)) return status;
  status = npu_submit_begin(&submit, stream, device, "memory_prefetch");
  return status ? status : end(&submit, ze.zeCommandListAppendMemoryPrefetch(submit.list, ptr, size));
}

/* Returns the driver's constant for an advice, -1 = it has none. */
static int word_of(uint32_t advice, int32_t place) {
  switch (advice) {
    case HAL_ADVICE_READ_MOSTLY:
      return ZE_MEMORY_ADVICE_SET_READ_MOSTLY;
    case HAL_ADVICE_NOT_READ_MOSTLY:
      return ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY;
    case HAL_ADVICE_PREFERRED:
      return place == HAL_HOST ? -1 : ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION;
    case HAL_ADVICE_NOT_PREFERRED:
      return place == HAL_HOST ? -1 : ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION;
    default:
      return -1;
  }
}

hal_status_t hal_plugin_memory_advise(int32_t device, const void *ptr, size_t size, uint32_t advice, int32_t peer) {
  npu_submit_t submit;
  hal_status_t status = hal_advice_check("npu: memory_advise", advice);
  if (!status) status = check(device, peer);
  const int word = status ? -1 : word_of(advice, peer);
  if (status || !size || word < 0 || !ze.zeCommandListAppendMemAdvise || !moves(ptr)) return status;
  status = npu_submit_begin(&submit, NULL, device, "memory_advise");
  if (status) return status;
  const ze_device_handle_t place = npu.devices[peer == HAL_HOST ? device : peer].handle;
  return end(&submit, ze.zeCommandListAppendMemAdvise(submit.list, place, ptr, size, (ze_memory_advice_t)word));
}
