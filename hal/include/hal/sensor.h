/* sensor.h: what devices measure of themselves (memory used, load, temperature, power, clocks), who uses them, and what happens to them. What there is, and in
 * which unit, stands in plugin_sensor.h. Questions start the plugin, and no device: they take no memory of one. */
#ifndef HAL_SENSOR_H_
#define HAL_SENSOR_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a sensor, HAL_SENSOR_*, of the whole device. May take some milliseconds.
 * Errors: HAL_UNIMPLEMENTED = the device, or its plugin, does not measure this; HAL_UNAVAILABLE = the vendor's library for it is missing;
 * HAL_OUT_OF_RANGE; what init answered. Since 0.2. */
HAL_API hal_status_t hal_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value);

/* Gives a sensor's name, such as "power"; NULL for a number without a sensor. Numbers begin at 1 and have no gaps. Since 0.2. */
HAL_API const char *hal_sensor_name(uint32_t sensor);

/* Gives a sensor's unit, such as "milliwatts"; NULL as above. Since 0.2. */
HAL_API const char *hal_sensor_unit(uint32_t sensor);

/* Hands each process that uses the device to `fn`.
 * Errors: HAL_UNIMPLEMENTED = the driver, or the plugin, does not tell; HAL_UNAVAILABLE, as above; HAL_OUT_OF_RANGE; what init answered. Since 0.2. */
HAL_API hal_status_t hal_device_processes(int32_t device, hal_process_sink_t fn, void *user_data);

/* ---- events: a device is lost, its memory has errors, it lowers its clocks ----------------------------------------------------
 *
 *   static void note(void *user_data, int32_t device, const hal_device_event_t *event) {
 *     fprintf(stderr, "device %d: %s %s\n", (int)device, hal_device_event_name(event->kind), event->message);
 *   }
 *   hal_device_event_set_sink(note, NULL);
 *
 * Without a sink events are logged, where the log has the level "info" (HAL_LOG=info): else devices are not watched, which takes a thread. */

/* Is given one event, borrowed for the call, on a thread of the plugin's that holds no lock. It may call the HAL, except hal_registry_close, which
 * waits for it. */
typedef void (*hal_device_event_sink_t)(void *user_data, int32_t device, const hal_device_event_t *event);

/* Delivers the events of all devices to `sink` from now on, of those that are used later, too; NULL ends that. A call of an earlier sink may still
 * be running on another thread when this returns. Errors: the plugins', of a device that cannot be watched; the others are. Since 0.3. */
HAL_API hal_status_t hal_device_event_set_sink(hal_device_event_sink_t sink, void *user_data);

/* Returns an event's name, such as "lost"; NULL for a number without an event. Since 0.3. */
HAL_API const char *hal_device_event_name(uint32_t kind);

#ifdef __cplusplus
}
#endif
#endif /* HAL_SENSOR_H_ */
