/* plugin_sensor.h: the sensors of a device, the processes that use it, and its events. Part of plugin.h.
 *
 * This list is the only definition of a sensor's number, name and unit: `torch-backend smi` and hal_sensor_name read
 * it. A plugin implements device_sensor for the sensors of its driver, and returns HAL_UNIMPLEMENTED for the others. */
#ifndef HAL_PLUGIN_SENSOR_H_
#define HAL_PLUGIN_SENSOR_H_

#include "hal/plugin_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(number, NAME, name, unit, description). APPEND ONLY. Values are integers; "percent" is 0 to 100. */
#define HAL_SENSORS(X)                                                                                  \
  X(1, MEMORY_USED, "memory_used", "bytes", "memory of the device in use, by this and other processes") \
  X(2, UTILIZATION, "utilization", "percent", "share of recent time in which the device computed")      \
  X(3, MEMORY_UTILIZATION, "memory_utilization", "percent",                                             \
    "share of that time in which its memory was read or written")                                       \
  X(4, TEMPERATURE, "temperature", "millidegrees Celsius", "of the chip")                               \
  X(5, POWER, "power", "milliwatts", "power that the device uses now")                                  \
  X(6, POWER_LIMIT, "power_limit", "milliwatts", "maximum power of the device")                         \
  X(7, ENERGY, "energy", "millijoules", "energy used since its driver was loaded")                      \
  X(8, CLOCK, "clock", "megahertz", "of its compute units")                                             \
  X(9, MEMORY_CLOCK, "memory_clock", "megahertz", "of its memory")                                      \
  X(10, FAN, "fan", "percent", "speed of its fan, of its maximum speed")

enum {
#define HAL_SENSOR_NUMBER(number, upper, name, unit, what) HAL_SENSOR_##upper = number,
  HAL_SENSORS(HAL_SENSOR_NUMBER)
#undef HAL_SENSOR_NUMBER
};

/* A process that uses a device, see device_processes. */
typedef struct hal_device_process_s {
  size_t struct_size;
  uint64_t pid;         /* the driver's number, which in a container may differ from the container's number */
  uint64_t memory_used; /* bytes of the device's memory; HAL_UNKNOWN_BYTES if the driver does not report them */
} hal_device_process_t;

#define HAL_UNKNOWN_BYTES UINT64_MAX

/* Receives one process, borrowed for the call; must not call functions of the plugin. */
typedef void (*hal_process_sink_t)(void *user_data, const hal_device_process_t *process);

/* ---- events of a device; device_watch delivers those that the driver reports ------------------------------------- */

/* X(number, NAME, name, description). APPEND ONLY; at most 31. */
#define HAL_DEVICE_EVENTS(X)                                                                                          \
  X(0, LOST, "lost", "the device cannot be used any more: its calls return HAL_UNAVAILABLE")                          \
  X(1, MEMORY_CORRECTED, "memory_corrected", "errors of its memory were corrected; results are correct")              \
  X(2, MEMORY_UNCORRECTED, "memory_uncorrected", "errors of its memory could not be corrected; results may be wrong") \
  X(3, THROTTLED, "throttled", "it lowers its clocks because of power or temperature")

enum {
#define HAL_DEVICE_EVENT_NUMBER(number, upper, name, what) HAL_DEVICE_EVENT_##upper = number,
  HAL_DEVICE_EVENTS(HAL_DEVICE_EVENT_NUMBER)
#undef HAL_DEVICE_EVENT_NUMBER
};

/* A mask of events: bit k = event number k. */
#define HAL_DEVICE_EVENT_BIT(kind) (UINT32_C(1) << (kind))
#define HAL_DEVICE_EVENT_ALL UINT32_C(0x7fffffff)

typedef struct hal_device_event_s { /* an event of a device, see device_watch */
  size_t struct_size;
  uint32_t kind; /* HAL_DEVICE_EVENT_* */
  uint32_t reserved;
  int64_t native_code; /* the driver's own number, 0 if none */
  const char *message; /* the driver's message, "" if none */
} hal_device_event_t;

/* Receives one event, borrowed for the call; must not call functions of the plugin. */
typedef void (*hal_device_event_fn_t)(void *user_data, const hal_device_event_t *event);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_SENSOR_H_ */
