/* sensor.c: measurements of a device, and the processes that use it, from the loader's functions of system management
 * (zes*), if loader and driver have them. The device's handle is valid for these functions, because ZES_ENABLE_SYSMAN
 * is set when the driver starts (select.c). Rates need two queries, so they are available from the second query on. */
#include <stdio.h>
#include <string.h>

#include "npu.h"

enum { MOST = 16 };

/* Reads the handles of one kind of component; none if there is no such function. */
#define PARTS(type, function)                                                    \
  type parts[MOST];                                                              \
  uint32_t count = MOST;                                                         \
  if (!ze.function || ze.function(sysman_of(ordinal), &count, parts)) count = 0; \
  if (count > MOST) count = MOST

static zes_device_handle_t sysman_of(int32_t ordinal) { return (zes_device_handle_t)npu.devices[ordinal].handle; }

/* ---- counters, whose differences are rates ---------------------------------------------------------------------- */

/* Returns the increase per microsecond since the last query, times `scale`. */
static hal_status_t rate_of(npu_counter_t *last, uint64_t value, uint64_t time, double scale, int64_t *out_value) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  hal_status_t status = HAL_UNIMPLEMENTED;
  pthread_mutex_lock(&lock);
  if (last->known && time > last->time && value >= last->value) {
    last->rate = (int64_t)((double)(value - last->value) * scale / (double)(time - last->time) + 0.5);
    last->has_rate = 1;
  }
  if (last->has_rate) {
    *out_value = last->rate;
    status = HAL_OK;
  }
  *last = (npu_counter_t){.value = value, .time = time, .known = 1, .has_rate = last->has_rate, .rate = last->rate};
  pthread_mutex_unlock(&lock);
  return status;
}

static hal_status_t utilization(int32_t ordinal, int64_t *out_value) {
  static const zes_engine_group_t wanted[] = {ZES_ENGINE_GROUP_ALL, ZES_ENGINE_GROUP_COMPUTE_ALL,
                                              ZES_ENGINE_GROUP_COMPUTE_SINGLE};
  PARTS(zes_engine_handle_t, zesDeviceEnumEngineGroups);
  if (!ze.zesEngineGetProperties || !ze.zesEngineGetActivity) return HAL_UNIMPLEMENTED;
  for (size_t kind = 0; kind < sizeof wanted / sizeof *wanted; kind++)
    for (uint32_t i = 0; i < count; i++) {
      zes_engine_properties_t facts = {.stype = ZES_STRUCTURE_TYPE_ENGINE_PROPERTIES};
      zes_engine_stats_t stats;
      if (ze.zesEngineGetProperties(parts[i], &facts) || facts.type != wanted[kind]) continue;
      if (ze.zesEngineGetActivity(parts[i], &stats)) continue;
      const hal_status_t status =
          rate_of(&npu.devices[ordinal].active, stats.activeTime, stats.timestamp, 100, out_value);
      if (!status && *out_value > 100) *out_value = 100;
      return status;
    }
  return HAL_UNIMPLEMENTED;
}

/* Microjoules; one watt is one microjoule per microsecond. */
static hal_status_t energy(int32_t ordinal, uint32_t sensor, int64_t *out_value) {
  PARTS(zes_pwr_handle_t, zesDeviceEnumPowerDomains);
  zes_power_energy_counter_t counter;
  for (uint32_t i = 0; i < count && ze.zesPowerGetEnergyCounter; i++) {
    if (ze.zesPowerGetEnergyCounter(parts[i], &counter)) continue;
    if (sensor == HAL_SENSOR_POWER)
      return rate_of(&npu.devices[ordinal].energy, counter.energy, counter.timestamp, 1000, out_value);
    *out_value = (int64_t)(counter.energy / 1000);
    return HAL_OK;
  }
  return HAL_UNIMPLEMENTED;
}

/* ---- states ----------------------------------------------------------------------------------------------------- */

