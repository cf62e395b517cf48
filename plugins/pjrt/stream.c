/* stream.c: a stream is a worker of the SDK, a thread with a queue. To wait for a stream, a caller waits for the number
 * of the last queued work item. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin_worker.h>
#include <stdio.h>
#include <string.h>

#include "pjrt.h"

struct pjrt_work_s {
  hal_worker_item_t item; /* the first member, so that the worker's pointer is that of the whole item */
  hal_plugin_stream_t *stream;
  const char *name;
  pjrt_work_fn_t run;
  int overlaps;                           /* it may run before earlier runs of programs have ended */
  _Alignas(16) unsigned char arguments[]; /* a copy: callers may change their arguments after the call */
};

enum { FREES = 64, FREE_BYTES = 4 << 20 }; /* blocks that are freed together, and their bytes */
typedef struct frees_s {
  uint32_t count;
  size_t bytes;
  void *addresses[FREES];
} frees_t;

struct hal_plugin_stream_s {
  struct hal_plugin_stream_s *next; /* in `streams` */
  uint64_t number;                  /* grows with each stream */
  int waiters;                      /* pjrt_drain waits for its work */
  int32_t device;
  hal_worker_t *worker;
  pjrt_views_t *views;
  pjrt_flights_t *flights;  /* NULL: runs are awaited */
  pthread_mutex_t lock;     /* guards the members below */
  hal_status_t failure;     /* not reported yet */
  hal_stream_error_t error; /* the last failure */
  pjrt_work_t *frees;       /* not queued yet; NULL: none */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and `waiters` */
static pthread_cond_t no_waiters = PTHREAD_COND_INITIALIZER;
static hal_plugin_stream_t *streams; /* the last one first */

/* ---- the thread ------------------------------------------------------------------------------------------------ */

/* The first failure is stored, because later work uses invalid values. */
static void note_failure(hal_plugin_stream_t *stream, const char *name, hal_status_t status, const char *why) {
  pthread_mutex_lock(&stream->lock);
  if (!stream->failure) {
    stream->failure = status;
    stream->error = (hal_stream_error_t){.status = status};
    snprintf(stream->error.op, sizeof stream->error.op, "%s", name);
    snprintf(stream->error.message, sizeof stream->error.message, "pjrt: %.64s failed%s%.160s", name, *why ? ": " : "",
             why);
  }
  pthread_mutex_unlock(&stream->lock);
}

static void serve(hal_worker_item_t *item) {
  pjrt_work_t *const work = (pjrt_work_t *)item;
  char why[PJRT_WHY] = "";
  if (!work->overlaps) pjrt_flights_wait(work->stream->flights);
  const hal_status_t status = work->run(work->arguments, why);
  if (status) {
    pjrt_flights_wait(work->stream->flights); /* an earlier run may have caused it */
    note_failure(work->stream, work->name, status, why);
  }
  hal_host->mem_free(work);
}

int pjrt_is_idle(hal_plugin_stream_t *stream) {
  if (!stream) return 1;
  const uint64_t done = hal_worker_done(stream->worker);
  return done == hal_worker_queued(stream->worker);
}

pjrt_views_t *pjrt_stream_views(hal_plugin_stream_t *stream) { return stream ? stream->views : NULL; }

pjrt_flights_t *pjrt_stream_flights(hal_plugin_stream_t *stream) { return stream ? stream->flights : NULL; }

hal_status_t pjrt_run_now(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments) {
  char why[PJRT_WHY];
  why[0] = '\0';
  const hal_status_t status = run(arguments, why);
  if (!status) return HAL_OK;
  if (!stream) return pjrt_error(status, "pjrt: %.64s failed%s%.200s", name, *why ? ": " : "", why);
  note_failure(stream, name, status, why);
  return HAL_OK;
}

hal_status_t pjrt_work_new(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments,
                           size_t size, pjrt_work_t **out_work) {
  if (atomic_load_explicit(&pjrt.forked, memory_order_relaxed)) return pjrt_check_device(stream->device);
  pjrt_work_t *const work = hal_host->mem_alloc(sizeof *work + size, 16);
  if (!work) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "pjrt: no host memory to queue work");
  *work = (pjrt_work_t){.item.run = serve, .stream = stream, .name = name, .run = run};
  if (arguments) memcpy(work->arguments, arguments, size);
  *out_work = work;
  return HAL_OK;
}

