/* profile.c: records of kernels, copies and fills, from the driver's profiling of their events. A command is noted when it is queued
 * while a profile collects, and recorded when its stream sees that it is complete. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "opencl.h"

enum { MOST_RECORDS = 1 << 18, FIRST_RECORDS = 256 };

static int64_t host_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void ocl_profile_note(int32_t device, ocl_work_t *work) {
  const int asks = hal_host->struct_size >= HAL_STRUCT_SIZE(hal_host_api_t, profile_correlation);
  work->noted = atomic_load_explicit(&ocl.devices[device].profile.on, memory_order_relaxed);
  work->correlation = asks ? hal_host->profile_correlation() : 0;
}

static int grow(ocl_profile_t *profile) {
  const uint64_t room = profile->room ? 2 * profile->room : FIRST_RECORDS;
  if (room > MOST_RECORDS) return 0;
  hal_profile_record_t *records = hal_host->mem_alloc(room * sizeof *records, alignof(hal_profile_record_t));
  if (!records) return 0;
  if (profile->count) memcpy(records, profile->records, profile->count * sizeof *records);
  hal_host->mem_free(profile->records);
  profile->records = records;
  profile->room = room;
  return 1;
}

void ocl_profile_append(int32_t device, hal_plugin_stream_t *stream, const ocl_work_t *work) {
  ocl_profile_t *profile = &ocl.devices[device].profile;
  cl_ulong start = 0, end = 0;
  if (icd.clGetEventProfilingInfo(work->event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) ||
      icd.clGetEventProfilingInfo(work->event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL))
    start = end = 0; /* of work that failed */
  if (end && start > end) start = end;
  pthread_mutex_lock(&profile->lock);
  if (work->noted == profile->last && end) {
    if (profile->count == profile->room && !grow(profile))
      profile->lost++;
    else
      profile->records[profile->count++] = (hal_profile_record_t){.struct_size = sizeof(hal_profile_record_t),
                                                                  .name = work->kernel ? work->kernel : work->op,
                                                                  .start_ns = (int64_t)start,
                                                                  .end_ns = (int64_t)end,
                                                                  .correlation = work->correlation,
                                                                  .bytes = work->bytes,
                                                                  .stream = stream,
                                                                  .kind = work->kind,
                                                                  .direction = work->direction};
  }
  pthread_mutex_unlock(&profile->lock);
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  ocl_profile_t *profile = &ocl.devices[device].profile;
  if (!on) ocl_work_reap_all(device);
  pthread_mutex_lock(&profile->lock);
  const int was_on = atomic_load(&profile->on) != 0;
  if (on && !was_on) {
    if (++profile->last == 0) profile->last = 1;
    profile->count = profile->lost = 0;
    atomic_store(&ocl.keep_names, 1);
    atomic_store(&profile->on, profile->last);
  }
  if (!on) atomic_store(&profile->on, 0);
  pthread_mutex_unlock(&profile->lock);
  return HAL_OK;
}

/* Takes the buffer away, so that work goes on while its records are read. */
hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  ocl_profile_t *profile = &ocl.devices[device].profile;
  ocl_work_reap_all(device);
  pthread_mutex_lock(&profile->lock);
  hal_profile_record_t *const records = profile->records;
  const uint64_t count = profile->count, lost = profile->lost;
  profile->records = NULL;
  profile->count = profile->room = profile->lost = 0;
  pthread_mutex_unlock(&profile->lock);
  for (uint64_t i = 0; i < count; i++) sink(user_data, &records[i]);
  if (lost) {
    const int64_t last = count ? records[count - 1].end_ns : 0;
    const hal_profile_record_t missing = {.struct_size = sizeof missing,
                                          .name = "",
                                          .start_ns = last,
                                          .end_ns = last,
                                          .bytes = lost,
                                          .kind = HAL_PROFILE_LOST};
    sink(user_data, &missing);
  }
  hal_host->mem_free(records);
  return HAL_OK;
}

/* The end of a marker is the device's clock now; the host's clock is read on both sides of it. Each device has its own clock. */
hal_status_t hal_plugin_profile_timestamp(int32_t device, int64_t *out_device_ns, int64_t *out_host_ns) {
  const hal_status_t status = ocl_check_device(device);
  if (status) return status;
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; i++) { /* the quickest of a few is the most exact */
    cl_event marker = NULL;
    cl_ulong end = 0;
    const int64_t before = host_now();
    cl_int code = icd.clEnqueueMarkerWithWaitList(ocl.devices[device].queue, 0, NULL, &marker);
    if (!code && !marker) code = CL_INVALID_EVENT;
    if (code) return ocl_driver_error(code, "opencl: the device's clock cannot be read");
    code = icd.clWaitForEvents(1, &marker);
    const int64_t after = host_now();
    if (!code) code = icd.clGetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    icd.clReleaseEvent(marker);
    if (code) return ocl_driver_error(code, "opencl: the device's clock cannot be read");
    if (after - before >= best) continue;
    best = after - before;
    *out_device_ns = (int64_t)end;
    *out_host_ns = before + best / 2;
  }
  return HAL_OK;
}
