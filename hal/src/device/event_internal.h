/* event_internal.h: the host's side of an event. Private to hal/src. */
#ifndef HAL_SRC_EVENT_INTERNAL_H_
#define HAL_SRC_EVENT_INTERNAL_H_

#include "device/device.h"

struct hal_event_s {
  hal_plugin_event_t *handle;
  hal_device_t *device;
  uint32_t flags;      /* HAL_EVENT_* */
  atomic_int recorded; /* recorded at least once */
  atomic_int queried;  /* the stream was queried for a failure since the last record was done */
  /* The stream of the last record, and its hal_kernel_error_mark and position then. */
  _Atomic(hal_stream_t *) stream;
  _Atomic uint64_t mark, position;
  _Atomic uint64_t recording; /* the recording in which the event is a position (queue/queue.h); 0 = none */
};

/* Uses an event that is a position in a recording: `waiting` waits for it there, and is recorded from now on; if
 * `waiting` is NULL, `what` fails. `*out_used` = 0: the event is not such a position. Errors: the recording has ended;
 * the recording's. */
hal_status_t hal_event_use_recorded(const hal_event_t *event, hal_stream_t *waiting, const char *what, int *out_used);

/* Records an event after the work that is queued on a stream of the same device, also while the stream is being
 * recorded: the recording does not see the event. */
HAL_MUST_USE hal_status_t hal_event_record_queued(hal_event_t *event, hal_stream_t *stream);

#endif /* HAL_SRC_EVENT_INTERNAL_H_ */
