/* sensor.c: what devices measure of themselves, and who uses them, told by NVML (libnvidia-ml.so.1, which comes with the driver). It is asked
 * about the whole device, makes no context, and knows a device by its place on the bus. */
#include <hal/plugin_library.h>
#include <stdio.h>

#include "cuda_plugin.h"
#include "nvml_api.h"

#define DECLARE_CALL(name, parameters) nvmlReturn_t(*name) parameters;
static struct nvml_table_s {
  NVML_CALLS(DECLARE_CALL)
  NVML_LATER_CALLS(DECLARE_CALL)
} nvml;

#define ROW(name, parameters) {#name, offsetof(struct nvml_table_s, name), 0},
#define LATER_ROW(name, parameters) {#name, offsetof(struct nvml_table_s, name), 1},
static const hal_library_symbol_t symbols[] = {NVML_CALLS(ROW) NVML_LATER_CALLS(LATER_ROW)};

static hal_library_t library = {
    .plugin = "cuda",
    .names = {"libnvidia-ml.so.1"},
    .advice =
        "it tells load, temperature and power, and comes with NVIDIA's driver: install the driver's package for "
        "it (libnvidia-ml1, or nvidia-utils)",
    CUDA_LIBRARY_CALLS(symbols, nvml)};

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static int started;

/* ---- the library ------------------------------------------------------------------------------------------------------------- */

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

/* That a device does not measure something is an answer; what else fails has a sentence. */
static hal_status_t refused(int32_t device, nvmlReturn_t code, const char *what) {
  if (code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND) return HAL_UNIMPLEMENTED;
  const char *const cure = code == NVML_ERROR_NO_PERMISSION ? "; ask as a user who may, such as root"
                           : code == NVML_ERROR_LIB_RM_VERSION_MISMATCH
                               ? "; the driver was updated: start the machine again"
                               : "";
  return cuda_error(code == NVML_ERROR_NO_PERMISSION ? HAL_FAILED_PRECONDITION : HAL_UNAVAILABLE, (int64_t)code,
                    "cuda: NVML does not tell %s of device %d: %s (%d)%s", what, (int)device, status_name(code),
                    (int)code, cure);
}

static hal_status_t open_library(int32_t device) {
  const hal_status_t status = hal_library_open(&library);
  if (status) return status;
  pthread_mutex_lock(&starting);
  const nvmlReturn_t code = started ? NVML_SUCCESS : nvml.nvmlInit_v2();
  started = code == NVML_SUCCESS;
  pthread_mutex_unlock(&starting);
  return code ? refused(device, code, "anything") : HAL_OK;
}

static hal_status_t find_device(int32_t ordinal, nvmlDevice_t *out_device) {
  char address[32];
  hal_status_t status = cuda_check_device(ordinal);
  if (!status) status = open_library(ordinal);
  if (status) return status;
  const int *const pci = cuda.devices[ordinal].pci;
  snprintf(address, sizeof address, "%08x:%02x:%02x.0", (unsigned)pci[0], (unsigned)pci[1], (unsigned)pci[2]);
  const nvmlReturn_t code = nvml.nvmlDeviceGetHandleByPciBusId_v2(address, out_device);
  return code ? refused(ordinal, code, address) : HAL_OK;
}

/* ---- sensors ------------------------------------------------------------------------------------------------------------------- */

/* A number of NVML's, in its unit. */
static nvmlReturn_t read_number(nvmlDevice_t device, uint32_t sensor, unsigned int *out_value) {
  switch (sensor) {
    case HAL_SENSOR_TEMPERATURE:
      return nvml.nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, out_value);
    case HAL_SENSOR_POWER:
      return nvml.nvmlDeviceGetPowerUsage(device, out_value);
    case HAL_SENSOR_POWER_LIMIT:
      return nvml.nvmlDeviceGetEnforcedPowerLimit(device, out_value);
    case HAL_SENSOR_CLOCK:
      return nvml.nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, out_value);
    case HAL_SENSOR_MEMORY_CLOCK:
      return nvml.nvmlDeviceGetClockInfo(device, NVML_CLOCK_MEM, out_value);
    case HAL_SENSOR_FAN:
      return nvml.nvmlDeviceGetFanSpeed(device, out_value);
    default:
      return NVML_ERROR_NOT_SUPPORTED;
  }
}

