/* sensor.h: sensors of devices (memory used, load, temperature, power, clocks), and the processes that use them. plugin_sensor.h lists the
 * sensors and their units. A query initializes the plugin, but no device, and uses no memory of one. */
#ifndef HAL_SENSOR_H_
#define HAL_SENSOR_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a sensor, HAL_SENSOR_*, of the whole device. May take some milliseconds.
 * Errors: HAL_UNIMPLEMENTED = the device, or its plugin, does not measure this; HAL_UNAVAILABLE = the vendor's library for it is missing;
* HAL_OUT_OF_RANGE; those of init. Since 0.2. */
HAL_API hal_status_t hal_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value);

/* Returns a sensor's name, such as "power"; NULL for a number without a sensor. Numbers begin at 1 and have no gaps. Since 0.2. */
HAL_API const char *hal_sensor_name(uint32_t sensor);

/* Returns a sensor's unit, such as "milliwatts"; NULL as above. Since 0.2. */
HAL_API const char *hal_sensor_unit(uint32_t sensor);

/* Calls `fn` for each process that uses the device.
 * Errors: HAL_UNIMPLEMENTED = the driver, or the plugin, does not report them; HAL_UNAVAILABLE, as above; HAL_OUT_OF_RANGE; those of init. Since 0.2. */
HAL_API hal_status_t hal_device_processes(int32_t device, hal_process_sink_t fn, void *user_data);

#ifdef __cplusplus
}
#endif
#endif /* HAL_SENSOR_H_ */
