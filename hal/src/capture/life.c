/* life.c: begins and ends recordings, and destroys programs. */
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "capture/program.h"
#include "device/event_internal.h"
#include "hal/event.h"
#include "hal/status.h"

static atomic_uint_fast64_t last_id;

uint64_t hal_program_new_id(void) { return atomic_fetch_add(&last_id, 1) + 1; }

void hal_command_list_destroy(hal_command_list_t *list) {
  for (uint32_t i = 0; i < list->command_count; i++) {
    const hal_command_t *const command = &list->commands[i];
    if (command->kind == HAL_COMMAND_SUBMISSION) command->u.submission->destroy(command->u.submission->user_data);
  }
  hal_arena_destroy(&list->arena);
  hal_free(list->commands);
  hal_free(list->ops);
  *list = (hal_command_list_t){.command_count = 0};
}

hal_status_t hal_program_invalidate(hal_program_t *program, hal_status_t status) {
  if (program->invalidated) return status;
  program->invalidated = status;
  snprintf(program->cause, sizeof program->cause, "%s", hal_error_message());
  return status;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

hal_status_t hal_program_take_stream(hal_program_t *program, hal_stream_t *stream) {
  hal_queue_t *direct = &stream->direct.queue;
  hal_program_stream_t *const entry = hal_malloc(sizeof *entry);
  if (!entry) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory to record a stream");
  const hal_status_t status = hal_memory_pool_begin(program->pool, stream);
  if (status) {
    hal_free(entry);
    return status;
  }
  if (!atomic_compare_exchange_strong(&stream->queue, &direct, &program->front->queue)) {
    hal_memory_pool_end(program->pool, stream);
    hal_free(entry);
    return hal_error_set(HAL_FAILED_PRECONDITION, "stream %lld of device %s is being recorded already; end that first",
                         (long long)stream->id, program->device->label);
  }
  *entry = (hal_program_stream_t){.next = program->streams, .stream = stream};
  program->streams = entry;
  program->stream_count++;
  return HAL_OK;
}

/* Ends the recording of all streams. The caller holds the lock. */
static void release_streams(hal_program_t *program) {
  const int alive = hal_device_is_alive(program->device);
  while (program->streams) {
    hal_program_stream_t *const entry = program->streams;
    program->streams = entry->next;
    atomic_store_explicit(&entry->stream->queue, &entry->stream->direct.queue, memory_order_release);
    if (alive) hal_memory_pool_end(program->pool, entry->stream);
    hal_free(entry);
  }
  program->recording = 0;
}

/* Takes the queue of a recording: the stream's previous one, if there is one. NULL = no memory. Threads may still hold
 * a previous one: it has no program until show_program. */
static hal_recording_t *take_front(hal_stream_t *stream) {
  hal_queue_t *const parked = hal_queue_unpark(&stream->slots[HAL_COMPONENT_CAPTURE]);
  hal_recording_t *const front = parked ? hal_recording_of(parked) : hal_calloc(1, sizeof *front);
  if (!front) return NULL;
  if (!parked)
    front->queue.calls = &hal_program_calls; /* once: threads that hold a parked one read it without the lock */
  return front;
}

/* Makes a program, whose members are set, that of its queue. */
static void show_program(hal_program_t *program) {
  hal_recording_t *const front = program->front;
  hal_lock(&front->lock);
  front->id = hal_program_new_id();
  front->program = program;
  hal_unlock(&front->lock);
}

/* Parks the queue of a program that is about to be freed, because threads may still use it. */
static void leave_front(hal_program_t *program) {
  hal_recording_t *const front = program->front;
  hal_lock(&front->lock);
  front->program = NULL;
  hal_unlock(&front->lock);
  hal_queue_park(&program->stream->slots[HAL_COMPONENT_CAPTURE], &front->queue);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Returns the pool of a description, with a reference, or a new one. */
static hal_status_t take_pool(const hal_device_t *device, const hal_program_desc_t *desc,
                              hal_memory_pool_t **out_pool) {
  hal_memory_pool_t *const pool = desc && HAL_HAS_FIELD(desc, pool) ? desc->pool : NULL;
  if (!pool) return hal_memory_pool_create(device->index, out_pool);
  hal_memory_pool_retain(pool);
  *out_pool = pool;
  return HAL_OK;
}

hal_status_t hal_program_begin(hal_stream_t *stream, const hal_program_desc_t *desc, hal_program_t **out_program) {
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(hal_thread.device, &stream));
  hal_device_t *const device = stream->device;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(device));
  if (hal_stream_queue(stream) != &stream->direct.queue)
    return hal_error_set(HAL_FAILED_PRECONDITION, "stream %lld of device %s is being recorded already; end that first",
                         (long long)stream->id, device->label);
  hal_program_t *const program = hal_calloc(1, sizeof *program);
  if (!program) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a program");
  program->device = device;
  program->stream = stream;
  program->front = take_front(stream);
  if (!program->front) {
    hal_free(program);
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a program");
  }
  program->current_op = HAL_NO_OP;
  program->flags = desc && HAL_HAS_FIELD(desc, flags) ? desc->flags : 0;
  program->recording = 1;
  hal_status_t status = take_pool(device, desc, &program->pool);
  if (!status) show_program(program);
  if (!status) status = hal_program_take_stream(program, stream);
  if (status) {
    hal_program_destroy(program);
    return status;
  }
  *out_program = program;
  return HAL_OK;
}

