/* event.c: events. Each record has a number; a wait is for the record that was the last one when the wait was
   queued. */
#define _GNU_SOURCE /* memfd_create */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mock.h"

typedef struct state_s {
  pthread_mutex_t lock; /* of the rest */
  pthread_cond_t ended;
  uint64_t recorded, done, time; /* time: of the last one that is done, in nanoseconds */
} state_t;

/* The state of an event that other processes may open is in a memory file; of any other, in the event. */
struct CUevent_st {
  CUcontext context;
  unsigned flags;
  atomic_int users;
  int file; /* of the memory file; -1: there is none, or it belongs to another process */
  state_t *state, own;
  capture_mark_t mark; /* under the global lock */
};

typedef struct event_command_s {
  command_t command;
  CUevent event;
  uint64_t ticket;
} event_command_t;

static void release(CUevent event) {
  if (atomic_fetch_sub(&event->users, 1) != 1) return;
  if (event->state == &event->own) {
    pthread_cond_destroy(&event->own.ended);
    pthread_mutex_destroy(&event->own.lock);
  } else { /* another process may still use it */
    munmap(event->state, sizeof *event->state);
    if (event->file >= 0) close(event->file);
  }
  free(event);
}

static void drop(command_t *command) { release(((event_command_t *)command)->event); }

static void run_record(command_t *command, CUcontext context) {
  const event_command_t *const record = (const event_command_t *)command;
  (void)context;
  state_t *const state = record->event->state;
  pthread_mutex_lock(&state->lock);
  state->time = clock_now();
  if (state->done < record->ticket) state->done = record->ticket;
  pthread_cond_broadcast(&state->ended);
  pthread_mutex_unlock(&state->lock);
}

static void wait_for(CUevent event, uint64_t ticket) {
  state_t *const state = event->state;
  pthread_mutex_lock(&state->lock);
  while (state->done < ticket) pthread_cond_wait(&state->ended, &state->lock);
  pthread_mutex_unlock(&state->lock);
}

/* The number of the last record. */
static uint64_t last_record(CUevent event) {
  pthread_mutex_lock(&event->state->lock);
  const uint64_t ticket = event->state->recorded;
  pthread_mutex_unlock(&event->state->lock);
  return ticket;
}

static void run_wait(command_t *command, CUcontext context) {
  const event_command_t *const wait = (const event_command_t *)command;
  (void)context;
  wait_for(wait->event, wait->ticket);
}

/* Both also run in a failed context: no thread may wait forever. */
static event_command_t *make_command(CUevent event, void (*run)(command_t *, CUcontext)) {
  event_command_t *const command = command_new(sizeof *command, run);
  if (!command) return NULL;
  command->command.drop = drop;
  command->command.always = 1;
  command->event = event;
  atomic_fetch_add(&event->users, 1);
  return command;
}

static void begin_state(state_t *state, int shared) {
  pthread_mutexattr_t of_lock;
  pthread_condattr_t of_condition;
  pthread_mutexattr_init(&of_lock);
  pthread_condattr_init(&of_condition);
  pthread_mutexattr_setpshared(&of_lock, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
  pthread_condattr_setpshared(&of_condition, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
  pthread_mutex_init(&state->lock, &of_lock);
  pthread_cond_init(&state->ended, &of_condition);
  pthread_mutexattr_destroy(&of_lock);
  pthread_condattr_destroy(&of_condition);
}

static state_t *map_state(int file) {
  void *const base = mmap(NULL, sizeof(state_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return base == MAP_FAILED ? NULL : base;
}

/* Moves the event's state to memory that other processes may open. Returns whether it succeeded. */
static int share_state(CUevent event) {
  event->file = memfd_create("cuda_mock", MFD_CLOEXEC);
  event->state = event->file >= 0 && ftruncate(event->file, sizeof(state_t)) == 0 ? map_state(event->file) : NULL;
  if (!event->state && event->file >= 0) close(event->file);
  return event->state != NULL;
}

API CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const int shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (flags & ~known || (shared && !(flags & CU_EVENT_DISABLE_TIMING))) return CUDA_ERROR_INVALID_VALUE;
  CUevent const made = fault_takes(FAULT_EVENT) ? NULL : calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUevent_st){.context = context, .flags = flags, .users = 1, .file = -1, .state = &made->own};
  if (shared && !share_state(made)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  begin_state(made->state, shared);
  *event = made;
  return CUDA_SUCCESS;
}

/* ---- other processes ---- */

API CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->file < 0) return CUDA_ERROR_INVALID_HANDLE;
  process_handle_write(handle, event->file, sizeof(state_t));
  return CUDA_SUCCESS;
}

/* Like the real driver, not in the process that created it. */
API CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
  CUcontext context;
  int file = -1;
  size_t size = 0;
  CUresult code = enter(&context);
  if (!code) code = process_handle_open(&handle, &file, &size);
  if (code) return code;
  state_t *const state = size == sizeof(state_t) ? map_state(file) : NULL;
  CUevent const made = state ? calloc(1, sizeof *made) : NULL;
  close(file);
  if (!made) {
    if (state) munmap(state, sizeof *state);
    return state ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  }
  *made = (struct CUevent_st){.context = context,
                              .flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING,
                              .users = 1,
                              .file = -1,
                              .state = state};
  *event = made;
  return CUDA_SUCCESS;
}

/* ---- use ---- */

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
  const uint64_t ticket = record->ticket = last_record(event) + 1;
  const CUresult pushed = command_push(stream, context, &record->command);
  pthread_mutex_lock(&event->state->lock);
  if (!pushed && event->state->recorded < ticket) event->state->recorded = ticket;
  pthread_mutex_unlock(&event->state->lock);
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
  wait->ticket = last_record(event);
  return command_push(stream, context, &wait->command);
}

API CUresult cuEventQuery(CUevent event) {
  CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  code = (CUresult)atomic_load(&event->context->error);
  if (code) return code;
  pthread_mutex_lock(&event->state->lock);
  code = event->state->done < event->state->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  pthread_mutex_unlock(&event->state->lock);
  return code;
}

API CUresult cuEventSynchronize(CUevent event) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  wait_for(event, last_record(event));
  return (CUresult)atomic_load(&event->context->error);
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  CUresult code = check_initialised();
  if (code) return code;
  if (start && end && (!last_record(start) || !last_record(end))) return CUDA_ERROR_INVALID_HANDLE;
  if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->context != end->context)
    return CUDA_ERROR_INVALID_HANDLE;
  code = cuEventQuery(start);
  if (!code) code = cuEventQuery(end);
  if (!code) *milliseconds = (float)((double)(int64_t)(end->state->time - start->state->time) * 1e-6);
  return code;
}
