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

static void forget_aborted(hal_stream_t *stream) {
  taken_t failure;
  atomic_store(&stream->aborted_from, 0);
  take(&stream->aborted, &failure);
}

void hal_failure_forget(hal_device_t *device) {
  taken_t failure;
  take(&device->lost, &failure);
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_stream_t *const stream = hal_stream_at(device, id);
    if (!stream) continue;
    take(&stream->failure, &failure);
    forget_aborted(stream);
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
  forget_aborted(stream);
}

/* ---- streams that waited for others ------------------------------------------------------------------------------ */

/* Returns the place of a stream in the list; the count if it is not there. The caller holds the lock. */
static uint32_t place_of(const hal_follow_t *follows, const hal_stream_t *other) {
  const uint32_t count = atomic_load_explicit(&follows->count, memory_order_relaxed);
  uint32_t i = 0;
  while (i < count && follows->of[i].stream != other) i++;
  return i;
}

/* The caller holds the lock. */
static int follow(hal_follow_t *follows, hal_followed_t other) {
  const uint32_t i = place_of(follows, other.stream);
  if (i == HAL_FOLLOWS) return 0;
  hal_followed_t *const entry = &follows->of[i];
  if (i == atomic_load_explicit(&follows->count, memory_order_relaxed)) {
    *entry = other;
    atomic_store_explicit(&follows->count, i + 1, memory_order_release);
  }
  if (entry->mark < other.mark) entry->mark = other.mark;
  if (entry->position < other.position) entry->position = other.position;
  entry->waits++;
  return 1;
}

/* Removes a stream whose work is done, unless the entry was written meanwhile, for later work. */
static void unfollow(hal_follow_t *follows, hal_followed_t other) {
  hal_lock(&follows->lock);
  const uint32_t i = place_of(follows, other.stream);
  const uint32_t count = atomic_load_explicit(&follows->count, memory_order_relaxed);
  if (i < count && follows->of[i].waits == other.waits) {
    follows->of[i] = follows->of[count - 1];
    atomic_store_explicit(&follows->count, count - 1, memory_order_relaxed);
  }
  hal_unlock(&follows->lock);
}

static uint32_t read_follows(hal_follow_t *follows, hal_followed_t out_of[HAL_FOLLOWS]) {
  if (!atomic_load_explicit(&follows->count, memory_order_acquire)) return 0;
  hal_lock(&follows->lock);
  const uint32_t count = atomic_load_explicit(&follows->count, memory_order_relaxed);
  memcpy(out_of, follows->of, count * sizeof *out_of);
  hal_unlock(&follows->lock);
  return count;
}

int hal_failure_follow(hal_stream_t *stream, hal_followed_t other) {
  hal_followed_t of[HAL_FOLLOWS];
  if (stream == other.stream) return 1;
  /* Work that the other stream waited for was also done before. */
  const uint32_t count = read_follows(&other.stream->follows, of);
  hal_lock(&stream->follows.lock);
  int fits = follow(&stream->follows, other);
  for (uint32_t i = 0; fits && i < count; i++)
    if (of[i].stream != stream) fits = follow(&stream->follows, of[i]);
  hal_unlock(&stream->follows.lock);
  return fits;
}

void hal_failure_each_follower(const hal_stream_t *other, uint64_t position, void (*call)(void *, hal_stream_t *),
                               void *context) {
  hal_followed_t of[HAL_FOLLOWS];
  for (int32_t device = 0; device < HAL_MAX_DEVICES; device++)
    for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
      hal_stream_t *const stream = hal_stream_at(&hal_devices[device], id);
      const uint32_t count = stream && stream != other ? read_follows(&stream->follows, of) : 0;
      uint32_t i = 0;
      while (i < count && !(of[i].stream == other && of[i].position >= position)) i++;
      if (i < count) call(context, stream);
    }
}

void hal_failure_abort_from(hal_stream_t *stream, uint64_t position, hal_status_t status) {
  if (atomic_load_explicit(&stream->aborted_from, memory_order_relaxed)) return;
  put(&stream->aborted, status);
  atomic_store_explicit(&stream->aborted_from, position, memory_order_release);
}

hal_status_t hal_failure_aborted_slow(hal_stream_t *stream) {
  char message[HAL_FAILURE_BYTES];
  hal_lock(&stream->aborted.lock);
  const hal_status_t status = stream->aborted.status;
  memcpy(message, stream->aborted.message, sizeof message);
  hal_unlock(&stream->aborted.lock);
  return hal_error_set(status, "%s", message);
}

/* Reports a failure of the work that the stream has waited for: one now, the others later. */
static hal_status_t report_followed(hal_stream_t *stream) {
  hal_followed_t of[HAL_FOLLOWS];
  taken_t failure;
  const uint32_t count = read_follows(&stream->follows, of);
  for (uint32_t i = 0; i < count; i++) {
    hal_stream_t *const other = of[i].stream;
    const int done = hal_device_is_alive(other->device) && hal_failure_ask(other) != HAL_NOT_READY;
    const hal_status_t reported = hal_kernel_error_collect(other, of[i].mark, HAL_OK);
    if (reported) hal_failure_record(other, reported);
    if (take(&other->failure, &failure)) /* there may be further failures: the entry remains */
      return hal_error_set(failure.status, "%s (work of stream %lld of device %s, which stream %lld waited for)",
                           failure.message, (long long)other->id, other->device->label, (long long)stream->id);
    if (done) unfollow(&stream->follows, of[i]);
  }
  return HAL_OK;
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
