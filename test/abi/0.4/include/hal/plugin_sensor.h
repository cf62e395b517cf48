/* plugin_sensor.h: what a device measures of itself, who uses it, and what happens to it. Part of plugin.h.
 *
 * A sensor's number, name and unit stand here and nowhere else: what `torch-backend smi` prints and hal_sensor_name tells is read from
 * this list. A plugin answers for those that its driver has, by device_sensor, and HAL_UNIMPLEMENTED for the others. */
#ifndef HAL_PLUGIN_SENSOR_H_
#define HAL_PLUGIN_SENSOR_H_

#include "hal/plugin_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(number, NAME, name, unit, what it tells). APPEND ONLY. Values are whole numbers; "percent" is 0 to 100. */
#define HAL_SENSORS(X)                                                                                          \
  X(1, MEMORY_USED, "memory_used", "bytes", "memory of the device that anybody uses, other processes included") \
  X(2, UTILIZATION, "utilization", "percent", "share of the last moments in which the device computed")         \
  X(3, MEMORY_UTILIZATION, "memory_utilization", "percent", "share in which its memory was read or written")    \
  X(4, TEMPERATURE, "temperature", "millidegrees Celsius", "of the chip")                                       \
  X(5, POWER, "power", "milliwatts", "what the device draws now")                                               \
  X(6, POWER_LIMIT, "power_limit", "milliwatts", "what it may draw")                                            \
  X(7, ENERGY, "energy", "millijoules", "what it has drawn since its driver was loaded")                        \
  X(8, CLOCK, "clock", "megahertz", "of its compute units")                                                     \
  X(9, MEMORY_CLOCK, "memory_clock", "megahertz", "of its memory")                                              \
  X(10, FAN, "fan", "percent", "speed of its fan, of the highest")

enum {
#define HAL_SENSOR_NUMBER(number, upper, name, unit, what) HAL_SENSOR_##upper = number,
  HAL_SENSORS(HAL_SENSOR_NUMBER)
#undef HAL_SENSOR_NUMBER
};

/* A process that uses a device, as device_processes tells. */
typedef struct hal_device_process_s {
  size_t struct_size;
  uint64_t pid;         /* as the driver numbers it, which in a container may not be the container's number */
  uint64_t memory_used; /* bytes of the device's memory; HAL_UNKNOWN_BYTES where the driver does not tell */
} hal_device_process_t;

#define HAL_UNKNOWN_BYTES UINT64_MAX

/* Is handed one process, borrowed for the call; calls no function of the plugin. */
typedef void (*hal_process_sink_t)(void *user_data, const hal_device_process_t *process);

/* ---- events: what happens to a device by itself; a plugin delivers those that its driver reports, by device_watch ------------- */

/* X(number, NAME, name, what it means). APPEND ONLY; at most 31. */
#define HAL_DEVICE_EVENTS(X)                                                                                          \
  X(0, LOST, "lost", "the device cannot be used any more: its calls return HAL_UNAVAILABLE")                          \
  X(1, MEMORY_CORRECTED, "memory_corrected", "errors of its memory were corrected; results are right")                \
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

typedef struct hal_device_event_s {
  size_t struct_size;
  uint32_t kind; /* HAL_DEVICE_EVENT_* */
  uint32_t reserved;
  int64_t native_code; /* the driver's own number, 0 if none */
  const char *message; /* what the driver says, "" if nothing */
} hal_device_event_t;

/* Is given one event, borrowed for the call; calls no function of the plugin. */
typedef void (*hal_device_event_fn_t)(void *user_data, const hal_device_event_t *event);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_SENSOR_H_ */
