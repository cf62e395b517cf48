/* plugin.c: information about the CUDA plugin, its initialization and shutdown, and the child of a fork. */
#include <hal/plugin_count.h>
#include <stdio.h>
#include <string.h>

#include "cuda_plugin.h"

cuda_state_t cuda;

hal_status_t cuda_check_device(int32_t device) {
  if (CUDA_LIKELY((uint32_t)device < (uint32_t)cuda.device_count &&
                  !atomic_load_explicit(&cuda.forked, memory_order_relaxed)))
    return HAL_OK;
  if (atomic_load(&cuda.forked))
    return cuda_error(
        HAL_FAILED_PRECONDITION, 0,
        "cuda: this process was forked from one that had started the driver, which does not support fork; "
        "start processes with 'spawn'");
  if (!cuda.device_count)
    return cuda_error(HAL_FAILED_PRECONDITION, 0, "cuda: device %d was used before init or after shutdown",
                      (int)device);
  return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: invalid device %d: expected 0 to %d", (int)device,
                    (int)cuda.device_count - 1);
}

hal_status_t cuda_check_alive(int32_t device) {
  const hal_status_t status = cuda_check_device(device);
  if (CUDA_UNLIKELY(status)) return status;
  const int lost = atomic_load_explicit(&cuda.devices[device].lost, memory_order_relaxed);
  if (CUDA_LIKELY(!lost)) return HAL_OK;
  return cuda_error(HAL_UNAVAILABLE, lost,
                    "cuda: device %d (%s) is lost since %s (%d) until this process ends; save the host's data and "
                    "start the process again",
                    (int)device, cuda.devices[device].name, cuda_error_name((CUresult)lost), lost);
}

/* Records the first error, which is the cause; later calls often return another one. */
void cuda_device_noticed(int32_t device, CUresult code) {
  int none = 0;
  if (CUDA_UNLIKELY(cuda_error_is_fatal(code)) &&
      atomic_compare_exchange_strong(&cuda.devices[device].lost, &none, (int)code))
    cuda_watch_lost(device, code);
}

/* The device type in torch is "nvgpu": its names may not begin with "cuda". */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "nvgpu",
                            .vendor = "torch_backend: GPUs with NVIDIA's driver",
                            .version = cuda_loader_version()};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  const hal_status_t status = hal_flags_check("cuda: probe", flags, 0);
  return status ? status : cuda_loader_open();
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Starts the driver and counts its devices. If that fails, writes an error message. */
static hal_status_t count(int32_t *out_count, char *why) {
  int found = 0;
  CUresult code = drv.cuInit(0);
  if (!code) code = drv.cuDeviceGetCount(&found);
  if (!code && !found) code = CUDA_ERROR_NO_DEVICE;
  *out_count = found < CUDA_MAX_DEVICES ? found : CUDA_MAX_DEVICES;
  if (!code) return HAL_OK;
  snprintf(why, HAL_COUNT_WHY,
           "cuda: the driver has no device for this process (%s, %d): check that nvidia-smi lists one, that this user "
           "may open "
           "/dev/nvidia*, and that CUDA_VISIBLE_DEVICES is unset or valid",
           cuda_error_name(code), (int)code);
  return HAL_UNAVAILABLE;
}

static hal_counter_t counter = {"cuda", "look at nvidia-smi, and set CUDA_VISIBLE_DEVICES to a device that works",
                                count, HAL_COUNTER_NEW};

/* Counts in a child process, because counting starts the driver, which would not survive a later fork of this process.
 * If the driver was started here already, a child could not count. */
