/* Tests of the device state that the Level Zero plugin reports through the loader's system management. hal-cts tests
   the rules for all plugins. */
#include <level_zero/zes_api.h>
#include <stdatomic.h>
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

Test(npu_sensor, sensors_that_need_two_samples_are_reported_from_the_second_query_on) {
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
  cr_assert_eq(found->pid, 0, "a process was reported twice");
  *found = *process;
}

Test(npu_sensor, memory_and_processes_are_reported_each_process_once) {
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

Test(npu_sensor, a_driver_without_system_management_reports_nothing, .init = NULL) {
  assert_nothing("ZE_CPU_WITHOUT", "sysman");
}
Test(npu_sensor, system_management_can_be_switched_off, .init = NULL) { assert_nothing("ZES_ENABLE_SYSMAN", "0"); }

/* ---- events ---- */

static struct {
  atomic_int count;
  int32_t device;
  uint32_t kind;
} last;

static void keep(void *user_data, int32_t device, const hal_device_event_t *event) {
  (void)user_data;
  last.device = device, last.kind = event->kind;
  atomic_fetch_add(&last.count, 1);
}

static int comes(int wanted) {
  for (int i = 0; i < 10000 && atomic_load(&last.count) < wanted; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return atomic_load(&last.count) == wanted;
}

/* Makes the mock driver emit events of device 1; returns those for which the plugin has registered. */
static uint32_t happens(uint32_t flags) {
  uint32_t (*send)(int32_t, uint32_t) = NULL;
  void *const symbol = driver_function("ze_cpu_event");
  memcpy(&send, &symbol, sizeof symbol);
  return send(1, flags);
}

Test(npu_sensor, events_of_the_driver_come_to_the_sink_in_the_hosts_kinds) {
  static const uint32_t rows[][2] = {
      {ZES_EVENT_TYPE_FLAG_FREQ_THROTTLED, HAL_DEVICE_EVENT_THROTTLED},
      {ZES_EVENT_TYPE_FLAG_RAS_CORRECTABLE_ERRORS, HAL_DEVICE_EVENT_MEMORY_CORRECTED},
      {ZES_EVENT_TYPE_FLAG_RAS_UNCORRECTABLE_ERRORS, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED},
      {ZES_EVENT_TYPE_FLAG_DEVICE_DETACH, HAL_DEVICE_EVENT_LOST}};
  assert_ok(hal_device_ensure(1));
  assert_ok(hal_device_event_set_sink(keep, NULL));
  cr_assert_eq(happens(ZES_EVENT_TYPE_FLAG_DEVICE_SLEEP_STATE_ENTER), 0);
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(happens(rows[i][0]), rows[i][0]);
    cr_assert(comes(i + 1), "event %d", i);
    cr_assert(last.device == 1 && last.kind == rows[i][1], "event %d: device %d, kind %u", i, last.device, last.kind);
  }
}

Test(npu_sensor, a_device_that_a_call_finds_lost_is_an_event) {
  assert_ok(hal_device_event_set_sink(keep, NULL));
  char *const memory = device_bytes(0, 64);
  set_fault("lost=0");
  const hal_status_t queued = hal_memory_fill(NULL, 0, memory, "", 1, 64);
  const hal_status_t waited = hal_device_synchronize(0);
  cr_assert(queued == HAL_UNAVAILABLE || waited == HAL_UNAVAILABLE, "%s", hal_error_message());
  cr_assert(comes(1));
  cr_assert(last.device == 0 && last.kind == HAL_DEVICE_EVENT_LOST);
}
