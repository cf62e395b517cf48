/* sensor.c: the sensors of a device, and the processes that use it. */
#include "cts.h"

enum { MEGA = 1 << 20, PROCESSES = 1024 };

/* Limits that no device exceeds: a larger number has another unit. */
static const struct {
  uint32_t sensor;
  int64_t least, most;
} limits[] = {
    {HAL_SENSOR_UTILIZATION, 0, 100},
    {HAL_SENSOR_MEMORY_UTILIZATION, 0, 100},
    {HAL_SENSOR_TEMPERATURE, -100000, 300000},
    {HAL_SENSOR_POWER, 0, 100000000},
    {HAL_SENSOR_POWER_LIMIT, 0, 100000000},
    {HAL_SENSOR_ENERGY, 0, INT64_MAX},
    {HAL_SENSOR_CLOCK, 0, 100000},
    {HAL_SENSOR_MEMORY_CLOCK, 0, 100000},
    {HAL_SENSOR_FAN, 0, 100},
};
enum { LIMITS = sizeof limits / sizeof *limits };

/* Returns whether the device has it. */
static int read_sensor(cts_t *t, uint32_t sensor, int64_t *out_value) {
  const hal_status_t status = cts_device_sensor(t, t->device, sensor, out_value);
  if (status == HAL_UNIMPLEMENTED || status == HAL_UNAVAILABLE) return 0;
  cts_expect_ok(t, HAL_SLOT_device_sensor, status);
  return 1;
}

void cts_case_device_sensors(cts_t *t) {
  static cts_gate_t gate;
  int64_t value = -7, later = 0;
  int found = 0;
  hal_plugin_stream_t *const stream = cts_stream(t);
  if (cts_is_async(t)) cts_gate_close(t, &gate, stream); /* a call that waits for work would wait forever */
  CTS_JUDGE(t, device_sensor, "Reads one sensor");
  for (int i = 0; i < LIMITS; i++) {
    if (!read_sensor(t, limits[i].sensor, &value)) continue;
    found++;
    CTS_CHECK(t, limits[i].least <= value && value <= limits[i].most,
              "sensor %u is %lld, which is not between %lld and %lld", (unsigned)limits[i].sensor, (long long)value,
              (long long)limits[i].least, (long long)limits[i].most);
    if (limits[i].sensor != HAL_SENSOR_ENERGY) continue;
    read_sensor(t, HAL_SENSOR_ENERGY, &later);
    CTS_CHECK(t, later >= value, "the energy is %lld millijoules, and then %lld", (long long)value, (long long)later);
  }
  if (read_sensor(t, HAL_SENSOR_MEMORY_USED, &value)) {
    found++;
    CTS_CHECK(t, value >= 0 && (!t->info.total_memory || (uint64_t)value <= t->info.total_memory),
              "%lld bytes of memory are used, of %llu", (long long)value, (unsigned long long)t->info.total_memory);
  }
  if (cts_is_async(t)) cts_gate_open(&gate);
  cts_sync(t, stream);
  CTS_JUDGE(t, device_sensor, "the number is unknown");
  if (cts_device_sensor(t, t->device, 0, &value) == HAL_UNAVAILABLE) cts_skip(t, "what measures is not installed here");
  CTS_STATUS(t, HAL_UNIMPLEMENTED, device_sensor, t->device, 0, &value);
  CTS_STATUS(t, HAL_UNIMPLEMENTED, device_sensor, t->device, 1u << 30, &value);
  if (!found) cts_skip(t, "device_sensor returns HAL_UNIMPLEMENTED for every sensor");
}

/* Other processes also change the number: one of several readings must show the change. */
void cts_case_device_sensor_memory(cts_t *t) {
  enum { LOOKS = 5, SIZE = 64 * MEGA };
  int64_t most = INT64_MIN;
  for (int look = 0; look < LOOKS; look++) {
    int64_t before = 0, after = 0;
    void *piece = NULL;
    if (!read_sensor(t, HAL_SENSOR_MEMORY_USED, &before)) cts_skip(t, "the device does not report the memory in use");
    if (cts_memory_alloc(t, t->device, SIZE, 0, &piece)) cts_skip(t, "the device has no %d bytes for it", SIZE);
    /* written, because some drivers count memory when it is used */
    CTS_OK(t, memory_fill, NULL, t->device, piece, "", 1, SIZE);
    read_sensor(t, HAL_SENSOR_MEMORY_USED, &after);
    cts_free(t, piece);
    if (after - before > most) most = after - before;
  }
  CTS_CHECK(t, most >= SIZE / 2, "%d bytes were allocated and written, and %lld more are used", SIZE, (long long)most);
}

typedef struct processes_s {
  cts_t *t;
  uint32_t count;
  uint64_t pids[PROCESSES];
} processes_t;

static void keep(void *user_data, const hal_device_process_t *process) {
  processes_t *const all = user_data;
  CTS_CHECK(all->t, process->struct_size >= HAL_STRUCT_SIZE(hal_device_process_t, memory_used),
            "device_processes handed out a struct of %zu bytes", process->struct_size);
  for (uint32_t i = 0; i < all->count; i++)
    CTS_CHECK(all->t, all->pids[i] != process->pid, "device_processes handed out process %llu twice",
              (unsigned long long)process->pid);
  if (all->count < PROCESSES) all->pids[all->count++] = process->pid;
}

void cts_case_device_processes(cts_t *t) {
  static cts_gate_t gate;
  static processes_t all;
  all = (processes_t){.t = t};
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const memory = cts_alloc(t, MEGA); /* this process uses the device */
  CTS_OK(t, memory_fill, stream, t->device, memory, "", 1, MEGA);
  if (cts_is_async(t)) cts_gate_close(t, &gate, stream);
  const hal_status_t status = cts_device_processes(t, t->device, keep, &all);
  if (cts_is_async(t)) cts_gate_open(&gate);
  cts_sync(t, stream);
  if (status == HAL_UNIMPLEMENTED || status == HAL_UNAVAILABLE)
    cts_skip(t, "the driver of this device does not report its processes");
  cts_expect_ok(t, HAL_SLOT_device_processes, status);
  CTS_JUDGE(t, device_processes, "including this one");
  CTS_CHECK(t, all.count, "device_processes handed out no process, and this one has memory of the device");
  cts_free(t, memory);
}
