/* event.h: markers in streams. */
#ifndef HAL_EVENT_H_
#define HAL_EVENT_H_

#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates an event on a device; it is not recorded yet. `flags`: HAL_EVENT_*. Destroyed by hal_event_destroy. Errors:
 * as hal_device_ensure, HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_event_create(int32_t device, uint32_t flags, hal_event_t **out_event);

/* Destroys an event; NULL is allowed. Waits that are queued on it stay valid. Since 0.1. */
HAL_API void hal_event_destroy(hal_event_t *event);

/* Records the work queued so far on the stream (NULL: the current stream of the event's device). Errors:
 * HAL_INVALID_ARGUMENT for a stream of another device. Since 0.1. */
HAL_API hal_status_t hal_event_record(hal_event_t *event, hal_stream_t *stream);

/* Returns HAL_OK if the recorded work is done or the event was never recorded, without waiting. Errors: HAL_NOT_READY;
 * those of hal_event_synchronize. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_event_query(hal_event_t *event);

/* Waits until the recorded work is done. Errors: an asynchronous failure of the event's stream, reported once, as
 * hal_stream_synchronize. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_event_synchronize(hal_event_t *event);

/* Returns the nanoseconds between two completed events of one device that were created with HAL_EVENT_TIMING. Errors:
 * HAL_FAILED_PRECONDITION (also for events that a recorded stream records, which have no time), HAL_NOT_READY,
 * HAL_INVALID_ARGUMENT (two devices). Since 0.1. */
HAL_API hal_status_t hal_event_elapsed(hal_event_t *start, hal_event_t *end, int64_t *out_nanoseconds);

/* Creates a handle by which another process opens an event that has the flag HAL_EVENT_INTERPROCESS. The
 * handle is valid as long as the event exists. `*out_size` is its size in bytes; it is written to `handle` only if
 * `capacity` is at least that. Errors: HAL_FAILED_PRECONDITION = created without that flag; HAL_UNIMPLEMENTED = the
 * plugin does not share events. Since 0.2, bytes 0.3. */
HAL_API hal_status_t hal_event_ipc_export(hal_event_t *event, void *handle, size_t capacity, size_t *out_size);

/* Opens an event of another process on the same device, for waits, queries and records like any event. A failure of
 * earlier work is reported in the process that queued the work. Destroyed by hal_event_destroy. Errors: those of
 * hal_device_ensure, HAL_UNIMPLEMENTED; the plugin's for an invalid handle, or one that this process created. Since
 * 0.2, bytes 0.3. */
HAL_API hal_status_t hal_event_ipc_open(int32_t device, const void *handle, size_t handle_size,
                                        hal_event_t **out_event);

/* Sets the name of an event; otherwise as hal_stream_set_name. Since 0.4. */
HAL_API hal_status_t hal_event_set_name(hal_event_t *event, const char *name);

/* Returns the event's device. Since 0.1. */
HAL_API int32_t hal_event_device(const hal_event_t *event);

#ifdef __cplusplus
}
#endif
#endif /* HAL_EVENT_H_ */
