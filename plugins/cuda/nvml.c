/* nvml.c: NVML (libnvidia-ml.so.1, which comes with the driver), opened at its first use. Queries are about the whole
 * device, create no context, and identify a device by its position on the bus. */
#include "nvml.h"

#include <hal/plugin_library.h>
#include <stdio.h>
#include <string.h>

nvml_table_t nvml;

#define ROW(name, parameters) {#name, offsetof(nvml_table_t, name), 0},
#define LATER_ROW(name, parameters) {#name, offsetof(nvml_table_t, name), 1},
static const hal_library_symbol_t symbols[] = {NVML_CALLS(ROW) NVML_LATER_CALLS(LATER_ROW)};

static hal_library_t library = {
    .plugin = "cuda",
    .names = {"libnvidia-ml.so.1"},
    .advice =
        "it reports load, temperature and power, and comes with NVIDIA's driver: install the driver's package for "
        "it (libnvidia-ml1, or nvidia-utils)",
    CUDA_LIBRARY_CALLS(symbols, nvml)};

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static int started;

static const char *status_name(nvmlReturn_t status) {
  switch (status) {
#define NAME(name, number) \
  case name:               \
    return #name;
    NVML_STATUSES(NAME)
    default:
      return "a status without a name";
  }
}

hal_status_t cuda_nvml_refused(int32_t device, nvmlReturn_t code, const char *what) {
  if (code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND) return HAL_UNIMPLEMENTED;
  const char *const cure = code == NVML_ERROR_NO_PERMISSION ? "; a user with more rights, such as root, may query it"
                           : code == NVML_ERROR_LIB_RM_VERSION_MISMATCH
                               ? "; the driver was updated: restart the machine"
                               : "";
  return cuda_error(code == NVML_ERROR_NO_PERMISSION ? HAL_FAILED_PRECONDITION : HAL_UNAVAILABLE, (int64_t)code,
                    "cuda: NVML does not report %s of device %d: %s (%d)%s", what, (int)device, status_name(code),
                    (int)code, cure);
}

static hal_status_t open_library(int32_t device) {
  const hal_status_t status = hal_library_open(&library);
  if (status) return status;
  pthread_mutex_lock(&starting);
  const nvmlReturn_t code = started ? NVML_SUCCESS : nvml.nvmlInit_v2();
  started = code == NVML_SUCCESS;
  pthread_mutex_unlock(&starting);
  return code ? cuda_nvml_refused(device, code, "anything") : HAL_OK;
}

hal_status_t cuda_nvml_device(int32_t ordinal, nvmlDevice_t *out_device) {
  char address[32];
  hal_status_t status = cuda_check_device(ordinal);
  if (!status) status = open_library(ordinal);
  if (status) return status;
  const int *const pci = cuda.devices[ordinal].pci;
  snprintf(address, sizeof address, "%08x:%02x:%02x.0", (unsigned)pci[0], (unsigned)pci[1], (unsigned)pci[2]);
  const nvmlReturn_t code = nvml.nvmlDeviceGetHandleByPciBusId_v2(address, out_device);
  return code ? cuda_nvml_refused(ordinal, code, address) : HAL_OK;
}

/* ---- versions --------------------------------------------------------------------------------------------------- */

void cuda_read_versions(int32_t ordinal, hal_device_info_t *inout_info) {
  nvmlDevice_t device = NULL;
  char driver[sizeof inout_info->driver_version] = "", firmware[sizeof inout_info->firmware_version] = "";
  if (cuda_nvml_device(ordinal, &device))
    return; /* without NVML they are unknown, which is not a failure of device_info */
  if (nvml.nvmlSystemGetDriverVersion && !nvml.nvmlSystemGetDriverVersion(driver, sizeof driver - 1))
    memcpy(inout_info->driver_version, driver, sizeof driver);
  if (nvml.nvmlDeviceGetVbiosVersion && !nvml.nvmlDeviceGetVbiosVersion(device, firmware, sizeof firmware - 1))
    memcpy(inout_info->firmware_version, firmware, sizeof firmware);
}
