/* watch.c: passes events of devices from the plugin to the program's sink or the log (hal/sensor.h). */
#include "device/watch.h"

#include <string.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "hal/log.h"
#include "hal/sensor.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/slots.h"

static const char *const names[] = {
#define NAME(number, upper, name, what) [number] = name,
    HAL_DEVICE_EVENTS(NAME)
#undef NAME
};

static hal_lock_t sink_lock; /* for the sink and its data */
static hal_device_event_sink_t sink;
static void *sink_data;
static hal_lock_t watching; /* held while a watcher of a plugin is set */

const char *hal_device_event_name(uint32_t kind) { return kind < sizeof names / sizeof *names ? names[kind] : NULL; }

/* ---- delivery ---- */

static int call_sink(int32_t device, const hal_device_event_t *event) {
  hal_lock(&sink_lock);
  const hal_device_event_sink_t target = sink;
  void *const data = sink_data;
  hal_unlock(&sink_lock);
  if (!target) return 0;
  hal_callback_check();
  target(data, device, event);
  return 1;
}

static void deliver(int32_t device, const hal_device_event_t *event) {
  const char *const name = hal_device_event_name(event->kind);
  const int is_bad = event->kind == HAL_DEVICE_EVENT_LOST || event->kind == HAL_DEVICE_EVENT_MEMORY_UNCORRECTED;
  if (call_sink(device, event)) return;
  hal_log(is_bad ? HAL_LOG_ERROR : HAL_LOG_WARNING, "device %s: %s (%lld)%s%s", hal_device_label(device),
          name ? name : "an event without a name", (long long)event->native_code, event->message[0] ? ": " : "",
          event->message);
}

/* An event that a plugin delivered within a call that the HAL made under a lock. */
typedef struct deferred_s {
  hal_callback_t callback;
  int32_t device;
  hal_device_event_t event;
  char message[];
} deferred_t;

static void run_deferred(hal_callback_t *callback) {
  deferred_t *const deferred = (deferred_t *)callback;
  deliver(deferred->device, &deferred->event);
  hal_free(deferred);
}

/* Receives an event of the plugin, whose struct may be of an older version. */
static void take(void *user_data, const hal_device_event_t *event) {
  const hal_device_t *const device = user_data;
  hal_device_event_t own = {.struct_size = HAL_STRUCT_SIZE(hal_device_event_t, message)};
  const size_t known = event->struct_size < own.struct_size ? event->struct_size : own.struct_size;
  if (known > sizeof own.struct_size)
    memcpy((char *)&own + sizeof own.struct_size, (const char *)event + sizeof own.struct_size,
           known - sizeof own.struct_size);
  if (!own.message) own.message = "";
  if (!hal_callbacks_are_deferred()) return deliver(device->index, &own);
  const size_t size = strlen(own.message) + 1;
  deferred_t *const deferred = hal_malloc(sizeof *deferred + size);
  if (!deferred) {
    hal_log(HAL_LOG_WARNING, "device %s: an event was dropped: the host has no memory for it", device->label);
    return;
  }
  *deferred = (deferred_t){.callback = {.run = run_deferred}, .device = device->index, .event = own};
  deferred->event.message = memcpy(deferred->message, own.message, size);
  hal_callback_run(&deferred->callback);
}

/* ---- watching ---- */

/* A device is set to be watched once, and stays watched when the sink changes: so nothing here waits for a sink. */
static hal_status_t begin(hal_device_t *device) {
  hal_status_t status = HAL_OK;
  hal_lock_and_defer(&watching);
  if (!atomic_load(&device->watched)) {
    status = hal_call_device_watch(device->plugin, device->ordinal, HAL_DEVICE_EVENT_ALL, take, device);
    if (!status) atomic_store(&device->watched, 1);
  }
  hal_unlock_and_run(&watching);
  return status ? hal_error_plugin(device->plugin, HAL_SLOT_device_watch, status) : HAL_OK;
}

void hal_device_watch_begin(hal_device_t *device) {
  hal_lock(&sink_lock);
  const int wanted = sink != NULL;
  hal_unlock(&sink_lock);
  if (!wanted && !hal_log_enabled(HAL_LOG_INFO)) return;
  if (begin(device)) hal_log(HAL_LOG_WARNING, "device %s is not watched: %s", device->label, hal_error_message());
}

void hal_device_watch_end(hal_device_t *device) {
  if (!atomic_exchange(&device->watched, 0)) return;
  HAL_CALL_QUIETLY(device->plugin, device_watch, device->ordinal, 0, NULL, NULL);
}

hal_status_t hal_device_event_set_sink(hal_device_event_sink_t new_sink, void *user_data) {
  hal_status_t result = HAL_OK;
  hal_lock(&sink_lock);
  sink = new_sink;
  sink_data = user_data;
  hal_unlock(&sink_lock);
  for (int32_t i = 0; new_sink && i < hal_device_count(); i++) {
    hal_status_t status = hal_device_is_initialized(i) ? begin(&hal_devices[i]) : HAL_OK;
    if (status) result = status; /* the thread has its message */
  }
  return result;
}
