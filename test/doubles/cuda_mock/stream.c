/* stream.c: streams, each a thread with a queue, and the order among them. The legacy default stream waits for the
 * current work of its context's blocking streams, and they wait for its work; the per-thread default streams are
 * blocking ones. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "mock.h"

enum { LEGACY = 1, PER_THREAD = 2 }; /* handles */

static void release(CUstream stream) {
  if (atomic_fetch_sub(&stream->users, 1) != 1) return;
  pthread_cond_destroy(&stream->wake);
  pthread_cond_destroy(&stream->ended);
  pthread_mutex_destroy(&stream->lock);
  free(stream);
}

void stream_wait(place_t place) {
  CUstream const stream = place.stream;
  pthread_mutex_lock(&stream->lock);
  while (stream->done < place.ticket) pthread_cond_wait(&stream->ended, &stream->lock);
  pthread_mutex_unlock(&stream->lock);
}

void command_drop(command_t *command) {
  for (size_t i = 0; i < command->wait_count; i++) release(command->waits[i].stream);
  free(command->waits);
  if (command->drop) command->drop(command);
  free(command);
}

/* Work that is queued after a failure does not run, but it completes. */
static void run_command(command_t *command, CUcontext context) {
  for (size_t i = 0; i < command->wait_count; i++) stream_wait(command->waits[i]);
  if (!command->always) fault_command(context);
  if (command->always || !atomic_load(&context->error)) command->run(command, context);
  command_drop(command);
}

static void *serve(void *argument) {
  CUstream const stream = argument;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (!stream->first && !stream->stop) pthread_cond_wait(&stream->wake, &stream->lock);
    command_t *const command = stream->first;
    if (!command) break;
    stream->first = command->next;
    if (!stream->first) stream->last = &stream->first;
    pthread_mutex_unlock(&stream->lock);
    run_command(command, stream->context);
    pthread_mutex_lock(&stream->lock);
    stream->done++;
    pthread_cond_broadcast(&stream->ended);
  }
  pthread_mutex_unlock(&stream->lock);
  release(stream);
  fibres_release();
  return NULL;
}

/* One reference is the thread's, one the handle's. */
static CUstream make(CUcontext context, unsigned flags, int priority, int listed) {
  CUstream const stream = calloc(1, sizeof *stream);
  if (!stream) return NULL;
  *stream = (struct CUstream_st){.context = context, .flags = flags, .priority = priority, .users = 2};
  stream->last = &stream->first;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->wake, NULL);
  pthread_cond_init(&stream->ended, NULL);
  if (pthread_create(&stream->thread, NULL, serve, stream)) {
    stream->users = 1;
    release(stream);
    return NULL;
  }
  pthread_detach(stream->thread);
  if (listed) {
    stream->next = context->streams;
    context->streams = stream;
  }
  return stream;
}

/* ---- default streams ---- */

static _Thread_local CUstream own_streams[MAX_DEVICES]; /* never destroyed: an exiting thread leaves its stream */

CUstream stream_resolve(CUstream stream, CUcontext context) {
  if ((uintptr_t)stream > PER_THREAD) return stream;
  pthread_mutex_lock(&lock);
  CUstream *const place = (uintptr_t)stream == PER_THREAD ? &own_streams[context->device] : &context->legacy;
  if (!*place) *place = make(context, CU_STREAM_DEFAULT, 0, (uintptr_t)stream == PER_THREAD);
  CUstream const found = *place;
  pthread_mutex_unlock(&lock);
  return found;
}

/* ---- commands ---- */

void *command_new(size_t bytes, void (*run)(command_t *, CUcontext)) {
  command_t *const command = calloc(1, bytes);
  if (command) command->run = run;
  return command;
}

static place_t end_of(CUstream stream) {
  pthread_mutex_lock(&stream->lock);
  const place_t place = {stream, stream->queued};
  const int idle = stream->done == stream->queued;
  pthread_mutex_unlock(&stream->lock);
  return idle ? (place_t){NULL, 0} : place;
}

