/* watch.c: events of devices: a loss that a call of the driver reports, and events of system management
 * (zesDriverEventListen). */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_watch.h>
#include <time.h>

#include "npu.h"

enum { LISTEN_MS = 100 };

static void listen_to_driver(void);
static hal_watch_t watch = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .listen = listen_to_driver};
static atomic_int registered[NPU_MAX_DEVICES];

static const struct {
  uint32_t flag, kind;
  const char *message;
} rows[] = {
    {ZES_EVENT_TYPE_FLAG_DEVICE_DETACH, HAL_DEVICE_EVENT_LOST, "the device was reset or disabled"},
    {ZES_EVENT_TYPE_FLAG_RAS_CORRECTABLE_ERRORS, HAL_DEVICE_EVENT_MEMORY_CORRECTED, "correctable RAS errors"},
    {ZES_EVENT_TYPE_FLAG_RAS_UNCORRECTABLE_ERRORS, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED, "uncorrectable RAS errors"},
    {ZES_EVENT_TYPE_FLAG_FREQ_THROTTLED, HAL_DEVICE_EVENT_THROTTLED, "the frequency is throttled"}};
enum { ROWS = sizeof rows / sizeof *rows };

void npu_watch_lost(int32_t device, ze_result_t code) {
  hal_watch_report(&watch, device, HAL_DEVICE_EVENT_LOST, (int64_t)code, npu_error_name(code));
}

/* Without system management or its events, the driver reports nothing. */
static void register_device(int32_t ordinal) {
  zes_event_type_flags_t flags = 0;
  for (int i = 0; i < ROWS; i++) flags |= rows[i].flag;
  if (ze.zesDriverEventListen && ze.zesDeviceEventRegister &&
      !ze.zesDeviceEventRegister((zes_device_handle_t)npu.devices[ordinal].handle, flags))
    atomic_store(&registered[ordinal], 1);
}

static void report(int32_t device, zes_event_type_flags_t flags) {
  for (int i = 0; i < ROWS; i++)
    if (flags & rows[i].flag) hal_watch_report(&watch, device, rows[i].kind, (int64_t)rows[i].flag, rows[i].message);
}

static void listen_to_driver(void) {
  zes_device_handle_t handles[NPU_MAX_DEVICES];
  zes_event_type_flags_t flags[NPU_MAX_DEVICES] = {0};
  int32_t ordinals[NPU_MAX_DEVICES];
  uint32_t count = 0, found = 0;
  for (int32_t i = 0; i < npu.device_count; i++) {
    if (!atomic_load(&registered[i])) continue;
    ordinals[count] = i;
    handles[count++] = (zes_device_handle_t)npu.devices[i].handle;
  }
  const ze_result_t code = count ? ze.zesDriverEventListen(npu.driver, LISTEN_MS, count, handles, &found, flags)
                                 : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (code && code != ZE_RESULT_NOT_READY) { /* limits the rate of the loop */
    nanosleep(&(struct timespec){.tv_nsec = LISTEN_MS * 1000000L}, NULL);
    return;
  }
  for (uint32_t i = 0; i < count && found && !code; i++) report(ordinals[i], flags[i]);
}

hal_status_t hal_plugin_device_watch(int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  if (fn) register_device(device);
  return hal_watch_set(&watch, device, kinds, fn, user_data);
}