static hal_status_t power_limit(int32_t ordinal, int64_t *out_value) {
  PARTS(zes_pwr_handle_t, zesDeviceEnumPowerDomains);
  zes_power_sustained_limit_t limit;
  for (uint32_t i = 0; i < count && ze.zesPowerGetLimits; i++) {
    if (ze.zesPowerGetLimits(parts[i], &limit, NULL, NULL) || !limit.enabled || limit.power <= 0) continue;
    *out_value = limit.power;
    return HAL_OK;
  }
  return HAL_UNIMPLEMENTED;
}

static hal_status_t memory_used(int32_t ordinal, int64_t *out_value) {
  PARTS(zes_mem_handle_t, zesDeviceEnumMemoryModules);
  int64_t used = 0;
  int found = 0;
  for (uint32_t i = 0; i < count && ze.zesMemoryGetState; i++) {
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    if (ze.zesMemoryGetState(parts[i], &state) || state.free > state.size) continue;
    used += (int64_t)(state.size - state.free);
    found = 1;
  }
  if (found) *out_value = used;
  return found ? HAL_OK : HAL_UNIMPLEMENTED;
}

hal_status_t hal_plugin_memory_info(int32_t ordinal, size_t *out_free, size_t *out_total) {
  int64_t used = 0;
  hal_status_t status = npu_check_alive(ordinal);
  if (!status) status = memory_used(ordinal, &used);
  if (status) return status;
  const uint64_t total = npu.devices[ordinal].memory_bytes;
  *out_total = (size_t)total;
  *out_free = (uint64_t)used < total ? (size_t)(total - (uint64_t)used) : 0;
  return HAL_OK;
}

static hal_status_t temperature(int32_t ordinal, int64_t *out_value) {
  static const zes_temp_sensors_t wanted[] = {ZES_TEMP_SENSORS_GPU, ZES_TEMP_SENSORS_GLOBAL};
  PARTS(zes_temp_handle_t, zesDeviceEnumTemperatureSensors);
  if (!ze.zesTemperatureGetProperties || !ze.zesTemperatureGetState) return HAL_UNIMPLEMENTED;
  for (size_t kind = 0; kind < sizeof wanted / sizeof *wanted; kind++)
    for (uint32_t i = 0; i < count; i++) {
      zes_temp_properties_t facts = {.stype = ZES_STRUCTURE_TYPE_TEMP_PROPERTIES};
      double degrees = 0;
      if (ze.zesTemperatureGetProperties(parts[i], &facts) || facts.type != wanted[kind]) continue;
      if (ze.zesTemperatureGetState(parts[i], &degrees) || degrees < -273 || degrees > 1000) continue;
      *out_value = (int64_t)(degrees * 1000);
      return HAL_OK;
    }
  return HAL_UNIMPLEMENTED;
}

static hal_status_t frequency(int32_t ordinal, zes_freq_domain_t wanted, int64_t *out_value) {
  PARTS(zes_freq_handle_t, zesDeviceEnumFrequencyDomains);
  if (!ze.zesFrequencyGetProperties || !ze.zesFrequencyGetState) return HAL_UNIMPLEMENTED;
  for (uint32_t i = 0; i < count; i++) {
    zes_freq_properties_t facts = {.stype = ZES_STRUCTURE_TYPE_FREQ_PROPERTIES};
    zes_freq_state_t state = {.stype = ZES_STRUCTURE_TYPE_FREQ_STATE};
    if (ze.zesFrequencyGetProperties(parts[i], &facts) || facts.type != wanted) continue;
    if (ze.zesFrequencyGetState(parts[i], &state) || state.actual < 0) continue; /* negative: unknown */
    *out_value = (int64_t)state.actual;
    return HAL_OK;
  }
  return HAL_UNIMPLEMENTED;
}

static hal_status_t fan(int32_t ordinal, int64_t *out_value) {
  PARTS(zes_fan_handle_t, zesDeviceEnumFans);
  for (uint32_t i = 0; i < count && ze.zesFanGetState; i++) {
    int32_t speed = -1;
    if (ze.zesFanGetState(parts[i], ZES_FAN_SPEED_UNITS_PERCENT, &speed) || speed < 0) continue;
    *out_value = speed > 100 ? 100 : speed;
    return HAL_OK;
  }
  return HAL_UNIMPLEMENTED;
}