void pjrt_work_overlap(pjrt_work_t *work) { work->overlaps = 1; }

void *pjrt_work_arguments(pjrt_work_t *work) { return work->arguments; }

void pjrt_work_push(hal_plugin_stream_t *stream, pjrt_work_t *work) { hal_worker_push(stream->worker, &work->item); }

hal_status_t pjrt_submit(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments,
                         size_t size) {
  pjrt_work_t *work = NULL;
  if (!stream) return pjrt_run_now(NULL, name, run, arguments);
  const hal_status_t status = pjrt_work_new(stream, name, run, arguments, size, &work);
  if (!status) pjrt_work_push(stream, work);
  return status;
}

/* ---- frees ------------------------------------------------------------------------------------------------------ */

/* A step of a training loop frees a hundred small blocks, so they are queued together. */

static hal_status_t run_frees(const void *arguments, char *why) {
  const frees_t *const frees = arguments;
  (void)why;
  for (uint32_t i = 0; i < frees->count; i++) hal_plugin_memory_free(0, frees->addresses[i]);
  return HAL_OK;
}

static pjrt_work_t *take_frees(hal_plugin_stream_t *stream) {
  pjrt_work_t *const work = stream->frees;
  stream->frees = NULL;
  return work;
}

/* Begins a synchronization: queues the frees that wait for more of them. */
static void begin_wait(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  pjrt_work_t *const work = take_frees(stream);
  pthread_mutex_unlock(&stream->lock);
  if (work) pjrt_work_push(stream, work);
}

/* Returns the frees that wait, which are never all that fit; NULL = no memory. */
static pjrt_work_t *frees_of(hal_plugin_stream_t *stream) {
  if (!stream->frees &&
      pjrt_work_new(stream, "memory_free_async", run_frees, NULL, sizeof(frees_t), &stream->frees) == HAL_OK) {
    *(frees_t *)pjrt_work_arguments(stream->frees) = (frees_t){.count = 0};
    pjrt_work_overlap(stream->frees); /* runs keep the buffers that they use */
  }
  return stream->frees;
}

