// external.h: events that a graph records, or waits for, outside of itself (torch.<name>.Event(external=True)).
#pragma once

#include "hal/hal.h"
#include "hal/program.h"

namespace torch_backend {

// Marks an event as external, until forget_external, which is fast for other events.
void mark_external(hal_event_t *event);
void forget_external(hal_event_t *event) noexcept;

// Handles the record, or the wait, of an external event on a stream that is captured: each replay repeats it. Returns
// false if the event is not external or the stream is not captured.
bool capture_external_record(hal_event_t *event, hal_stream_t *stream);
bool capture_external_wait(hal_event_t *event, hal_stream_t *stream);

// Called before and after a run of a program on a stream. All waits come before the run and all records after it, so
// work of other streams sees the whole graph.
void wait_for_external(const hal_program_t *program, hal_stream_t *stream);
void record_external(const hal_program_t *program, hal_stream_t *stream);
void forget_external_of(const hal_program_t *program);

}  // namespace torch_backend
