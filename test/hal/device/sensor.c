/* Tests of sensor.h: measurements that devices report, on the fake plugin and on a plugin without these functions. */
#include "support.h"

#include <unistd.h>

Test(sensor, every_number_has_one_name_and_a_unit_and_they_have_no_gaps) {
  uint32_t count = 0;
  while (hal_sensor_name(count + 1)) count++;
  cr_assert_geq(count, 10);
  cr_assert_null(hal_sensor_name(0));
  cr_assert_null(hal_sensor_unit(count + 1));
  for (uint32_t i = 1; i <= count; i++) {
    cr_assert(hal_sensor_unit(i) && hal_sensor_unit(i)[0]);
    for (uint32_t j = 1; j < i; j++) cr_assert_str_neq(hal_sensor_name(i), hal_sensor_name(j));
  }
  cr_assert_str_eq(hal_sensor_name(HAL_SENSOR_POWER), "power");
  cr_assert_str_eq(hal_sensor_unit(HAL_SENSOR_POWER), "milliwatts");
}

static void see(void *user_data, const hal_device_process_t *process) {
  hal_device_process_t *const seen = user_data;
  *seen = *process;
}

Test(sensor, the_memory_in_use_is_what_the_plugin_has_given_and_no_device_is_started) {
  int64_t before = -1, after = -1;
  hal_block_t *block = NULL;
  hal_device_process_t seen = {.pid = 0};
  hal_device_info_t info = {.struct_size = sizeof info};
  assert_ok(hal_registry_open(PLUGIN_DIR "/libhal_fake.so"));
  assert_ok(hal_device_sensor(0, HAL_SENSOR_MEMORY_USED, &before));
  assert_ok(hal_device_processes(0, see, &seen));
  assert_ok(hal_device_info(0, &info));
  cr_assert_eq(seen.pid, 0); /* no memory has been allocated on it yet */
  cr_assert_not(hal_device_is_initialized(0));
  assert_ok(hal_memory_allocate(0, NULL, 32 << 20, &block));
  assert_ok(hal_device_sensor(0, HAL_SENSOR_MEMORY_USED, &after));
  cr_assert_geq(after - before, 32 << 20);
  assert_ok(hal_device_processes(0, see, &seen));
  cr_assert_eq(seen.pid, (uint64_t)getpid());
  cr_assert_eq(seen.memory_used, (uint64_t)after);
  hal_memory_release(block);
}

Test(sensor, an_unmeasured_sensor_names_the_plugin) {
  int64_t value = 77;
  assert_ok(hal_registry_open(PLUGIN_DIR "/libhal_fake.so"));
  assert_fails(hal_device_sensor(0, HAL_SENSOR_TEMPERATURE, &value), HAL_UNIMPLEMENTED,
               "fake:0 does not report temperature: plugin fake queried its driver");
  assert_fails(hal_device_sensor(0, 4000, &value), HAL_INVALID_ARGUMENT, "there is no sensor 4000");
  assert_fails(hal_device_sensor(0, 0, &value), HAL_INVALID_ARGUMENT, "there is no sensor 0");
  assert_fails(hal_device_sensor(99, HAL_SENSOR_POWER, &value), HAL_OUT_OF_RANGE, "device 99");
  assert_fails(hal_device_processes(0, NULL, NULL), HAL_INVALID_ARGUMENT, "pass a function");
  cr_assert_eq(value, 77);
}

Test(sensor, a_plugin_without_the_functions_returns_an_error) {
  int64_t value = 77;
  hal_device_process_t seen = {.pid = 0};
  open_fixture("five");
  assert_fails(hal_device_sensor(0, HAL_SENSOR_MEMORY_USED, &value), HAL_UNIMPLEMENTED, "plugin five has no function");
  assert_fails(hal_device_processes(0, see, &seen), HAL_UNIMPLEMENTED, "its processes: plugin five has no function");
}
