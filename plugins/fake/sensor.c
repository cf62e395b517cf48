/* sensor.c: measurements of a device, and the processes that use it. There is no chip; only its memory can be measured,
 * which no other process shares. */
#include <unistd.h>

#include "fake.h"

hal_status_t hal_plugin_device_sensor(int32_t device, uint32_t sensor, int64_t *out_value) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  if (sensor != HAL_SENSOR_MEMORY_USED) return HAL_UNIMPLEMENTED;
  *out_value = (int64_t)atomic_load_explicit(&fake.devices[device].allocated, memory_order_relaxed);
  return HAL_OK;
}

hal_status_t hal_plugin_device_processes(int32_t device, hal_process_sink_t sink, void *user_data) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  const uint64_t used = atomic_load_explicit(&fake.devices[device].allocated, memory_order_relaxed);
  const hal_device_process_t own = {.struct_size = HAL_STRUCT_SIZE(hal_device_process_t, memory_used),
                                    .pid = (uint64_t)getpid(),
                                    .memory_used = used};
  if (used) sink(user_data, &own);
  return HAL_OK;
}
