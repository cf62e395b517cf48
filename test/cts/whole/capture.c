/* capture.c: graphs. */
#include "whole.h"

hal_status_t whole_capture_record(event_t *event, stream_t *stream) { return whole_good.event_record(event, stream); }
hal_status_t whole_capture_wait(stream_t *stream, event_t *event) {
  return whole_good.stream_wait_event(stream, event);
}