static int add_wait(command_t *command, CUstream stream) {
  const place_t place = end_of(stream);
  if (!place.stream) return 1;
  place_t *const waits = realloc(command->waits, (command->wait_count + 1) * sizeof *waits);
  if (!waits) return 0;
  atomic_fetch_add(&stream->users, 1);
  waits[command->wait_count++] = place;
  command->waits = waits;
  return 1;
}

/* The work for which the command waits because of the legacy stream. The caller holds the global lock. */
static int order(command_t *command, CUstream stream, CUcontext context) {
  int good = 1;
  if (stream == context->legacy)
    for (CUstream other = context->streams; other && good; other = other->next)
      good = other->flags & CU_STREAM_NON_BLOCKING || add_wait(command, other);
  else if (!(stream->flags & CU_STREAM_NON_BLOCKING) && context->legacy)
    good = add_wait(command, context->legacy);
  return good;
}

CUresult command_push(CUstream handle, CUcontext context, command_t *command) {
  CUstream const stream = command ? stream_resolve(handle, context) : NULL;
  if (!stream) {
    if (command) command_drop(command);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (stream->context != context) {
    command_drop(command);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  pthread_mutex_lock(&lock);
  const CUresult captured = capture_take(stream, command);
  if (captured != CUDA_ERROR_NOT_FOUND) {
    pthread_mutex_unlock(&lock);
    if (captured) command_drop(command);
    return captured;
  }
  const int good = order(command, stream, context);
  if (good) {
    pthread_mutex_lock(&stream->lock);
    *stream->last = command;
    stream->last = &command->next;
    stream->queued++;
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&stream->lock);
  }
  pthread_mutex_unlock(&lock);
  if (good) return CUDA_SUCCESS;
  command_drop(command);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- destruction ---- */

void context_drain(CUcontext context) {
  for (;;) {
    place_t busy = {NULL, 0};
    pthread_mutex_lock(&lock);
    if (context->legacy) busy = end_of(context->legacy);
    for (CUstream stream = context->streams; stream && !busy.stream; stream = stream->next) busy = end_of(stream);
    if (busy.stream) atomic_fetch_add(&busy.stream->users, 1);
    pthread_mutex_unlock(&lock);
    if (!busy.stream) return;
    stream_wait(busy);
    release(busy.stream);
  }
}

static void stop(CUstream stream) {
  pthread_mutex_lock(&stream->lock);
  stream->stop = 1;
  pthread_cond_signal(&stream->wake);
  pthread_mutex_unlock(&stream->lock);
  release(stream);
}

void streams_release(CUcontext context) {
  pthread_mutex_lock(&lock);
  CUstream stream = context->streams, legacy = context->legacy;
  context->streams = context->legacy = NULL;
  pthread_mutex_unlock(&lock);
  if (legacy) stop(legacy);
  for (CUstream next; stream; stream = next) {
    next = stream->next;
    stop(stream);
  }
}

/* ---- the driver's calls ---- */

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_STREAM)) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  CUstream const made = make(context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority, 1);
  pthread_mutex_unlock(&lock);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *stream = made;
  return CUDA_SUCCESS;
}

