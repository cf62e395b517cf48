/* plugin.c: information about the Level Zero plugin, its initialization and shutdown, and the child of a fork. */
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

npu_state_t npu;

hal_status_t npu_check_device(int32_t device) {
  if (NPU_LIKELY((uint32_t)device < (uint32_t)npu.device_count &&
                 !atomic_load_explicit(&npu.forked, memory_order_relaxed)))
    return HAL_OK;
  if (atomic_load(&npu.forked))
    return npu_error(HAL_FAILED_PRECONDITION, 0,
                     "npu: this process was forked from one that had started the driver, which does not support fork; "
                     "start processes with 'spawn'");
  if (!npu.device_count)
    return npu_error(HAL_FAILED_PRECONDITION, 0, "npu: device %d was used before init or after shutdown", (int)device);
  return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: invalid device %d: expected 0 to %d", (int)device,
                   (int)npu.device_count - 1);
}

hal_status_t npu_check_alive(int32_t device) {
  const hal_status_t status = npu_check_device(device);
  if (NPU_UNLIKELY(status)) return status;
  if (NPU_LIKELY(!atomic_load_explicit(&npu.devices[device].lost, memory_order_relaxed))) return HAL_OK;
  return npu_error(HAL_UNAVAILABLE, ZE_RESULT_ERROR_DEVICE_LOST,
                   "npu: device %d (%s) is lost until this process ends; save the host's data and start the process "
                   "again",
                   (int)device, npu.devices[device].facts.name);
}

void npu_device_noticed(int32_t device, ze_result_t code) {
  const int is_lost = code == ZE_RESULT_ERROR_DEVICE_LOST || code == ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET;
  if (is_lost && !atomic_exchange(&npu.devices[device].lost, 1)) npu_watch_lost(device, code);
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "npu",
                            .vendor = "torch_backend: any device with a Level Zero driver that takes SPIR-V",
                            .version = npu_loader_version()};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  const hal_status_t status = hal_flags_check("npu: probe", flags, 0);
  return status ? status : npu_loader_find_driver();
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Counts in a child process, because counting starts the driver, which would not survive a later fork of this process.
 * */
static hal_status_t count(int32_t *out_count, char *why) {
  npu_selection_t selection = {.count = 0};
  const hal_status_t status = npu_select(&selection, why);
  *out_count = selection.count;
  return status;
}

static hal_counter_t counter = {"npu", "look at the driver's own tools, and set HAL_NPU_DEVICE to a device that works",
                                count, HAL_COUNTER_NEW};

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  const hal_status_t status = npu_loader_open();
  return status ? status : hal_count_devices(&counter, out_count);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static void fork_child(void) {
  if (atomic_load(&npu.ready)) atomic_store(&npu.forked, 1);
}

/* If a loader older than zeInitDrivers dispatches between several drivers, it crashes when it returns the log of a
 * refused module, because it has not wrapped the log's handle. */
static int logs_are_safe(const npu_selection_t *selection) {
  return ze.zeInitDrivers || (selection->drivers == 1 && !hal_setting("ZE_ENABLE_LOADER_INTERCEPT"));
}

/* Reads HAL_NPU_MEMORY: "device" (the default), or "shared", which the host may access. */
static hal_status_t choose_memory(void) {
  const char *const wanted = hal_setting("HAL_NPU_MEMORY");
  npu.shared = wanted && strcmp(wanted, "shared") == 0;
  if (!wanted || !*wanted || npu.shared || strcmp(wanted, "device") == 0) return HAL_OK;
  return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: HAL_NPU_MEMORY is '%.100s'; set it to device or shared, or unset it",
                   wanted);
}

static hal_status_t start_devices(const npu_selection_t *selection) {
  const ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
  ze_driver_properties_t facts = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
  npu.driver = selection->driver;
  npu.logs = logs_are_safe(selection);
  ze_result_t code = ze.zeDriverGetApiVersion(npu.driver, &npu.api);
  if (!code) code = ze.zeDriverGetProperties(npu.driver, &facts);
  npu.driver_version = facts.driverVersion;
  if (!code) code = ze.zeContextCreate(npu.driver, &desc, &npu.context);
  if (code) return npu_driver_error(code, "npu: cannot create a context of %d devices", (int)selection->count);
  for (int32_t i = 0; i < selection->count; i++) {
    npu_device_t *device = &npu.devices[i];
    const hal_status_t status = npu_device_read(device, selection->devices[i]);
    if (status) return status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->events_lock, NULL);
    pthread_mutex_init(&device->profile.lock, NULL);
    npu.device_count = i + 1;
  }
  const hal_stream_desc_t normal = HAL_STREAM_DESC(0);
  hal_status_t status = choose_memory(); /* then the steps that need all devices */
  for (int32_t i = 0; i < selection->count && !status; i++) status = npu_stream_make(i, &normal, &npu.devices[i].own);
  return status;
}

static void stop_devices(void) {
  for (int32_t i = 0; i < NPU_MAX_DEVICES; i++) {
    if (npu.devices[i].own) npu_stream_unmake(npu.devices[i].own);
    npu_events_destroy(i);
  }
  if (npu.context) ze.zeContextDestroy(npu.context);
  memset(npu.devices, 0, sizeof npu.devices);
  npu.context = NULL;
  npu.device_count = 0;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at the same time */
  npu_selection_t selection;
  if (atomic_load(&npu.ready)) return atomic_load(&npu.forked) ? npu_check_device(0) : HAL_OK;
  if (options && *options)
    return npu_error(HAL_INVALID_ARGUMENT, 0, "npu: unknown options '%s'; the settings are the variables HAL_NPU_*",
                     options);
  char why[HAL_COUNT_WHY];
  hal_status_t status = npu_loader_open();
  if (status) return status;
  status = npu_select(&selection, why);
  if (status) return npu_error(status, 0, "%s", why);
  if (counter.told > 0 && counter.told != selection.count)
    return npu_error(HAL_UNAVAILABLE, 0,
                     "npu: the drivers had %d devices when they were counted, and have %d now; restart the process",
                     (int)counter.told, (int)selection.count);
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no memory to register the handler of fork");
  fork_handled = 1;
  status = start_devices(&selection);
  if (status) {
    stop_devices();
    return status;
  }
  npu_loader_tell();
  atomic_store(&npu.ready, 1);
  return HAL_OK;
}

/* Does not destroy the driver's objects, because the host may release its objects after this call. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  const hal_status_t status = hal_flags_check("npu: shutdown", flags, 0);
  if (status) return status;
  if (atomic_load(&npu.forked)) return HAL_OK;
  for (int32_t i = 0; i < npu.device_count; i++) hal_plugin_device_synchronize(i);
  return HAL_OK;
}
