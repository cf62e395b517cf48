/* sensor.h: what devices measure of themselves (memory used, load, temperature, power, clocks), and who uses them. What there is, and in
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

#ifdef __cplusplus
}
#endif
#endif /* HAL_SENSOR_H_ */
