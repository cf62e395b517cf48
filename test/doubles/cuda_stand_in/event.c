/* event.c: events. Each record has a number; who waits, waits for the record that was the last one when the wait was queued. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "stand_in.h"

struct CUevent_st {
  CUcontext context;
  unsigned flags;
  atomic_int users;
  pthread_mutex_t lock; /* of the rest */
  pthread_cond_t ended;
  uint64_t recorded, done, time; /* time: of the last one that is done, in nanoseconds */
  capture_mark_t mark;           /* under the global lock */
};

typedef struct event_command_s {
  command_t command;
  CUevent event;
  uint64_t ticket;
} event_command_t;

static void release(CUevent event) {
  if (atomic_fetch_sub(&event->users, 1) != 1) return;
  pthread_cond_destroy(&event->ended);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

static void drop(command_t *command) { release(((event_command_t *)command)->event); }

static void run_record(command_t *command, CUcontext context) {
  const event_command_t *const record = (const event_command_t *)command;
  (void)context;
  pthread_mutex_lock(&record->event->lock);
  record->event->time = clock_now();
  if (record->event->done < record->ticket) record->event->done = record->ticket;
  pthread_cond_broadcast(&record->event->ended);
  pthread_mutex_unlock(&record->event->lock);
}

static void wait_for(CUevent event, uint64_t ticket) {
  pthread_mutex_lock(&event->lock);
  while (event->done < ticket) pthread_cond_wait(&event->ended, &event->lock);
  pthread_mutex_unlock(&event->lock);
}

static void run_wait(command_t *command, CUcontext context) {
  const event_command_t *const wait = (const event_command_t *)command;
  (void)context;
  wait_for(wait->event, wait->ticket);
}

/* Both run in a failed context, too: nobody waits for ever. */
static event_command_t *make_command(CUevent event, void (*run)(command_t *, CUcontext)) {
  event_command_t *const command = command_new(sizeof *command, run);
  if (!command) return NULL;
  command->command.drop = drop;
  command->command.always = 1;
  command->event = event;
  atomic_fetch_add(&event->users, 1);
  return command;
}

API CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (flags & ~known || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
    return CUDA_ERROR_INVALID_VALUE;
  CUevent const made = fault_takes(FAULT_EVENT) ? NULL : calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUevent_st){.context = context, .flags = flags, .users = 1};
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->ended, NULL);
  *event = made;
  return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  release(event);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!event || event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult captured = capture_record(stream_resolve(stream, context), &event->mark);
  if (captured != CUDA_ERROR_NOT_FOUND) return captured;
  event_command_t *const record = make_command(event, run_record);
  if (!record) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&event->lock);
  record->ticket = event->recorded + 1;
  pthread_mutex_unlock(&event->lock);
  const uint64_t ticket = record->ticket;
  const CUresult pushed = command_push(stream, context, &record->command);
  pthread_mutex_lock(&event->lock);
  if (!pushed && event->recorded < ticket) event->recorded = ticket;
  pthread_mutex_unlock(&event->lock);
  return pushed;
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult captured = capture_wait(stream_resolve(stream, context), &event->mark);
  if (captured != CUDA_ERROR_NOT_FOUND) return captured;
  event_command_t *const wait = make_command(event, run_wait);
  if (!wait) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&event->lock);
  wait->ticket = event->recorded;
  pthread_mutex_unlock(&event->lock);
  return command_push(stream, context, &wait->command);
}

API CUresult cuEventQuery(CUevent event) {
  CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  code = (CUresult)atomic_load(&event->context->error);
  if (code) return code;
  pthread_mutex_lock(&event->lock);
  code = event->done < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  pthread_mutex_unlock(&event->lock);
  return code;
}

API CUresult cuEventSynchronize(CUevent event) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&event->lock);
  const uint64_t ticket = event->recorded;
  pthread_mutex_unlock(&event->lock);
  wait_for(event, ticket);
  return (CUresult)atomic_load(&event->context->error);
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  CUresult code = check_initialised();
  if (code) return code;
  if (start && end) {
    pthread_mutex_lock(&start->lock);
    const uint64_t started = start->recorded;
    pthread_mutex_unlock(&start->lock);
    pthread_mutex_lock(&end->lock);
    if (!started || !end->recorded) code = CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_unlock(&end->lock);
    if (code) return code;
  }
  if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->context != end->context)
    return CUDA_ERROR_INVALID_HANDLE;
  code = cuEventQuery(start);
  if (!code) code = cuEventQuery(end);
  if (!code) *milliseconds = (float)((double)(int64_t)(end->time - start->time) * 1e-6);
  return code;
}
