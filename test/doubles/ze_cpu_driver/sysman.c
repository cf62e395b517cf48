/* sysman.c: system management: a chip of 42.5 degrees that consumes 25 W of 60, is busy half of the time, at 1.5
 * GHz, with a fan at 30 %; its memory is the allocated memory. If ZES_ENABLE_SYSMAN was not set when the driver
 * started, there is none. */
#define _POSIX_C_SOURCE 200809L
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define EXPORTED __attribute__((visibility("default")))
enum { WATTS = 25, LIMIT_MILLIWATTS = 60000, FAN_PERCENT = 30, MEGAHERTZ = 1500, MEMORY_MEGAHERTZ = 2400 };

/* The parts of a device: their handles are addresses in here. */
typedef struct parts_s {
  device_t *device;
  char clock, memory_clock, other;
} parts_t;
static parts_t parts[MAX_DEVICES];

static parts_t *parts_of(zes_device_handle_t device) {
  parts_t *const found = &parts[((device_t *)device)->ordinal];
  found->device = (device_t *)device;
  return found;
}

static int is_on(void) {
  const char *const text = getenv("ZES_ENABLE_SYSMAN");
  return text && strcmp(text, "1") == 0 && !driver_lacks("sysman");
}

/* Returns up to `has` handles, like all functions that list. */
static ze_result_t list(uint32_t *count, void **out, void *const *handles, uint32_t has) {
  if (!is_on()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (*count == 0 || *count > has) *count = has;
  for (uint32_t i = 0; out && i < *count; i++) out[i] = handles[i];
  return ZE_RESULT_SUCCESS;
}

/* One part of a kind: its handle is the device's parts. */
#define ONE(NAME, HANDLE)                                                             \
  static ze_result_t NAME(zes_device_handle_t device, uint32_t *count, HANDLE *out) { \
    void *const handles[] = {parts_of(device)};                                       \
    return list(count, (void **)out, handles, 1);                                     \
  }
ONE(engines, zes_engine_handle_t)
ONE(fans, zes_fan_handle_t)
ONE(firmwares, zes_firmware_handle_t)
ONE(memories, zes_mem_handle_t)
ONE(powers, zes_pwr_handle_t)
ONE(temperatures, zes_temp_handle_t)

static ze_result_t frequencies(zes_device_handle_t device, uint32_t *count, zes_freq_handle_t *out) {
  parts_t *const of = parts_of(device);
  void *const handles[] = {&of->memory_clock, &of->clock};
  return list(count, (void **)out, handles, 2);
}

static ze_result_t engine_properties(zes_engine_handle_t engine, zes_engine_properties_t *out) {
  (void)engine;
  out->type = ZES_ENGINE_GROUP_ALL;
  out->onSubdevice = 0;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t engine_activity(zes_engine_handle_t engine, zes_engine_stats_t *out) {
  (void)engine;
  out->timestamp = clock_now() / 1000;
  out->activeTime = out->timestamp / 2;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t fan_state(zes_fan_handle_t fan, zes_fan_speed_units_t units, int32_t *out) {
  (void)fan;
  *out = units == ZES_FAN_SPEED_UNITS_PERCENT ? FAN_PERCENT : -1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t memory_state(zes_mem_handle_t memory, zes_mem_state_t *out) {
  const device_t *const device = ((parts_t *)memory)->device;
  out->health = ZES_MEM_HEALTH_OK;
  out->size = memory_limit();
  out->free = out->size - atomic_load(&device->used);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t power_counter(zes_pwr_handle_t power, zes_power_energy_counter_t *out) {
  (void)power;
  out->timestamp = clock_now() / 1000;
  out->energy = out->timestamp * WATTS;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t power_limits(zes_pwr_handle_t power, zes_power_sustained_limit_t *sustained,
                                zes_power_burst_limit_t *burst, zes_power_peak_limit_t *peak) {
  (void)power, (void)burst, (void)peak;
  if (sustained) *sustained = (zes_power_sustained_limit_t){.enabled = 1, .power = LIMIT_MILLIWATTS};
  return ZE_RESULT_SUCCESS;
}

static ze_result_t temperature_properties(zes_temp_handle_t temperature, zes_temp_properties_t *out) {
  (void)temperature;
  out->type = ZES_TEMP_SENSORS_GLOBAL;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t temperature_state(zes_temp_handle_t temperature, double *out) {
  (void)temperature;
  *out = 42.5;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t firmware_properties(zes_firmware_handle_t firmware, zes_firmware_properties_t *out) {
  (void)firmware;
  snprintf(out->name, sizeof out->name, "GFX");
  snprintf(out->version, sizeof out->version, "DG02_1.3170");
  return ZE_RESULT_SUCCESS;
}

static int is_memory_clock(zes_freq_handle_t frequency) {
  for (int i = 0; i < MAX_DEVICES; i++)
    if ((void *)frequency == &parts[i].memory_clock) return 1;
  return 0;
}

static ze_result_t frequency_properties(zes_freq_handle_t frequency, zes_freq_properties_t *out) {
  out->type = is_memory_clock(frequency) ? ZES_FREQ_DOMAIN_MEMORY : ZES_FREQ_DOMAIN_GPU;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t frequency_state(zes_freq_handle_t frequency, zes_freq_state_t *out) {
  out->actual = is_memory_clock(frequency) ? MEMORY_MEGAHERTZ : MEGAHERTZ;
  return ZE_RESULT_SUCCESS;
}

/* ---- events: a mask for each device, which a test in the process sets ---- */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  zes_event_type_flags_t wanted[MAX_DEVICES], happened[MAX_DEVICES];
} events = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Emits events; returns those for which the caller has registered. */
EXPORTED uint32_t ze_cpu_event(int32_t device, uint32_t flags);
uint32_t ze_cpu_event(int32_t device, uint32_t flags) {
  pthread_mutex_lock(&events.lock);
  flags &= events.wanted[device];
  events.happened[device] |= flags;
  pthread_cond_broadcast(&events.changed);
  pthread_mutex_unlock(&events.lock);
  return flags;
}

static ze_result_t event_register(zes_device_handle_t device, zes_event_type_flags_t flags) {
  if (!is_on()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  pthread_mutex_lock(&events.lock);
  events.wanted[((device_t *)device)->ordinal] = flags;
  pthread_mutex_unlock(&events.lock);
  return ZE_RESULT_SUCCESS;
}

static uint32_t take_events(uint32_t count, zes_device_handle_t *of, zes_event_type_flags_t *out) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    zes_event_type_flags_t *const happened = &events.happened[((device_t *)of[i])->ordinal];
    out[i] = *happened;
    found += *happened != 0;
    *happened = 0;
  }
  return found;
}

static ze_result_t event_listen(ze_driver_handle_t driver, uint32_t milliseconds, uint32_t count,
                                zes_device_handle_t *of, uint32_t *out_count, zes_event_type_flags_t *out) {
  struct timespec end;
  int code = 0;
  (void)driver;
  if (!is_on()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  end.tv_sec += milliseconds / 1000 + end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  pthread_mutex_lock(&events.lock);
  while (!(*out_count = take_events(count, of, out)) && !code)
    code = pthread_cond_timedwait(&events.changed, &events.lock, &end);
  pthread_mutex_unlock(&events.lock);
  return *out_count ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

/* This process, twice: like one that has opened the device a second time. */
static ze_result_t processes(zes_device_handle_t device, uint32_t *count, zes_process_state_t *out) {
  if (!is_on()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (*count == 0 || *count > 2) *count = 2;
  for (uint32_t i = 0; out && i < *count; i++) {
    out[i].processId = (uint32_t)getpid();
    out[i].memSize = i ? 0 : atomic_load(&((device_t *)device)->used);
  }
  return ZE_RESULT_SUCCESS;
}

#define TABLE(NAME, TYPE, ...)                                                 \
  EXPORTED ze_result_t zesGet##NAME##ProcAddrTable(ze_api_version_t, TYPE *);  \
  ze_result_t zesGet##NAME##ProcAddrTable(ze_api_version_t version, TYPE *t) { \
    (void)version;                                                             \
    if (!t) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                       \
    __VA_ARGS__;                                                               \
    return ZE_RESULT_SUCCESS;                                                  \
  }

TABLE(Device, zes_device_dditable_t, t->pfnEnumEngineGroups = engines, t->pfnEnumFans = fans,
      t->pfnEnumFirmwares = firmwares, t->pfnEnumFrequencyDomains = frequencies, t->pfnEnumMemoryModules = memories,
      t->pfnEnumPowerDomains = powers, t->pfnEnumTemperatureSensors = temperatures, t->pfnProcessesGetState = processes,
      t->pfnEventRegister = event_register)
TABLE(Driver, zes_driver_dditable_t, t->pfnEventListen = event_listen)
TABLE(Engine, zes_engine_dditable_t, t->pfnGetProperties = engine_properties, t->pfnGetActivity = engine_activity)
TABLE(Firmware, zes_firmware_dditable_t, t->pfnGetProperties = firmware_properties)
TABLE(Fan, zes_fan_dditable_t, t->pfnGetState = fan_state)
TABLE(Frequency, zes_frequency_dditable_t, t->pfnGetProperties = frequency_properties, t->pfnGetState = frequency_state)
TABLE(Memory, zes_memory_dditable_t, t->pfnGetState = memory_state)
TABLE(Power, zes_power_dditable_t, t->pfnGetEnergyCounter = power_counter, t->pfnGetLimits = power_limits)
TABLE(Temperature, zes_temperature_dditable_t, t->pfnGetProperties = temperature_properties,
      t->pfnGetState = temperature_state)
