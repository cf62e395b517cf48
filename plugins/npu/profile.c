/* profile.c: records of kernels, copies and fills, from the times of their events. A command is marked when it is
 * queued while a profile collects, and recorded when its stream sees that it is complete. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "npu.h"

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void npu_profile_append(int32_t ordinal, hal_plugin_stream_t *stream, const npu_work_t *work) {
  npu_device_t *const device = &npu.devices[ordinal];
  const uint32_t bits = device->facts.kernelTimestampValidBits;
  ze_kernel_timestamp_result_t times;
  if (ze.zeEventQueryKernelTimestamp(work->event->handle, &times)) return;
  const int64_t start = npu_device_time(device, times.global.kernelStart, bits);
  const int64_t end = npu_device_time(device, times.global.kernelEnd, bits);
  const hal_profile_record_t record = {.struct_size = sizeof record,
                                       .name = work->kernel ? work->kernel : work->op,
                                       .start_ns = start,
                                       /* The counter has wrapped around between them */
                                       .end_ns = end < start ? start : end,
                                       .correlation = work->correlation,
                                       .bytes = work->bytes,
                                       .stream = stream,
                                       .kind = work->kind,
                                       .direction = work->direction};
  hal_records_append(&device->profile, work->noted, &record);
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  if (on)
    atomic_store(&npu.keep_names, 1);
  else
    npu_work_reap_all(device);
  hal_records_enable(&npu.devices[device].profile, on);
  return HAL_OK;
}

hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  npu_work_reap_all(device);
  hal_records_read(&npu.devices[device].profile, sink, user_data);
  return HAL_OK;
}

/* The device's time has the bits of the records' times. The driver chooses the host clock that it reports, so the HAL's
 * host clock is read before and after. */
hal_status_t hal_plugin_profile_timestamp(int32_t ordinal, int64_t *out_device_ns, int64_t *out_host_ns) {
  const hal_status_t status = npu_check_device(ordinal);
  if (status) return status;
  const npu_device_t *const device = &npu.devices[ordinal];
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; i++) { /* the shortest of several measurements is the most exact */
    uint64_t host = 0, ticks = 0;
    const int64_t before = host_now();
    const ze_result_t code = ze.zeDeviceGetGlobalTimestamps(device->handle, &host, &ticks);
    const int64_t after = host_now();
    if (code) return npu_driver_error(code, "npu: cannot read the device's clock");
    if (after - before >= best) continue;
    best = after - before;
    *out_device_ns = npu_device_time(device, ticks, device->facts.kernelTimestampValidBits);
    *out_host_ns = before + best / 2;
  }
  return HAL_OK;
}
