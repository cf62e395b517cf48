/* event_internal.h: the host's side of an event. Private to hal/src. */
#ifndef HAL_SRC_EVENT_INTERNAL_H_
#define HAL_SRC_EVENT_INTERNAL_H_

#include "device/device.h"

struct hal_event_s {
  hal_plugin_event_t *handle;
  hal_device_t *device;
  uint32_t flags;      /* HAL_EVENT_* */
  atomic_int recorded; /* at least once */
  atomic_int asked;    /* the stream was asked for a failure since the last record was done */
  /* Where it was recorded last, and hal_kernel_error_mark then. */
  _Atomic(hal_stream_t *) stream;
  _Atomic uint64_t mark;
};

#endif /* HAL_SRC_EVENT_INTERNAL_H_ */
