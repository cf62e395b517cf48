/* watch.c: events of devices: the end of a context, which calls of the driver report, and NVML's events of the chip. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_watch.h>
#include <stdio.h>
#include <time.h>

#include "nvml.h"

enum { LISTEN_MS = 100 };

/* Numbers of XID errors, as NVIDIA's "XID Errors" lists them. */
enum { XID_DOUBLE_BIT = 48, XID_OFF_THE_BUS = 79, XID_CONTAINED = 94, XID_UNCONTAINED = 95 };

static void listen_to_nvml(void);
static hal_watch_t watch = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .listen = listen_to_nvml};

/* guards the variables below, except `throttled`, which belongs to the thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvmlEventSet_t events;
static nvmlDevice_t registered[CUDA_MAX_DEVICES];
static int throttled[CUDA_MAX_DEVICES];

void cuda_watch_lost(int32_t device, CUresult code) {
  hal_watch_report(&watch, device, HAL_DEVICE_EVENT_LOST, (int64_t)code, cuda_error_name(code));
}

/* ---- NVML ---- */

static int has_calls(void) {
  return nvml.nvmlEventSetCreate && nvml.nvmlDeviceGetSupportedEventTypes && nvml.nvmlDeviceRegisterEvents &&
         nvml.nvmlEventSetWait_v2;
}

/* Registers for the events that the device supports. Without NVML, or on a device without events, no events of the chip
 * are reported. */
static void register_device(int32_t ordinal) {
  nvmlDevice_t device = NULL;
  unsigned long long types = 0;
  if (cuda_nvml_device(ordinal, &device) || !has_calls() || nvml.nvmlDeviceGetSupportedEventTypes(device, &types))
    return;
  types &= (unsigned long long)(nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError |
                                nvmlEventTypeXidCriticalError | nvmlEventTypeClock);
  pthread_mutex_lock(&lock);
  if (!registered[ordinal] && types && (events || !nvml.nvmlEventSetCreate(&events)) &&
      !nvml.nvmlDeviceRegisterEvents(device, types, events))
    registered[ordinal] = device;
  pthread_mutex_unlock(&lock);
}

static int32_t ordinal_of(nvmlDevice_t device) {
  int32_t found = -1;
  pthread_mutex_lock(&lock);
  for (int32_t i = 0; i < cuda.device_count && found < 0; i++)
    if (registered[i] == device) found = i;
  pthread_mutex_unlock(&lock);
  return found;
}

static void report_xid(int32_t device, unsigned long long number) {
  char message[64];
  snprintf(message, sizeof message, "XID %llu", number);
  if (number == XID_OFF_THE_BUS)
    hal_watch_report(&watch, device, HAL_DEVICE_EVENT_LOST, (int64_t)number, message);
  else if (number == XID_DOUBLE_BIT || number == XID_CONTAINED || number == XID_UNCONTAINED)
    hal_watch_report(&watch, device, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED, (int64_t)number, message);
}

/* Clocks change often; only the beginning of a limit by power or temperature is an event. */
static void look_at_clocks(int32_t device, nvmlDevice_t handle) {
#define BIT(name, number) | (number)
  const unsigned long long bad = 0 NVML_THROTTLES(BIT);
#undef BIT
  unsigned long long reasons = 0;
  if (!nvml.nvmlDeviceGetCurrentClocksThrottleReasons ||
      nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, &reasons))
    return;
  const int now = (reasons & bad) != 0;
  if (now && !throttled[device])
    hal_watch_report(&watch, device, HAL_DEVICE_EVENT_THROTTLED, (int64_t)(reasons & bad),
                     "clocks are limited by power or temperature");
  throttled[device] = now;
}

static void listen_to_nvml(void) {
  nvmlEventData_t data = {.device = NULL};
  pthread_mutex_lock(&lock);
  const nvmlEventSet_t set = events;
  pthread_mutex_unlock(&lock);
  const nvmlReturn_t code = set ? nvml.nvmlEventSetWait_v2(set, &data, LISTEN_MS) : NVML_ERROR_NOT_SUPPORTED;
  if (code) { /* no event, or no longer any events: limits the rate of the loop */
    if (code != NVML_ERROR_TIMEOUT) nanosleep(&(struct timespec){.tv_nsec = LISTEN_MS * 1000000L}, NULL);
    return;
  }
  const int32_t device = ordinal_of(data.device);
  if (device < 0) return;
  if (data.eventType & nvmlEventTypeSingleBitEccError)
    hal_watch_report(&watch, device, HAL_DEVICE_EVENT_MEMORY_CORRECTED, 0, "single bit ECC error");
  if (data.eventType & nvmlEventTypeDoubleBitEccError)
    hal_watch_report(&watch, device, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED, 0, "double bit ECC error");
  if (data.eventType & nvmlEventTypeXidCriticalError) report_xid(device, data.eventData);
  if (data.eventType & nvmlEventTypeClock) look_at_clocks(device, data.device);
}

hal_status_t hal_plugin_device_watch(int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  const hal_status_t status = cuda_check_device(device);
  if (status) return status;
  if (fn) register_device(device);
  return hal_watch_set(&watch, device, kinds, fn, user_data);
}
