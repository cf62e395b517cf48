/* failure.c: see failure.h. */
#include "device/failure.h"

#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "base/text.h"
#include "device/hooks.h"
#include "device/kernel_error.h"
#include "plugin/call.h"
#include "plugin/slots.h"

/* A failure taken out of a record. */
typedef struct taken_s {
  hal_status_t status;
  char message[HAL_FAILURE_BYTES];
} taken_t;

/* ---- records ----------------------------------------------------------------------------------------------------- */

static void put(hal_failure_t *record, hal_status_t status) {
  hal_lock(&record->lock);
  if (!atomic_load_explicit(&record->set, memory_order_relaxed)) {
    record->status = status;
    snprintf(record->message, sizeof record->message, "%s", hal_error_message());
    atomic_store_explicit(&record->set, 1, memory_order_release);
  } else { /* the first one is often the cause of the others, and determines the status */
    hal_text_append(record->message, sizeof record->message, "; and then: %s", hal_error_message());
  }
  hal_unlock(&record->lock);
}

static int take(hal_failure_t *record, taken_t *out_taken) {
  if (HAL_LIKELY(!atomic_load_explicit(&record->set, memory_order_acquire))) return 0;
  hal_lock(&record->lock);
  const int was_set = atomic_load_explicit(&record->set, memory_order_relaxed);
  if (was_set) {
    out_taken->status = record->status;
    memcpy(out_taken->message, record->message, sizeof out_taken->message);
    atomic_store_explicit(&record->set, 0, memory_order_relaxed);
  }
  hal_unlock(&record->lock);
  return was_set;
}

/* A state that only a reset clears. */
static hal_status_t report_lost(hal_device_t *device) {
  char message[HAL_FAILURE_BYTES];
  hal_lock(&device->lost.lock);
  memcpy(message, device->lost.message, sizeof message);
  hal_unlock(&device->lost.lock);
  return hal_error_set(HAL_UNAVAILABLE, "device %s is lost; start a new process: %s", device->label, message);
}

void hal_failure_forget(hal_device_t *device) {
  taken_t failure;
  take(&device->lost, &failure);
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_stream_t *const stream = hal_stream_at(device, id);
    if (!stream) continue;
    take(&stream->failure, &failure);
    atomic_store_explicit(&stream->follows.count, 0, memory_order_relaxed);
    atomic_store_explicit(&stream->checked, atomic_load(&stream->reporters), memory_order_relaxed);
  }
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

void hal_failure_record(hal_stream_t *stream, hal_status_t status) {
  if (status != HAL_UNAVAILABLE)
    put(&stream->failure, status);
  else if (!atomic_load_explicit(&stream->device->lost.set, memory_order_relaxed))
    put(&stream->device->lost, status);
}

/* Prepends the operator and the kernel to the message, if the plugin knows them. */
static void describe(const hal_stream_t *stream, hal_status_t status) {
  hal_stream_error_t error = {.struct_size = sizeof error};
  char message[HAL_FAILURE_BYTES], ops[160] = "";
  snprintf(message, sizeof message, "%s", hal_error_message());
  if (hal_call_stream_error(stream->device->plugin, stream->direct.handle, &error) || error.status != status)
    error = (hal_stream_error_t){0};
  error.op[sizeof error.op - 1] = error.kernel[sizeof error.kernel - 1] = '\0';
  const int is_slot =
      hal_slot_find(error.op, strlen(error.op)) < HAL_SLOT_COUNT; /* "kernel_launch" adds no information */
  if (error.kernel[0] && (is_slot || !error.op[0])) hal_device_hooks.ops_of_kernel(error.kernel, ops, sizeof ops);
  if (!ops[0]) snprintf(ops, sizeof ops, "%s", error.op);
  if (error.kernel[0])
    hal_error_set(status, "%s%skernel '%s': %s", ops, ops[0] ? ", " : "", error.kernel, message);
  else
    hal_error_set(status, "%s%s%s", ops, ops[0] ? ": " : "", message);
}

void hal_failure_record_plugin(hal_stream_t *stream, uint32_t slot, hal_status_t status) {
  hal_error_plugin(stream->device->plugin, slot, status);
  describe(stream, status);
  hal_failure_record(stream, status);
}

hal_status_t hal_failure_ask(hal_stream_t *stream) {
  const hal_status_t status = hal_direct_poll(&stream->direct);
  if (status == HAL_ABORTED && atomic_load(&stream->hides_aborts)) return HAL_OK;
  if (status && status != HAL_NOT_READY) hal_failure_record_plugin(stream, HAL_SLOT_stream_query, status);
  return status;
}