static nvmlReturn_t read_sensor(nvmlDevice_t device, uint32_t sensor, int64_t *out_value) {
  nvmlUtilization_t shares = {0, 0};
  nvmlMemory_t memory = {0, 0, 0};
  unsigned long long energy = 0;
  unsigned int number = 0;
  nvmlReturn_t code = NVML_SUCCESS;
  switch (sensor) {
    case HAL_SENSOR_MEMORY_USED:
      code = nvml.nvmlDeviceGetMemoryInfo(device, &memory);
      *out_value = (int64_t)memory.used;
      return code;
    case HAL_SENSOR_UTILIZATION:
    case HAL_SENSOR_MEMORY_UTILIZATION:
      code = nvml.nvmlDeviceGetUtilizationRates(device, &shares);
      *out_value = sensor == HAL_SENSOR_UTILIZATION ? shares.gpu : shares.memory;
      return code;
    case HAL_SENSOR_ENERGY:
      code = nvml.nvmlDeviceGetTotalEnergyConsumption(device, &energy);
      *out_value = (int64_t)energy;
      return code;
    default:
      code = read_number(device, sensor, &number);
      *out_value = sensor == HAL_SENSOR_TEMPERATURE ? (int64_t)number * 1000 : (int64_t)number;
      return code;
  }
}

hal_status_t hal_plugin_device_sensor(int32_t ordinal, uint32_t sensor, int64_t *out_value) {
  nvmlDevice_t device = NULL;
  int64_t value = 0;
  const hal_status_t status = find_device(ordinal, &device);
  if (status) return status;
  const nvmlReturn_t code = read_sensor(device, sensor, &value);
  if (code) return refused(ordinal, code, "a sensor");
  *out_value = value;
  return HAL_OK;
}

/* ---- processes ----------------------------------------------------------------------------------------------------------------- */

/* The list may grow between two calls: asked again with room for what there was and some more. */
static nvmlReturn_t list_processes(nvmlDevice_t device, nvmlProcessInfo_t **out_list, unsigned int *out_count) {
  nvmlReturn_t (*const ask)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *) =
      nvml.nvmlDeviceGetComputeRunningProcesses_v3 ? nvml.nvmlDeviceGetComputeRunningProcesses_v3
                                                   : nvml.nvmlDeviceGetComputeRunningProcesses_v2;
  nvmlReturn_t code = ask ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_ERROR_NOT_SUPPORTED;
  unsigned int room = 16;
  for (int attempt = 0; attempt < 8 && code == NVML_ERROR_INSUFFICIENT_SIZE; attempt++) {
    hal_host->mem_free(*out_list);
    *out_count = room;
    *out_list = hal_host->mem_alloc(room * sizeof **out_list, alignof(nvmlProcessInfo_t));
    if (!*out_list) return NVML_ERROR_UNKNOWN;
    code = ask(device, out_count, *out_list);
    room = (*out_count > room ? *out_count : room) + 16;
  }
  return code;
}

/* A process with several parts of a divided device stands there once for each. */
static uint64_t memory_of(const nvmlProcessInfo_t *list, unsigned int count, unsigned int at) {
  uint64_t bytes = 0;
  for (unsigned int i = at; i < count; i++) {
    if (list[i].pid != list[at].pid) continue;
    if (list[i].usedGpuMemory == UINT64_MAX) return HAL_UNKNOWN_BYTES;
    bytes += list[i].usedGpuMemory;
  }
  return bytes;
}

static int is_first(const nvmlProcessInfo_t *list, unsigned int at) {
  for (unsigned int i = 0; i < at; i++)
    if (list[i].pid == list[at].pid) return 0;
  return 1;
}

hal_status_t hal_plugin_device_processes(int32_t ordinal, hal_process_sink_t sink, void *user_data) {
  nvmlDevice_t device = NULL;
  nvmlProcessInfo_t *list = NULL;
  unsigned int count = 0;
  const hal_status_t status = find_device(ordinal, &device);
  if (status) return status;
  const nvmlReturn_t code = list_processes(device, &list, &count);
  for (unsigned int i = 0; i < count && !code; i++) {
    if (!is_first(list, i)) continue;
    const hal_device_process_t process = {.struct_size = HAL_STRUCT_SIZE(hal_device_process_t, memory_used),
                                          .pid = list[i].pid,
                                          .memory_used = memory_of(list, count, i)};
    sink(user_data, &process);
  }
  hal_host->mem_free(list);
  return code ? refused(ordinal, code, "the processes") : HAL_OK;
}
