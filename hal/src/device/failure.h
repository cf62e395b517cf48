/* failure.h: failures of asynchronous work. Private to hal/src.
 *
 * Each stream has a failure record. A failure from any source (a status that the allocator or the profile receives, a
 * report of a kernel (kernel_error.h), a free, a synchronization) is stored in the record of the stream whose work
 * failed. It is reported once, to the first caller that synchronizes or queries the stream, its device or an event
 * recorded on it, or a stream that waited for such an event, and is then cleared. Several failures before such a call
 * are reported together. A device that is lost (HAL_UNAVAILABLE) stays lost until it is reset: its failure is reported
 * to every caller. */
#ifndef HAL_SRC_FAILURE_H_
#define HAL_SRC_FAILURE_H_

#include "device/device.h"
#include "plugin/call.h"

/* Records a failure of work of the stream; the calling thread has its message. */
void hal_failure_record(hal_stream_t *stream, hal_status_t status);

/* Records the status that the plugin returned from `slot`; completes the message with the plugin, the operator and the
 * kernel. */
void hal_failure_record_plugin(hal_stream_t *stream, uint32_t slot, hal_status_t status);

/* Ends a synchronization or query of the stream for which the plugin returned `status`. If that is HAL_OK, the work up
 * to `mark` (hal_kernel_error_mark) is done. Returns the status for the caller: the failure, HAL_NOT_READY or
 * HAL_OK. */
HAL_MUST_USE hal_status_t hal_failure_deliver_slow(hal_stream_t *stream, uint64_t mark, uint32_t slot,
                                                   hal_status_t status);
HAL_MUST_USE static inline hal_status_t hal_failure_deliver(hal_stream_t *stream, uint64_t mark, uint32_t slot,
                                                            hal_status_t status) {
  const int quiet = !status && !atomic_load_explicit(&stream->failure.set, memory_order_acquire) &&
                    !atomic_load_explicit(&stream->device->lost.set, memory_order_relaxed) &&
                    !atomic_load_explicit(&stream->follows.count, memory_order_relaxed) &&
                    atomic_load_explicit(&stream->checked, memory_order_relaxed) >= mark;
  return HAL_LIKELY(quiet) ? HAL_OK : hal_failure_deliver_slow(stream, mark, slot, status);
}

/* Clears the lost state of a device, and the failures and waits of its streams: its handles and their work no longer
 * exist. */
void hal_failure_forget(hal_device_t *device);

/* Queries whether work of the stream has failed, without waiting, and records the failure. HAL_NOT_READY = there is
 * unfinished work, which may still fail; also returned for a plugin without a non-blocking query. */
hal_status_t hal_failure_ask(hal_stream_t *stream);

/* From now on hal_failure_ask does not record that work of the stream was aborted (HAL_ABORTED): the owner of the
 * stream aborts it, and records the failure for each stream that waits for aborted work. Otherwise streams that have
 * waited for earlier work of the stream would report it, too. */
void hal_failure_hide_aborts(hal_stream_t *stream);

/* Ends that, for the next owner. */
void hal_failure_show_aborts(hal_stream_t *stream);

/* Records that the stream has waited for work of another stream, whose failure will also be the stream's. 0 = the table
 * is full, and the caller must wait for that work. */
int hal_failure_follow(hal_stream_t *stream, hal_followed_t other);

/* Counts a work that the owner of the stream queues next and may abort. Returns its position. */
static inline uint64_t hal_failure_next_position(hal_stream_t *stream) {
  return atomic_fetch_add(&stream->position, 1) + 1;
}

/* Returns the position of the last such work: an event that is recorded now is after it. */
static inline uint64_t hal_failure_position(const hal_stream_t *stream) {
  return atomic_load_explicit(&stream->position, memory_order_acquire);
}

/* The work at a position of the stream, and all later work, is aborted; the calling thread has the message. Events that
 * are recorded after it report the failure, each record once. The first call counts. */
void hal_failure_abort_from(hal_stream_t *stream, uint64_t position, hal_status_t status);

/* Returns the failure of aborted work of the stream up to a position. */
HAL_MUST_USE hal_status_t hal_failure_aborted_slow(hal_stream_t *stream);
HAL_MUST_USE static inline hal_status_t hal_failure_aborted(hal_stream_t *stream, uint64_t position) {
  const uint64_t from = atomic_load_explicit(&stream->aborted_from, memory_order_acquire);
  return HAL_LIKELY(!from || position < from) ? HAL_OK : hal_failure_aborted_slow(stream);
}

/* Calls a function for each stream that has waited for the work at that position of another stream, or for later work
 * of it, and has not observed its end. */
void hal_failure_each_follower(const hal_stream_t *other, uint64_t position, void (*call)(void *, hal_stream_t *),
                               void *context);

/* Called if the plugin did not record an event: see below. */
hal_status_t hal_stream_record_again(hal_stream_t *stream, hal_plugin_event_t *event, hal_status_t status);

/* Records an event of the plugin. The default of event_record waits for the stream: if it encounters a failure of the
 * stream's work, the failure is recorded for the stream, and the event is recorded nevertheless. Errors: the plugin's,
 * without a message. */
static inline hal_status_t hal_stream_record(hal_stream_t *stream, hal_plugin_event_t *event) {
  uint64_t recording;
  hal_stream_flush(stream, "an event");
  const hal_status_t status = hal_direct_calls.record_event(&stream->direct.queue, event, &recording);
  return HAL_LIKELY(!status) ? HAL_OK : hal_stream_record_again(stream, event, status);
}

#endif /* HAL_SRC_FAILURE_H_ */
