/* event_wait.c: waits for the device with a time limit. The ABI has no such wait for events, so this file queries them,
 * at first without a pause. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "comm/comm.h"
#include "device/event_internal.h"
#include "hal/status.h"
#include "plugin/call.h"

/* A pause is an eighth of the elapsed time, so the wait is at most that much longer than the event takes. */
static const int64_t busy_ns = 20 * 1000, longest_ns = 500 * 1000;

hal_status_t hal_comm_event_poll(const hal_event_t *event) {
  return hal_call_event_query(event->device->plugin, event->handle);
}

static void pause_after(int64_t waited_ns) {
  if (waited_ns < busy_ns) return;
  const int64_t pause_ns = waited_ns / 8 < longest_ns ? waited_ns / 8 : longest_ns;
  nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
}

hal_status_t hal_comm_event_await(const hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure,
                                  const char *what) {
  const int64_t start = hal_clock_ns();
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  while (hal_comm_event_poll(event) == HAL_NOT_READY) {
    const int64_t waited_ns = hal_clock_ns() - start;
    if (failure) HAL_RETURN_IF_ERROR(hal_comm_failure_get(failure));
    if (waited_ns >= timeout_ns)
      return hal_error_set(HAL_NOT_READY, "%s: not done by the device within %.3f s", what, (double)timeout_ns / 1e9);
    pause_after(waited_ns);
  }
  return HAL_OK;
}

hal_status_t hal_comm_event_wait(hal_event_t *event, int64_t timeout_ns, hal_comm_failure_t *failure,
                                 const char *what) {
  HAL_RETURN_IF_ERROR(hal_comm_event_await(event, timeout_ns, failure, what));
  return hal_event_synchronize(event); /* does not wait: the event is done */
}
