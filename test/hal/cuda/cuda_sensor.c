/* Tests of the sensors that the CUDA plugin reads through NVML, on the mock of NVML. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cuda_testing.h"

enum { MEGA = 1 << 20 };

Test(cuda_sensor, numbers_come_in_the_units_of_the_list) {
  static const struct {
    uint32_t sensor;
    int64_t value;
  } rows[] = {{HAL_SENSOR_UTILIZATION, 37}, {HAL_SENSOR_MEMORY_UTILIZATION, 21}, {HAL_SENSOR_TEMPERATURE, 41000},
              {HAL_SENSOR_POWER, 87250},    {HAL_SENSOR_POWER_LIMIT, 350000},    {HAL_SENSOR_ENERGY, 123456789},
              {HAL_SENSOR_CLOCK, 1410},     {HAL_SENSOR_MEMORY_CLOCK, 1593},     {HAL_SENSOR_FAN, 30}};
  int64_t value = 0;
  needs_mock("the results of NVML");
  setenv("CUDA_MOCK_DEVICES", "2", 1);
  assert_ok(open_cuda_with(NULL, NULL));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_ok(hal_device_sensor(1, rows[i].sensor, &value));
    cr_assert_eq(value, rows[i].value, "%s is %lld", hal_sensor_name(rows[i].sensor), (long long)value);
  }
  cr_assert_not(hal_device_is_initialized(1)); /* no context was made */
}

Test(cuda_sensor, memory_is_that_of_the_queried_device) {
  int64_t own = 0, other = 0;
  hal_block_t *block = NULL;
  open_cuda();
  needs_two_devices(hal_device_count());
  assert_ok(hal_memory_allocate(1, NULL, 48 * MEGA, &block));
  assert_ok(hal_device_sensor(1, HAL_SENSOR_MEMORY_USED, &own));
  assert_ok(hal_device_sensor(0, HAL_SENSOR_MEMORY_USED, &other));
  cr_assert_geq(own, 48 * MEGA);
  cr_assert_lt(other, 48 * MEGA);
  hal_memory_release(block);
}

Test(cuda_sensor, what_a_device_lacks_is_not_measured) {
  int64_t value = 0;
  needs_mock("the results of NVML");
  setenv("NVML_MOCK", "power=1", 1);
  open_cuda();
  assert_ok(hal_device_sensor(0, HAL_SENSOR_POWER, &value));
  cr_assert_eq(value, 1);
  assert_fails(hal_device_sensor(0, HAL_SENSOR_FAN, &value), HAL_UNIMPLEMENTED, "nvgpu:0 does not report fan");
  assert_fails(hal_device_sensor(0, HAL_SENSOR_UTILIZATION, &value), HAL_UNIMPLEMENTED, "does not report utilization");
}

Test(cuda_sensor, a_failing_library_is_reported_with_its_status_and_the_remedy) {
  int64_t value = 0;
  needs_mock("the results of NVML");
  setenv("NVML_MOCK", "init=18", 1);
  open_cuda();
  assert_fails(hal_device_sensor(0, HAL_SENSOR_POWER, &value), HAL_UNAVAILABLE,
               "NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)");
  assert_fails(hal_device_sensor(0, HAL_SENSOR_POWER, &value), HAL_UNAVAILABLE, "restart the machine");
  setenv("NVML_MOCK", "fails=4", 1); /* it now initializes, and requires permissions */
  assert_fails(hal_device_sensor(0, HAL_SENSOR_POWER, &value), HAL_FAILED_PRECONDITION, "NVML_ERROR_NO_PERMISSION (4)");
  setenv("NVML_MOCK", "fails=15", 1);
  assert_fails(hal_device_sensor(0, HAL_SENSOR_POWER, &value), HAL_UNAVAILABLE, "NVML_ERROR_GPU_IS_LOST (15)");
}

typedef struct seen_s {
  unsigned count, own, unknown;
  uint64_t bytes;
} seen_t;

static void see(void *user_data, const hal_device_process_t *process) {
  seen_t *const seen = user_data;
  seen->count++;
  if (process->pid == (uint64_t)getpid()) seen->own++, seen->bytes = process->memory_used;
  if (process->memory_used == HAL_UNKNOWN_BYTES) seen->unknown++;
}

Test(cuda_sensor, processes_are_reported_once_each_with_their_memory) {
  seen_t seen = {0}, many = {0};
  hal_block_t *block = NULL;
  needs_mock("the results of NVML");
  setenv("NVML_MOCK", "parts=3,others=2", 1);
  open_cuda();
  assert_ok(hal_memory_allocate(0, NULL, 48 * MEGA, &block));
  assert_ok(hal_device_processes(0, see, &seen));
  cr_assert(seen.count == 3 && seen.own == 1 && seen.unknown == 2, "%u, %u, %u", seen.count, seen.own, seen.unknown);
  cr_assert_geq(seen.bytes, 48 * MEGA - 3);
  setenv("NVML_MOCK", "others=5000", 1); /* more processes than the first list has entries */
  assert_ok(hal_device_processes(0, see, &many));
  cr_assert_eq(many.count, 5001);
  hal_memory_release(block);
}