/* Returns immediately; queued work runs to completion. */
API CUresult cuStreamDestroy_v2(CUstream stream) {
  const CUresult code = check_initialised();
  if (code) return code;
  if ((uintptr_t)stream <= PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  CUstream *at = &stream->context->streams;
  while (*at && *at != stream) at = &(*at)->next;
  const int known = *at != NULL;
  if (known) *at = stream->next;
  pthread_mutex_unlock(&lock);
  if (!known) return CUDA_ERROR_INVALID_HANDLE;
  stop(stream);
  return CUDA_SUCCESS;
}

void stream_finish(CUstream stream, CUcontext context) {
  stream = stream_resolve(stream, context);
  pthread_mutex_lock(&lock);
  const int captured = stream && stream->capture;
  pthread_mutex_unlock(&lock);
  const place_t end = stream && !captured ? end_of(stream) : (place_t){NULL, 0};
  if (end.stream) stream_wait(end);
}

static CUresult look(CUstream *stream, CUcontext *context) {
  const CUresult code = enter(context);
  if (code) return code;
  *stream = stream_resolve(*stream, *context);
  if (!*stream) return CUDA_ERROR_OUT_OF_MEMORY;
  *context = (*stream)->context;
  return capture_forbids_stream(*stream);
}

API CUresult cuStreamSynchronize(CUstream stream) {
  CUcontext context;
  const CUresult code = look(&stream, &context);
  if (code) return code;
  const place_t end = end_of(stream);
  if (end.stream) stream_wait(end);
  pools_synchronised(context);
  return (CUresult)atomic_load(&context->error);
}

API CUresult cuStreamQuery(CUstream stream) {
  CUcontext context;
  const CUresult code = look(&stream, &context);
  if (code) return code;
  if (atomic_load(&context->error)) return (CUresult)atomic_load(&context->error);
  return end_of(stream).stream ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* ---- callbacks ---- */

typedef struct callback_s {
  command_t command;
  CUstream stream;
  CUstreamCallback function;
  void *user_data;
} callback_t;

/* The driver calls the functions of all streams from one thread: a blocking function delays those of the others. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void run_callback(command_t *command, CUcontext context) {
  const callback_t *const callback = (const callback_t *)command;
  pthread_mutex_lock(&one_at_a_time);
  callback->function(callback->stream, (CUresult)atomic_load(&context->error), callback->user_data);
  pthread_mutex_unlock(&one_at_a_time);
}

API CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *user_data, unsigned int flags) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (flags || !function) return CUDA_ERROR_INVALID_VALUE;
  const CUresult forbidden = capture_forbids_stream(stream_resolve(stream, context));
  if (forbidden) return forbidden;
  callback_t *const callback = command_new(sizeof *callback, run_callback);
  if (!callback) return CUDA_ERROR_OUT_OF_MEMORY;
  callback->command.always = 1;
  callback->stream = stream;
  callback->function = function;
  callback->user_data = user_data;
  return command_push(stream, context, &callback->command);
}

typedef struct host_function_s {
  command_t command;
  CUhostFn function;
  void *user_data;
  int is_kernel; /* runs concurrently with those of other streams */
} host_function_t;

static void run_function(command_t *command, CUcontext context) {
  const host_function_t *const own = (const host_function_t *)command;
  (void)context;
  if (!own->is_kernel) pthread_mutex_lock(&one_at_a_time);
  own->function(own->user_data);
  if (!own->is_kernel) pthread_mutex_unlock(&one_at_a_time);
}

/* Unlike a callback, it is skipped after a failure, and a graph may contain it. */
API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user_data) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  host_function_t *const own = command_new(sizeof *own, run_function);
  if (!own) return CUDA_ERROR_OUT_OF_MEMORY;
  own->function = function;
  own->user_data = user_data;
  return command_push(stream, context, &own->command);
}

/* For the libraries of this folder: queues a function that takes the place of one of their kernels, and returns the
   device of the thread's context, -1 = none. */
API CUresult cuda_mock_kernel(CUstream stream, CUhostFn function, void *user_data);
API int cuda_mock_device(void);

CUresult cuda_mock_kernel(CUstream stream, CUhostFn function, void *user_data) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  host_function_t *const own = command_new(sizeof *own, run_function);
  if (!own) return CUDA_ERROR_OUT_OF_MEMORY;
  own->function = function;
  own->user_data = user_data;
  own->is_kernel = 1;
  return command_push(stream, context, &own->command);
}

int cuda_mock_device(void) {
  CUcontext const context = current_context();
  return context ? (int)context->device : -1;
}