void hal_failure_hide_aborts(hal_stream_t *stream) { atomic_store(&stream->hides_aborts, 1); }

void hal_failure_show_aborts(hal_stream_t *stream) {
  if (!atomic_load(&stream->hides_aborts)) return;
  hal_error_saved_t saved;
  hal_error_save(&saved);
  hal_failure_ask(stream); /* the plugin reports an abort once */
  hal_error_restore(&saved);
  atomic_store(&stream->hides_aborts, 0);
}

/* ---- streams that waited for others ------------------------------------------------------------------------------ */

/* The caller holds the lock. */
static int follow(hal_follow_t *follows, hal_stream_t *other, uint64_t mark) {
  const uint32_t count = atomic_load_explicit(&follows->count, memory_order_relaxed);
  uint32_t i = 0;
  while (i < count && follows->of[i].stream != other) i++;
  if (i == HAL_FOLLOWS) return 0;
  if (i == count || follows->of[i].mark < mark) follows->of[i].mark = mark;
  follows->of[i].stream = other;
  if (i == count) atomic_store_explicit(&follows->count, count + 1, memory_order_release);
  return 1;
}

/* Moves or copies the list. */
static uint32_t read_follows(hal_follow_t *follows, int clear, hal_followed_t out_of[HAL_FOLLOWS]) {
  hal_lock(&follows->lock);
  const uint32_t count = atomic_load_explicit(&follows->count, memory_order_relaxed);
  memcpy(out_of, follows->of, count * sizeof *out_of);
  if (clear) atomic_store_explicit(&follows->count, 0, memory_order_relaxed);
  hal_unlock(&follows->lock);
  return count;
}

int hal_failure_follow(hal_stream_t *stream, hal_stream_t *other, uint64_t mark) {
  hal_followed_t of[HAL_FOLLOWS];
  if (stream == other) return 1;
  /* Work that the other stream waited for was also done before. */
  uint32_t count = 0;
  if (atomic_load_explicit(&other->follows.count, memory_order_acquire)) count = read_follows(&other->follows, 0, of);
  hal_lock(&stream->follows.lock);
  int fits = follow(&stream->follows, other, mark);
  for (uint32_t i = 0; fits && i < count; i++)
    if (of[i].stream != stream) fits = follow(&stream->follows, of[i].stream, of[i].mark);
  hal_unlock(&stream->follows.lock);
  return fits;
}

/* Reports a failure of the work that the stream has waited for: one now, the others later. */
static hal_status_t report_followed(hal_stream_t *stream) {
  hal_followed_t of[HAL_FOLLOWS];
  taken_t failure;
  const uint32_t count = read_follows(&stream->follows, 1, of);
  hal_status_t result = HAL_OK;
  for (uint32_t i = 0; i < count; i++) {
    hal_stream_t *const other = of[i].stream;
    int done = !result && hal_device_is_alive(other->device) && hal_failure_ask(other) != HAL_NOT_READY;
    if (!result) {
      const hal_status_t reported = hal_kernel_error_collect(other, of[i].mark, HAL_OK);
      if (reported) hal_failure_record(other, reported);
      if (take(&other->failure, &failure)) {
        result = hal_error_set(failure.status, "%s (work of stream %lld of device %s, which stream %lld waited for)",
                               failure.message, (long long)other->id, other->device->label, (long long)stream->id);
        done = 0; /* there may be further failures */
      }
    }
    if (done) continue;
    hal_lock(&stream->follows.lock);
    follow(&stream->follows, other, of[i].mark);
    hal_unlock(&stream->follows.lock);
  }
  return result;
}

/* ---- delivery ---------------------------------------------------------------------------------------------------- */

hal_status_t hal_failure_deliver_slow(hal_stream_t *stream, uint64_t mark, uint32_t slot, hal_status_t status) {
  taken_t failure;
  /* An older failure is reported first: the plugin's status must not precede its cause. */
  int found = take(&stream->failure, &failure);
  if (status && status != HAL_NOT_READY) hal_failure_record_plugin(stream, slot, status);
  if (!status) {
    const hal_status_t reported = hal_kernel_error_collect(stream, mark, HAL_OK);
    if (reported) hal_failure_record(stream, reported);
  }
  if (!found) found = take(&stream->failure, &failure);
  if (found) return hal_error_set(failure.status, "%s", failure.message);
  if (atomic_load_explicit(&stream->device->lost.set, memory_order_acquire)) return report_lost(stream->device);
  if (status == HAL_NOT_READY) return hal_error_not_ready();
  return atomic_load_explicit(&stream->follows.count, memory_order_acquire) ? report_followed(stream) : HAL_OK;
}