/* ---- events ---- */

static struct {
  atomic_int count;
  int32_t device;
  uint32_t kind;
  int64_t native_code;
} last;

static void keep(void *user_data, int32_t device, const hal_device_event_t *event) {
  (void)user_data;
  last.device = device, last.kind = event->kind, last.native_code = event->native_code;
  atomic_fetch_add(&last.count, 1);
}

static int comes(int wanted) {
  for (int i = 0; i < 10000 && atomic_load(&last.count) < wanted; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return atomic_load(&last.count) == wanted;
}

/* Makes NVML report an event of device 1; returns whether the plugin has registered for it. */
static int happens(unsigned long long type, unsigned long long data) {
  int (*send)(int, unsigned long long, unsigned long long) = NULL;
  void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(library);
  void *const symbol = dlsym(library, "nvml_mock_event");
  cr_assert_not_null(symbol);
  memcpy(&send, &symbol, sizeof symbol);
  dlclose(library);
  return send(1, type, data);
}

Test(cuda_sensor, events_of_nvml_come_to_the_sink_in_the_hosts_kinds) {
  static const struct {
    unsigned long long type, data;
    uint32_t kind;
  } rows[] = {{1, 0, HAL_DEVICE_EVENT_MEMORY_CORRECTED},
              {2, 0, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED},
              {8, 48, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED},
              {8, 79, HAL_DEVICE_EVENT_LOST}};
  int count = 0;
  needs_mock("events of NVML");
  open_cuda();
  assert_ok(hal_device_ensure(1));
  assert_ok(hal_device_event_set_sink(keep, NULL));
  cr_assert_not(happens(4, 0), "changes of the performance state must not be device events");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cr_assert(happens(rows[i].type, rows[i].data));
    cr_assert(comes(++count), "event %zu", i);
    cr_assert(last.device == 1 && last.kind == rows[i].kind && last.native_code == (int64_t)rows[i].data,
              "event %zu: device %d, kind %u, %lld", i, last.device, last.kind, (long long)last.native_code);
  }
  cr_assert(happens(8, 13)); /* an error of the program: the call that encounters it returns it */
  cr_assert(happens(1, 0));
  cr_assert(comes(++count));
  cr_assert_eq(last.kind, HAL_DEVICE_EVENT_MEMORY_CORRECTED);
}

Test(cuda_sensor, throttling_is_reported_when_it_begins) {
  needs_mock("events of NVML");
  setenv("NVML_MOCK", "throttle=1", 1); /* idle */
  open_cuda();
  assert_ok(hal_device_ensure(1));
  assert_ok(hal_device_event_set_sink(keep, NULL));
  cr_assert(happens(16, 0));
  setenv("NVML_MOCK", "throttle=65", 1); /* and heat */
  cr_assert(happens(16, 0));
  cr_assert(comes(1));
  cr_assert(last.kind == HAL_DEVICE_EVENT_THROTTLED && last.native_code == 64, "%lld", (long long)last.native_code);
  cr_assert(happens(16, 0)); /* it goes on */
  setenv("NVML_MOCK", "throttle=0", 1);
  cr_assert(happens(16, 0));
  setenv("NVML_MOCK", "throttle=4", 1);
  cr_assert(happens(16, 0));
  cr_assert(comes(2));
}

Test(cuda_sensor, a_context_that_ends_is_a_lost_device) {
  needs_mock("faults of the driver");
  open_cuda();
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_device_event_set_sink(keep, NULL));
  set_fault("lost=0,code=700");
  char *const memory = device_bytes(0, 64);
  const hal_status_t queued = hal_memory_fill(NULL, 0, memory, "", 1, 64);
  const hal_status_t waited = hal_device_synchronize(0);
  cr_assert(queued == HAL_UNAVAILABLE || waited == HAL_UNAVAILABLE, "%s", hal_error_message());
  cr_assert(comes(1));
  cr_assert(last.device == 0 && last.kind == HAL_DEVICE_EVENT_LOST && last.native_code == 700);
}

/* On hardware: numbers in the range of what such a device can have. */
Test(cuda_sensor, a_device_reports_plausible_values) {
  static const struct {
    uint32_t sensor;
    int64_t least, most;
  } rows[] = {{HAL_SENSOR_UTILIZATION, 0, 100},
              {HAL_SENSOR_TEMPERATURE, 5000, 110000},
              {HAL_SENSOR_POWER, 5000, 2000000},
              {HAL_SENSOR_CLOCK, 50, 5000},
              {HAL_SENSOR_MEMORY_USED, 1, INT64_C(1) << 40},
              {HAL_SENSOR_MEMORY_CLOCK, 50, 20000}};
  int64_t value = 0;
  if (is_on_mock()) cr_skip_test("the mock driver has no temperature");
  open_cuda();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_ok(hal_device_sensor(0, rows[i].sensor, &value));
    cr_assert(value >= rows[i].least && value <= rows[i].most, "%s is %lld", hal_sensor_name(rows[i].sensor),
              (long long)value);
  }
}