hal_status_t hal_plugin_device_count(int32_t *out_count) {
  int found = 0;
  const hal_status_t status = cuda_loader_open();
  if (status) return status;
  if (counter.told < 0 && !drv.cuDeviceGetCount(&found)) {
    *out_count = found < CUDA_MAX_DEVICES ? found : CUDA_MAX_DEVICES;
    return HAL_OK;
  }
  return hal_count_devices(&counter, out_count);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static void fork_child(void) {
  if (atomic_load(&cuda.ready)) atomic_store(&cuda.forked, 1);
}

/* A context is created at the first use of its device, because this takes long, and memory. */
static hal_status_t read_devices(int32_t found) {
  hal_status_t status = HAL_OK;
  for (int32_t i = 0; i < found && !status; i++) {
    cuda_device_t *const device = &cuda.devices[i];
    status = cuda_device_read(device, i);
    if (status) break;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->profile.lock, NULL);
    cuda.device_count = i + 1;
  }
  if (status) cuda.device_count = 0;
  return status;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  char why[HAL_COUNT_WHY];
  int32_t found = 0;
  if (atomic_load(&cuda.ready)) return atomic_load(&cuda.forked) ? cuda_check_device(0) : HAL_OK;
  if (options && *options)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: unknown options '%s'; the settings are the variables HAL_CUDA_*",
                      options);
  hal_status_t status = cuda_loader_open();
  if (status) return status;
  status = count(&found, why);
  if (status) return cuda_error(status, 0, "%s", why);
  if (counter.told > 0 && counter.told != found)
    return cuda_error(HAL_UNAVAILABLE, 0,
                      "cuda: the driver had %d devices when they were counted, and has %d now; restart the process",
                      (int)counter.told, (int)found);
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no memory to register the handler of fork");
  fork_handled = 1;
  status = read_devices(found);
  if (status) return status;
  atomic_store(&cuda.ready, 1);
  return HAL_OK;
}

/* Does not destroy the driver's objects, because the host may release its objects after this call. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("cuda: shutdown", flags, 0);
  if (status) return status;
  if (atomic_load(&cuda.forked)) return HAL_OK;
  for (int32_t i = 0; i < cuda.device_count; i++)
    if (atomic_load(&cuda.devices[i].context)) hal_plugin_device_synchronize(i);
  return HAL_OK;
}

/* ---- contexts --------------------------------------------------------------------------------------------------- */

/* Retains the primary context, which users of the CUDA runtime share. The caller holds the device's lock. */
static hal_status_t begin_context(cuda_device_t *device, int32_t ordinal) {
  CUcontext context = NULL, before = NULL;
  CUresult code = drv.cuDevicePrimaryCtxRetain(&context, device->handle);
  if (code) {
    cuda_device_noticed(ordinal, code);
    return cuda_driver_error(code, "cuda: cannot create the context of device %d (%s)", (int)ordinal, device->name);
  }
  drv.cuCtxGetCurrent(&before);
  code = drv.cuCtxSetCurrent(context);
  if (!code) code = drv.cuCtxGetStreamPriorityRange(&device->least, &device->greatest);
  hal_status_t status =
      code ? cuda_driver_error(code, "cuda: the context of device %d cannot be used", (int)ordinal) : HAL_OK;
  if (!status) status = cuda_stream_make(ordinal, 0, &device->own);
  drv.cuCtxSetCurrent(before);
  if (status)
    drv.cuDevicePrimaryCtxRelease(device->handle);
  else
    atomic_store(&device->context, context);
  return status;
}

static hal_status_t first_use(int32_t ordinal) {
  cuda_device_t *const device = &cuda.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  const hal_status_t status = atomic_load(&device->context) ? HAL_OK : begin_context(device, ordinal);
  pthread_mutex_unlock(&device->lock);
  return status;
}

hal_status_t cuda_enter(int32_t ordinal, cuda_scope_t *scope) {
  hal_status_t status = cuda_check_device(ordinal);
  if (CUDA_UNLIKELY(status)) return status;
  cuda_device_t *const device = &cuda.devices[ordinal];
  CUcontext context = atomic_load_explicit(&device->context, memory_order_acquire);
  if (CUDA_UNLIKELY(!context)) {
    status = first_use(ordinal);
    if (status) return status;
    context = atomic_load(&device->context);
  }
  scope->before = NULL;
  scope->restore = 0;
  drv.cuCtxGetCurrent(&scope->before);
  if (CUDA_LIKELY(scope->before == context)) return HAL_OK;
  const CUresult code = drv.cuCtxSetCurrent(context);
  if (CUDA_UNLIKELY(code)) return cuda_driver_error(code, "cuda: device %d cannot be used", (int)ordinal);
  /* A thread without a context keeps that of device 0, which the runtime would have made current. */
  scope->restore = scope->before || ordinal;
  return HAL_OK;
}
