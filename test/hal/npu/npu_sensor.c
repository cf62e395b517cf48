/* Tests of what the Level Zero plugin tells of a device's state by the loader's system management. hal-cts has the rules for all plugins. */
#include <time.h>
#include <unistd.h>

#include "npu_testing.h"

TestSuite(npu_sensor, .init = open_npu, .fini = close_opencl);

static hal_status_t ask(uint32_t sensor, int64_t *out_value) { return hal_device_sensor(0, sensor, out_value); }

Test(npu_sensor, states_are_the_drivers_in_the_hosts_units) {
  int64_t value = 0;
  assert_ok(ask(HAL_SENSOR_TEMPERATURE, &value));
  cr_expect_eq(value, 42500);
  assert_ok(ask(HAL_SENSOR_POWER_LIMIT, &value));
  cr_expect_eq(value, 60000);
  assert_ok(ask(HAL_SENSOR_CLOCK, &value));
  cr_expect_eq(value, 1500);
  assert_ok(ask(HAL_SENSOR_MEMORY_CLOCK, &value));
  cr_expect_eq(value, 2400);
  assert_ok(ask(HAL_SENSOR_FAN, &value));
  cr_expect_eq(value, 30);
  cr_expect_eq(ask(HAL_SENSOR_MEMORY_UTILIZATION, &value), HAL_UNIMPLEMENTED);
}

Test(npu_sensor, what_needs_two_moments_is_told_from_the_second_question_on) {
  int64_t power = -1, load = -1, first = 0, second = 0;
  cr_expect_eq(ask(HAL_SENSOR_POWER, &power), HAL_UNIMPLEMENTED);
  cr_expect_eq(ask(HAL_SENSOR_UTILIZATION, &load), HAL_UNIMPLEMENTED);
  assert_ok(ask(HAL_SENSOR_ENERGY, &first));
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  assert_ok(ask(HAL_SENSOR_POWER, &power));
  assert_ok(ask(HAL_SENSOR_UTILIZATION, &load));
  assert_ok(ask(HAL_SENSOR_ENERGY, &second));
  cr_expect(power >= 24900 && power <= 25100, "%d", (int)power);
  cr_expect(load >= 49 && load <= 51, "%d", (int)load);
  cr_expect(second - first >= 499, "25 W for 20 ms are 500 mJ, not %d", (int)(second - first));
}

static void note(void *user_data, const hal_device_process_t *process) {
  hal_device_process_t *const found = user_data;
  cr_assert_eq(found->pid, 0, "a process was told twice");
  *found = *process;
}

Test(npu_sensor, memory_and_processes_are_told_each_process_once) {
  int64_t before = 0, after = 0;
  hal_device_process_t found = {.pid = 0};
  assert_ok(ask(HAL_SENSOR_MEMORY_USED, &before));
  device_bytes(0, 32 << 20);
  assert_ok(ask(HAL_SENSOR_MEMORY_USED, &after));
  cr_expect_geq(after - before, 32 << 20);
  assert_ok(hal_device_processes(0, note, &found));
  cr_expect_eq(found.pid, (uint64_t)getpid());
  cr_expect_eq(found.memory_used, (uint64_t)after);
  size_t room = 0, total = 0;
  assert_ok(hal_memory_info(0, &room, &total));
  cr_expect_eq(room + (size_t)after, total);
}

static void assert_nothing(const char *name, const char *value) {
  int64_t number = 0;
  hal_device_process_t found = {.pid = 0};
  setenv(name, value, 1);
  open_npu();
  for (uint32_t sensor = 1; sensor <= HAL_SENSOR_FAN; sensor++)
    cr_expect_eq(ask(sensor, &number), HAL_UNIMPLEMENTED, "sensor %u", sensor);
  cr_expect_eq(hal_device_processes(0, note, &found), HAL_UNIMPLEMENTED);
}

Test(npu_sensor, a_driver_without_system_management_tells_nothing, .init = NULL) {
  assert_nothing("ZE_CPU_WITHOUT", "sysman");
}
Test(npu_sensor, who_switches_it_off_is_heard, .init = NULL) { assert_nothing("ZES_ENABLE_SYSMAN", "0"); }