hal_status_t pjrt_submit_free(hal_plugin_stream_t *stream, void *address, size_t size) {
  pthread_mutex_lock(&stream->lock);
  pjrt_work_t *work = frees_of(stream);
  const int found = work != NULL;
  if (work) {
    frees_t *const frees = pjrt_work_arguments(work);
    frees->addresses[frees->count++] = address;
    frees->bytes += size;
    work = frees->count == FREES || frees->bytes > FREE_BYTES ? take_frees(stream) : NULL;
  }
  pthread_mutex_unlock(&stream->lock);
  if (work) pjrt_work_push(stream, work);
  return found ? HAL_OK : HAL_RESOURCE_EXHAUSTED;
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

/* Reports a failure once. */
static hal_status_t report(hal_plugin_stream_t *stream) {
  pthread_mutex_lock(&stream->lock);
  const hal_status_t status = stream->failure;
  stream->failure = HAL_OK;
  if (status) hal_host->error_set(status, 0, stream->error.message);
  pthread_mutex_unlock(&stream->lock);
  return status;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  if (atomic_load_explicit(&pjrt.forked, memory_order_relaxed)) return pjrt_check_device(stream->device);
  begin_wait(stream);
  hal_worker_wait(stream->worker, hal_worker_queued(stream->worker));
  pjrt_flights_wait(stream->flights);
  return report(stream);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  if (atomic_load_explicit(&pjrt.forked, memory_order_relaxed)) return pjrt_check_device(stream->device);
  const uint64_t queued = hal_worker_queued(stream->worker);
  if (hal_worker_done(stream->worker) < queued || !pjrt_flights_ended(stream->flights)) return HAL_NOT_READY;
  pjrt_flights_wait(stream->flights);
  return report(stream);
}

hal_status_t hal_plugin_stream_error(hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  if (!stream) return HAL_NOT_FOUND;
  pthread_mutex_lock(&stream->lock);
  const hal_stream_error_t error = stream->error;
  pthread_mutex_unlock(&stream->lock);
  if (!error.status) return HAL_NOT_FOUND;
  HAL_SET_FIELD(out_error, status, error.status);
  if (HAL_HAS_FIELD(out_error, op)) memcpy(out_error->op, error.op, sizeof error.op);
  if (HAL_HAS_FIELD(out_error, message)) memcpy(out_error->message, error.message, sizeof error.message);
  return HAL_OK;
}

/* Returns the last stream of a device before another one. */
static hal_plugin_stream_t *find_before(int32_t device, uint64_t number) {
  hal_plugin_stream_t *stream = streams;
  while (stream && (stream->device != device || stream->number >= number)) stream = stream->next;
  return stream;
}

/* Waits without the lock: work may wait for another thread, a rank of a collective, that creates a stream first. */
hal_status_t pjrt_drain(int32_t device) {
  hal_status_t first = HAL_OK;
  uint64_t number = UINT64_MAX;
  pthread_mutex_lock(&streams_lock);
  for (hal_plugin_stream_t *stream; (stream = find_before(device, number));) {
    number = stream->number;
    stream->waiters++;
    pthread_mutex_unlock(&streams_lock);
    begin_wait(stream);
    hal_worker_wait(stream->worker, hal_worker_queued(stream->worker));
    pjrt_flights_wait(stream->flights);
    const hal_status_t status = first ? HAL_OK : report(stream);
    if (!first) first = status;
    pthread_mutex_lock(&streams_lock);
    if (!--stream->waiters) pthread_cond_broadcast(&no_waiters);
  }
  pthread_mutex_unlock(&streams_lock);
  return first;
}

/* ---- creation and destruction ---------------------------------------------------------------------------------- */

static uint64_t last_number; /* guarded by streams_lock */

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  hal_status_t status = pjrt_check_device(device);
  if (!status) status = hal_stream_desc_check("pjrt: stream_create", desc, 0); /* its priority is ignored */
  if (status) return status;
  hal_plugin_stream_t *const stream = hal_host->mem_alloc(sizeof *stream, _Alignof(hal_plugin_stream_t));
  if (!stream) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "pjrt: no host memory for a stream");
  *stream = (hal_plugin_stream_t){.device = device};
  status = hal_worker_start(&stream->worker);
  if (status) {
    hal_host->mem_free(stream);
    return status;
  }
  stream->views = pjrt.opaque ? NULL : pjrt_views_create();
  stream->flights = pjrt.opaque ? pjrt_flights_create(stream, device, note_failure) : NULL;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_mutex_lock(&streams_lock);
  stream->number = ++last_number;
  stream->next = streams, streams = stream;
  pthread_mutex_unlock(&streams_lock);
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream || atomic_load_explicit(&pjrt.forked, memory_order_relaxed)) return HAL_OK;
  pthread_mutex_lock(&streams_lock);
  hal_plugin_stream_t **link = &streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  while (stream->waiters) pthread_cond_wait(&no_waiters, &streams_lock);
  pthread_mutex_unlock(&streams_lock);
  begin_wait(stream);
  hal_worker_stop(stream->worker); /* runs the queued work */
  pjrt_flights_destroy(stream->flights);
  pjrt_views_destroy(stream->views);
  pthread_mutex_destroy(&stream->lock);
  hal_host->mem_free(stream);
  return HAL_OK;
}

typedef struct host_call_s {
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

static hal_status_t run_host_call(const void *arguments, char *why) {
  (void)why;
  const host_call_t *const call = arguments;
  call->fn(call->user_data);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  const host_call_t call = {fn, user_data};
  return pjrt_submit(stream, "stream_host_call", run_host_call, &call, sizeof call);
}
