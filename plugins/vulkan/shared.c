/* shared.c: events that processes share (hal/plugin_shared_event.h), for drivers without semaphores of other processes.
 * The workers of the streams complete records and wait for them, so a stream that waits for another process blocks no
 * other stream. */
#include "vulkan_plugin.h"

typedef struct turn_s {
  hal_shared_event_t *event; /* with a reference */
  uint64_t ticket;
} turn_t;

/* The record is completed also if the work before it failed: its stream reports the failure. */
static hal_status_t run_record(vulkan_lane_t *lane, void *arguments) {
  const turn_t *const turn = arguments;
  const hal_status_t status = vulkan_lane_wait(lane);
  hal_shared_event_complete(turn->event, turn->ticket);
  hal_shared_event_release(turn->event);
  return status;
}

hal_status_t vulkan_shared_record(hal_shared_event_t *event, hal_plugin_stream_t *stream) {
  const turn_t turn = {event, hal_shared_event_record(event)};
  if (!stream) { /* its work is done */
    hal_shared_event_complete(event, turn.ticket);
    return HAL_OK;
  }
  hal_shared_event_keep(event);
  const hal_status_t status =
      vulkan_submit(stream, stream->device, (vulkan_label_t){.op = "event_record"}, run_record, &turn, sizeof turn);
  if (!status) return HAL_OK;
  hal_shared_event_complete(event, turn.ticket); /* so that no process waits for it */
  hal_shared_event_release(event);
  return status;
}

static hal_status_t run_wait(vulkan_lane_t *lane, void *arguments) {
  const turn_t *const turn = arguments;
  hal_status_t status = vulkan_lane_flush(lane); /* the other process may wait for it */
  const hal_status_t waited = hal_shared_event_wait(turn->event, turn->ticket);
  hal_shared_event_release(turn->event);
  return status ? status : waited;
}

hal_status_t vulkan_shared_wait(hal_shared_event_t *event, hal_plugin_stream_t *stream) {
  const turn_t turn = {event, hal_shared_event_last(event)};
  if (!stream) return hal_shared_event_wait(event, turn.ticket);
  if (hal_shared_event_done(event, turn.ticket)) return HAL_OK;
  hal_shared_event_keep(event);
  const hal_status_t status =
      vulkan_submit(stream, stream->device, (vulkan_label_t){.op = "stream_wait_event"}, run_wait, &turn, sizeof turn);
  if (status) hal_shared_event_release(event);
  return status;
}