hal_status_t hal_plugin_device_sensor(int32_t ordinal, uint32_t sensor, int64_t *out_value) {
  const hal_status_t status = npu_check_alive(ordinal);
  if (status) return status;
  switch (sensor) {
    case HAL_SENSOR_MEMORY_USED:
      return memory_used(ordinal, out_value);
    case HAL_SENSOR_UTILIZATION:
      return utilization(ordinal, out_value);
    case HAL_SENSOR_TEMPERATURE:
      return temperature(ordinal, out_value);
    case HAL_SENSOR_POWER:
    case HAL_SENSOR_ENERGY:
      return energy(ordinal, sensor, out_value);
    case HAL_SENSOR_POWER_LIMIT:
      return power_limit(ordinal, out_value);
    case HAL_SENSOR_CLOCK:
      return frequency(ordinal, ZES_FREQ_DOMAIN_GPU, out_value);
    case HAL_SENSOR_MEMORY_CLOCK:
      return frequency(ordinal, ZES_FREQ_DOMAIN_MEMORY, out_value);
    case HAL_SENSOR_FAN:
      return fan(ordinal, out_value);
    default:
      return HAL_UNIMPLEMENTED;
  }
}

/* ---- firmware --------------------------------------------------------------------------------------------------- */

/* A device may have several; the first with a version is that of the device, the others are of its components. */
void npu_read_firmware(int32_t ordinal, hal_device_info_t *inout_info) {
  PARTS(zes_firmware_handle_t, zesDeviceEnumFirmwares);
  for (uint32_t i = 0; i < count && ze.zesFirmwareGetProperties; i++) {
    zes_firmware_properties_t facts = {.stype = ZES_STRUCTURE_TYPE_FIRMWARE_PROPERTIES};
    if (ze.zesFirmwareGetProperties(parts[i], &facts)) continue;
    facts.version[sizeof facts.version - 1] = '\0';
    if (!facts.version[0] || strcmp(facts.version, "unknown") == 0) continue;
    snprintf(inout_info->firmware_version, sizeof inout_info->firmware_version, "%.63s", facts.version);
    return;
  }
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_device_processes(int32_t ordinal, hal_process_sink_t sink, void *user_data) {
  enum { SPARE = 16 }; /* some may be added between the two queries */
  const hal_status_t status = npu_check_alive(ordinal);
  uint32_t count = 0;
  if (status) return status;
  if (!ze.zesDeviceProcessesGetState || ze.zesDeviceProcessesGetState(sysman_of(ordinal), &count, NULL))
    return HAL_UNIMPLEMENTED;
  count += SPARE;
  zes_process_state_t *const states = hal_host->mem_alloc(count * sizeof *states, alignof(zes_process_state_t));
  if (!states) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for %u processes", (unsigned)count);
  for (uint32_t i = 0; i < count; i++) states[i] = (zes_process_state_t){.stype = ZES_STRUCTURE_TYPE_PROCESS_STATE};
  const ze_result_t code = ze.zesDeviceProcessesGetState(sysman_of(ordinal), &count, states);
  for (uint32_t i = 0; i < count && !code; i++) {
    uint32_t earlier = 0; /* a process that has opened the device twice is reported once */
    while (earlier < i && states[earlier].processId != states[i].processId) earlier++;
    if (earlier < i) continue;
    uint64_t used = 0;
    for (uint32_t j = i; j < count; j++)
      if (states[j].processId == states[i].processId) used += states[j].memSize;
    const hal_device_process_t process = {.struct_size = HAL_STRUCT_SIZE(hal_device_process_t, memory_used),
                                          .pid = states[i].processId,
                                          .memory_used = used};
    sink(user_data, &process);
  }
  hal_host->mem_free(states);
  return code ? npu_driver_error(code, "npu: device %d does not report its processes", (int)ordinal) : HAL_OK;
}
