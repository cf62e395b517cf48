/* sensor.c: sensors of devices. Their plugins are initialized, but not the devices. */
#include "hal/sensor.h"

#include "device/device.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/slots.h"

static const struct {
  const char *name, *unit;
} sensors[] = {
#define ROW(number, upper, name, unit, what) [number] = {name, unit},
    HAL_SENSORS(ROW)
#undef ROW
};

static int is_sensor(uint32_t sensor) { return sensor && sensor < sizeof sensors / sizeof *sensors; }

const char *hal_sensor_name(uint32_t sensor) { return is_sensor(sensor) ? sensors[sensor].name : NULL; }

const char *hal_sensor_unit(uint32_t sensor) { return is_sensor(sensor) ? sensors[sensor].unit : NULL; }

/* The plugin's own message, if it set one. */
static hal_status_t not_reported(const hal_device_t *device, uint32_t slot, hal_status_t status, const char *what) {
  if (status != HAL_UNIMPLEMENTED) return hal_error_plugin(device->plugin, slot, status);
  return hal_error_set(status, "device %s does not report %s: plugin %s %s", device->label, what,
                       device->plugin->info.name,
                       hal_slot_is_provided(&device->plugin->api, slot) ? "queried its driver, which has no such value"
                                                                        : "has no function for it");
}

hal_status_t hal_device_sensor(int32_t index, uint32_t sensor, int64_t *out_value) {
  hal_device_t *device = NULL;
  int64_t value = 0;
  if (!is_sensor(sensor))
    return hal_error_set(HAL_INVALID_ARGUMENT, "there is no sensor %u; the numbers are 1 to %u (plugin_sensor.h)",
                         (unsigned)sensor, (unsigned)(sizeof sensors / sizeof *sensors - 1));
  HAL_RETURN_IF_ERROR(hal_device_start(index, &device));
  const hal_status_t status = hal_call_device_sensor(device->plugin, device->ordinal, sensor, &value);
  if (status) return not_reported(device, HAL_SLOT_device_sensor, status, sensors[sensor].name);
  *out_value = value;
  return HAL_OK;
}

hal_status_t hal_device_processes(int32_t index, hal_process_sink_t fn, void *user_data) {
  hal_device_t *device = NULL;
  if (!fn) return hal_error_set(HAL_INVALID_ARGUMENT, "hal_device_processes: fn is NULL; pass a function");
  HAL_RETURN_IF_ERROR(hal_device_start(index, &device));
  const hal_status_t status = hal_call_device_processes(device->plugin, device->ordinal, fn, user_data);
  return status ? not_reported(device, HAL_SLOT_device_processes, status, "its processes") : HAL_OK;
}
