/* sensor.h: sensors of devices (memory used, load, temperature, power, clocks), the processes that use them, and their
 * events. plugin_sensor.h lists the sensors and their units. A query initializes the plugin, but no device, and uses no
 * memory of one. */
#ifndef HAL_SENSOR_H_
#define HAL_SENSOR_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a sensor, HAL_SENSOR_*, of the whole device. May take some milliseconds. Errors: HAL_UNIMPLEMENTED = the device
 * or its plugin does not have this sensor; HAL_UNAVAILABLE = the vendor's library for it is missing; HAL_OUT_OF_RANGE;
 * those of init. Since 0.2. */
HAL_API hal_status_t hal_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value);

/* Returns a sensor's name, such as "power"; NULL for an unknown number. Numbers begin at 1 and have no gaps. Since
 * 0.2. */
HAL_API const char *hal_sensor_name(uint32_t sensor);

/* Returns a sensor's unit, such as "milliwatts"; NULL for an unknown number. Since 0.2. */
HAL_API const char *hal_sensor_unit(uint32_t sensor);

/* Calls `fn` for each process that uses the device. Errors: HAL_UNIMPLEMENTED = the driver or the plugin does not
 * report processes; HAL_UNAVAILABLE = the vendor's library for it is missing; HAL_OUT_OF_RANGE; those of init. Since
 * 0.2. */
HAL_API hal_status_t hal_device_processes(int32_t device, hal_process_sink_t fn, void *user_data);

/* ---- events: a device is lost, its memory has errors, it lowers its clocks -----------------------------------------
 *
 *   static void note(void *user_data, int32_t device, const hal_device_event_t *event) {
 *     fprintf(stderr, "device %d: %s %s\n", (int)device, hal_device_event_name(event->kind), event->message);
 *   }
 *   hal_device_event_set_sink(note, NULL);
 *
 * Without a sink, events are logged if the level "info" is enabled (HAL_LOG=info). Otherwise devices are not watched,
 * which saves a thread. */

/* Receives one event, borrowed for the call, on a thread of the plugin that holds no lock. It may call the HAL, except
 * hal_registry_close, which waits for it. */
typedef void (*hal_device_event_sink_t)(void *user_data, int32_t device, const hal_device_event_t *event);

/* Delivers the events of all devices to `sink` from now on, including devices that are used later; NULL stops it. A
 * call of the previous sink may still be running on another thread when this returns. Errors: the plugins', for a
 * device that cannot be watched; the others are watched. Since 0.3. */
HAL_API hal_status_t hal_device_event_set_sink(hal_device_event_sink_t sink, void *user_data);

/* Returns an event's name, such as "lost"; NULL for an unknown number. Since 0.3. */
HAL_API const char *hal_device_event_name(uint32_t kind);

#ifdef __cplusplus
}
#endif
#endif /* HAL_SENSOR_H_ */
