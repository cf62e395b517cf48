/* clock.c: a plugin of two devices whose clock differs from the host's: it has another origin and runs one per mille
 * fast. Each fill leaves a record, so that a test can check the host's conversion of times. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#define FIVE_NAME "clock"
#include "five.c"

enum { RECORDS = 1024 };

static struct {
  int on;
  size_t count;
  hal_profile_record_t records[RECORDS];
} profiles[DEVICES];

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t device_clock(int64_t host) { return host + host / 1000 - 77000000000; }

hal_status_t hal_plugin_profile_timestamp(int32_t device, int64_t *out_device_ns, int64_t *out_host_ns) {
  (void)device;
  *out_host_ns = host_now();
  *out_device_ns = device_clock(*out_host_ns);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  if (getenv("CLOCK_FAILS") && device == 1 && on)
    return hal_host->error_set(HAL_UNAVAILABLE, 5, "clock: the counters are in use; end the other profiler");
  if (on && !profiles[device].on) profiles[device].count = 0;
  profiles[device].on = on;
  return HAL_OK;
}

/* The work that leaves records; they contain no name. */
hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  const int64_t start = host_now();
  const hal_status_t status = hal_base_memory_fill(stream, device, dst, pattern, pattern_size, size);
  if (!profiles[device].on || profiles[device].count == RECORDS) return status;
  profiles[device].records[profiles[device].count++] =
      (hal_profile_record_t){.struct_size = sizeof(hal_profile_record_t),
                             .start_ns = device_clock(start),
                             .end_ns = device_clock(host_now()),
                             .correlation = hal_host->profile_correlation(),
                             .bytes = size,
                             .kind = HAL_PROFILE_FILL};
  return status;
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  for (size_t i = 0; i < profiles[device].count; i++) sink(user_data, &profiles[device].records[i]);
  profiles[device].count = 0;
  return HAL_OK;
}
