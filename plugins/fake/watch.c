/* watch.c: events of a device. There is no chip; the failure of a launch by HAL_FAKE_FAULT is reported as an event. */
#include <hal/plugin_watch.h>
#include <stdio.h>

#include "fake.h"

static hal_watch_t watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

hal_status_t hal_plugin_device_watch(int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  const hal_status_t status = fake_check_device(device);
  return status ? status : hal_watch_set(&watch, device, kinds, fn, user_data);
}

void fake_watch_failure(int32_t device, const char *kernel) {
  char message[HAL_WATCH_MESSAGE];
  snprintf(message, sizeof message, "kernel '%.64s' failed (injected by HAL_FAKE_FAULT)", kernel);
  hal_watch_report(&watch, device, HAL_DEVICE_EVENT_MEMORY_UNCORRECTED, (int64_t)fake.settings.fault, message);
}

void fake_watch_fork_child(void) { hal_watch_after_fork(&watch); }
