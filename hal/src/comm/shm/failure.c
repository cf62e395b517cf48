/* failure.c: the first failure of a communicator. After it, every rank returns this failure. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/likely.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"

enum { WRITING = 1, WRITTEN = 2 };
/* a record that takes longer belongs to a rank that ended while it wrote */
static const int64_t writing_ns = 100 * 1000000;

hal_status_t hal_shm_failed(hal_shm_t *shm) {
  hal_shm_failure_t *const failure = &shm->header->failure;
  uint32_t state = atomic_load_explicit(&failure->state, memory_order_acquire);
  if (!state) return HAL_OK;
  for (const int64_t start = hal_clock_ns(); (state & 0xff) == WRITING && hal_clock_ns() - start < writing_ns;) {
    hal_shm_sleep(&failure->state, state, 1000000);
    state = atomic_load_explicit(&failure->state, memory_order_acquire);
  }
  if ((state & 0xff) == WRITING)
    return hal_error_set(HAL_UNAVAILABLE, "rank %d has ended while it reported a failure", (int)(state >> 8) - 1);
  const hal_status_t code = failure->code ? failure->code : HAL_INTERNAL;
  return hal_error_set(code, "%.*s", HAL_SHM_FAILURE_BYTES - 1, failure->text);
}

hal_status_t hal_shm_stopped(hal_shm_t *shm) {
  const hal_shm_failure_t *const failure = &shm->header->failure;
  if (HAL_LIKELY(!atomic_load_explicit(&failure->state, memory_order_relaxed))) return HAL_OK;
  const hal_status_t status = hal_shm_failed(shm);
  const int is_later = (atomic_load_explicit(&failure->state, memory_order_acquire) & 0xff) == WRITTEN &&
                       shm->running && failure->running > shm->running;
  return is_later ? HAL_OK : status;
}

static void store(hal_shm_t *shm, hal_status_t code, uint64_t running, const char *text) {
  hal_shm_failure_t *const failure = &shm->header->failure;
  const uint32_t writer = ((uint32_t)shm->rank + 1) << 8;
  uint32_t none = 0;
  if (!atomic_compare_exchange_strong(&failure->state, &none, writer | WRITING)) return;
  failure->code = code;
  failure->running = running;
  snprintf(failure->text, sizeof failure->text, "%s", text);
  atomic_store_explicit(&failure->state, writer | WRITTEN, memory_order_release);
  hal_shm_wake(&failure->state);
  hal_shm_notify_all(shm);
}

hal_status_t hal_shm_fail(hal_shm_t *shm, hal_status_t code, const char *format, ...) {
  char text[HAL_SHM_FAILURE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  store(shm, code, shm->running, text);
  return hal_shm_failed(shm);
}

hal_status_t hal_shm_fail_by_last(hal_shm_t *shm, hal_status_t code) {
  return hal_shm_fail(shm, code, "rank %d: %s", (int)shm->rank, hal_error_message());
}

void hal_shm_abort(hal_shm_t *shm, const char *reason) {
  char text[HAL_SHM_FAILURE_BYTES];
  snprintf(text, sizeof text, "rank %d aborted: %s", (int)shm->rank, reason ? reason : "no reason is given");
  store(shm, HAL_ABORTED, 0, text);
}