hal_status_t hal_program_refuse(hal_program_t *program, const char *message) {
  const hal_status_t status = hal_error_set(HAL_FAILED_PRECONDITION, "%s", message);
  if (!hal_device_is_alive(program->device)) return status;
  hal_program_lock(program);
  if (program->recording) hal_program_invalidate(program, status);
  hal_program_unlock(program);
  return status;
}

hal_status_t hal_program_end(hal_program_t *program) {
  hal_status_t status = HAL_OK;
  HAL_RETURN_IF_ERROR(hal_device_check_alive(program->device));
  hal_program_lock(program);
  if (!program->recording) status = hal_error_set(HAL_FAILED_PRECONDITION, "the recording has ended already");
  if (!status) {
    release_streams(program);
    if (program->invalidated) status = hal_error_set(HAL_ABORTED, "the recording was invalidated: %s", program->cause);
  }
  hal_program_unlock(program);
  return status;
}

/* Frees a program whose last run is done. */
static void free_program(void *data) {
  hal_program_t *const program = data;
  hal_program_drop_graphs(program);
  while (program->sources) {
    hal_program_source_t *const source = program->sources;
    program->sources = source->next;
    hal_memory_release(source->state);
    hal_generator_destroy(source->generator);
    hal_free(source);
  }
  hal_event_destroy(program->done);
  hal_memory_pool_release(program->pool);
  hal_command_list_destroy(&program->list);
  hal_free(program->patches);
  leave_front(program);
  hal_free(program);
}

/* Frees a program when its last run is done. No stream waits for that run: another recording of the stream would have
 * to record the wait. */
static void free_after_last_run(hal_program_t *program) {
  hal_stream_t *const last = program->last;
  if (!hal_memory_defer(program->device->index, last, free_program, program)) return;
  hal_stream_drain(last);
  free_program(program);
}

void hal_program_destroy(hal_program_t *program) {
  if (!program) return;
  hal_program_lock(program);
  release_streams(program);
  hal_program_unlock(program);
  if (program->last && hal_device_is_alive(program->device))
    free_after_last_run(program);
  else
    free_program(program);
}

hal_program_t *hal_program_of_stream(hal_stream_t *stream) {
  if (!stream && hal_stream_current(hal_thread.device, &stream)) return NULL;
  hal_queue_t *const queue = hal_stream_queue(stream);
  if (queue->calls != &hal_program_calls) return NULL;
  hal_recording_t *const front = hal_recording_of(queue);
  hal_lock(&front->lock);
  hal_program_t *const program = front->program;
  hal_unlock(&front->lock);
  return program;
}

int32_t hal_program_device(const hal_program_t *program) { return program->device->index; }

hal_memory_pool_t *hal_program_pool(const hal_program_t *program) { return program->pool; }
