/* plugin.c: information about the OpenCL plugin, its initialization and shutdown, and the child of a fork. */
#include <hal/plugin_count.h>
#include <string.h>

#include "opencl.h"

ocl_state_t ocl;

hal_status_t ocl_check_device(int32_t device) {
  if (OCL_LIKELY((uint32_t)device < (uint32_t)ocl.device_count &&
                 !atomic_load_explicit(&ocl.forked, memory_order_relaxed)))
    return HAL_OK;
  if (atomic_load(&ocl.forked))
    return ocl_error(
        HAL_FAILED_PRECONDITION, 0,
        "opencl: this process was forked from one that had started the driver, which does not support fork; "
        "start processes with 'spawn'");
  if (!ocl.device_count)
    return ocl_error(HAL_FAILED_PRECONDITION, 0, "opencl: device %d was used before init or after shutdown",
                     (int)device);
  return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: invalid device %d: expected 0 to %d", (int)device,
                   (int)ocl.device_count - 1);
}

/* The device type in torch is "ocl": torch reserves "opencl". */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "ocl",
                            .vendor = "torch_backend: any device with an OpenCL driver",
                            .version = "0.1.0",
                            .flags = HAL_PLUGIN_ON_REQUEST};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  const hal_status_t status = hal_flags_check("opencl: probe", flags, 0);
  return status ? status : ocl_icd_open();
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Counts in a child process, because counting starts the driver, which would not survive a later fork of this process.
 * */
static hal_status_t count(int32_t *out_count, char *why) {
  ocl_selection_t selection = {.count = 0};
  const hal_status_t status = ocl_select(&selection, why);
  *out_count = selection.count;
  return status;
}

static hal_counter_t counter = {"opencl", "look at 'clinfo -l', and set HAL_OPENCL_DEVICE to a platform that works",
                                count, HAL_COUNTER_NEW};

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  const hal_status_t status = ocl_icd_open();
  return status ? status : hal_count_devices(&counter, out_count);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static void fork_child(void) {
  if (atomic_load(&ocl.ready)) atomic_store(&ocl.forked, 1);
}

static hal_status_t start_devices(const ocl_selection_t *selection) {
  cl_int code = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)selection->platform, 0};
  ocl.platform = selection->platform;
  ocl.context = icd.clCreateContext(properties, (cl_uint)selection->count, selection->devices, NULL, NULL, &code);
  if (!code && !ocl.context) code = CL_INVALID_CONTEXT;
  if (code) return ocl_driver_error(code, "opencl: cannot create a context of %d devices", (int)selection->count);
  for (int32_t i = 0; i < selection->count; i++) {
    ocl_device_t *device = &ocl.devices[i];
    hal_status_t status = ocl_device_read(device, selection->devices[i]);
    if (!status) status = ocl_queue_create(device, 0, &device->queue);
    if (status) return status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->profile.lock, NULL);
    ocl.device_count = i + 1;
  }
  return ocl_memory_choose();
}

static void stop_devices(void) {
  for (int32_t i = 0; i < OCL_MAX_DEVICES; i++)
    if (ocl.devices[i].queue) icd.clReleaseCommandQueue(ocl.devices[i].queue);
  if (ocl.context) icd.clReleaseContext(ocl.context);
  memset(ocl.devices, 0, sizeof ocl.devices);
  ocl.context = NULL;
  ocl.device_count = 0;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  ocl_selection_t selection;
  if (atomic_load(&ocl.ready)) return atomic_load(&ocl.forked) ? ocl_check_device(0) : HAL_OK;
  if (options && *options)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: unknown options '%s'; the settings are the variables HAL_OPENCL_*", options);
  char why[HAL_COUNT_WHY];
  hal_status_t status = ocl_icd_open();
  if (status) return status;
  status = ocl_select(&selection, why);
  if (status) return ocl_error(status, 0, "%s", why);
  if (counter.told > 0 && counter.told != selection.count)
    return ocl_error(HAL_UNAVAILABLE, 0,
                     "opencl: the drivers had %d devices when they were counted, and have %d now; restart the process",
                     (int)counter.told, (int)selection.count);
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no memory to register the handler of fork");
  fork_handled = 1;
  status = start_devices(&selection);
  if (status) {
    stop_devices();
    return status;
  }
  atomic_store(&ocl.ready, 1);
  return HAL_OK;
}

/* Does not destroy the driver's objects, because the host may release its objects after this call. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("opencl: shutdown", flags, 0);
  if (status) return status;
  if (atomic_load(&ocl.forked)) return HAL_OK;
  for (int32_t i = 0; i < ocl.device_count; i++) hal_plugin_device_synchronize(i);
  return HAL_OK;
}
