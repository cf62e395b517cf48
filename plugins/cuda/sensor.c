/* sensor.c: measurements of devices, and the processes that use them, from NVML. */
#include "nvml.h"

/* ---- sensors ---------------------------------------------------------------------------------------------------- */

/* Reads a number of NVML, in its unit. */
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
  const hal_status_t status = cuda_nvml_device(ordinal, &device);
  if (status) return status;
  const nvmlReturn_t code = read_sensor(device, sensor, &value);
  if (code) return cuda_nvml_refused(ordinal, code, "a sensor");
  *out_value = value;
  return HAL_OK;
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

/* The list may grow between two calls, so the second call has space for the reported number and some more. */
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

/* A process with several parts of a divided device is listed once for each. */
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
  const hal_status_t status = cuda_nvml_device(ordinal, &device);
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
  return code ? cuda_nvml_refused(ordinal, code, "the processes") : HAL_OK;
}
