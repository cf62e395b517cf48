/* semaphore.c: streams that wait for collectives without the host.
 *
 * The host does not know when the other ranks will complete their part. So the stream waits for a timeline semaphore,
 * and the thread that ends the work signals it. This requires that the plugin has semaphores.
 *
 * Works end in any order, because lanes do. So each work has its own semaphore while streams wait for it. The
 * communicator keeps unused semaphores: their next work waits for the next value. A work always ends, at the latest
 * after its timeout or when the communicator is destroyed. A work that fails signals its semaphore, too, after the
 * failure is in the records of the waiting streams. */
#include "device/semaphore.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "comm/comm.h"
#include "device/failure.h"
#include "hal/status.h"

enum { MOST_STREAMS = 8 }; /* that wait for one work; the host waits for further ones */

struct hal_comm_signal_s {
  hal_comm_signal_t *next; /* in the communicator's list of unused signals */
  hal_semaphore_t *semaphore;
  uint64_t value; /* value of the semaphore when the work has ended */
  uint32_t count;
  hal_stream_t *streams[MOST_STREAMS];
};

/* ---- the communicator's signals ---- */

static void destroy(hal_comm_signal_t *signal) {
  hal_semaphore_destroy(signal->semaphore);
  hal_free(signal);
}

static hal_status_t create(hal_comm_t *comm, hal_comm_signal_t **out_signal) {
  hal_comm_signal_t *const signal = hal_calloc(1, sizeof *signal);
  if (!signal) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a wait");
  const hal_status_t status = hal_semaphore_create(comm->device, &signal->semaphore);
  if (status)
    hal_free(signal);
  else
    *out_signal = signal;
  return status;
}

void hal_comm_signals_destroy(hal_comm_t *comm) {
  for (hal_comm_signal_t *signal = comm->signals, *next; signal; signal = next) {
    next = signal->next;
    destroy(signal);
  }
}

void hal_comm_signal_release(hal_comm_work_t *work) {
  hal_comm_t *const comm = work->comm;
  hal_comm_signal_t *const signal = work->signal;
  if (!signal) return;
  if (hal_life_ended()) { /* in a forked child, a thread of the parent may hold the lock */
    destroy(signal);
    return;
  }
  signal->count = 0;
  pthread_mutex_lock(&comm->lock);
  signal->next = comm->signals;
  comm->signals = signal;
  pthread_mutex_unlock(&comm->lock);
}

/* Assigns a signal to the work: an unused one, or `fresh`. Returns whether the work has one. The caller holds the
 * lock. */
static int ensure_signal(hal_comm_work_t *work, hal_comm_signal_t **inout_fresh) {
  hal_comm_t *const comm = work->comm;
  if (work->signal) return 1;
  if (comm->signals) {
    work->signal = comm->signals;
    comm->signals = work->signal->next;
  } else {
    work->signal = *inout_fresh;
    *inout_fresh = NULL;
  }
  if (work->signal) work->signal->value++;
  return work->signal != NULL;
}

/* ---- waiting ---- */

/* The next step of hal_comm_work_wait_stream. */
enum { WAIT_STREAM, WAIT_HOST, NEED_SIGNAL };

/* Adds the stream to those that wait for the work. */
static int enter(hal_comm_work_t *work, hal_stream_t *stream, hal_comm_signal_t **inout_fresh) {
  int next = WAIT_HOST; /* returns at once if the work has ended */
  pthread_mutex_lock(&work->comm->lock);
  if (!atomic_load(&work->queued)) {
    if (!ensure_signal(work, inout_fresh)) {
      next = NEED_SIGNAL;
    } else if (work->signal->count < MOST_STREAMS) {
      work->signal->streams[work->signal->count++] = stream;
      next = WAIT_STREAM;
    }
  }
  pthread_mutex_unlock(&work->comm->lock);
  return next;
}

hal_status_t hal_comm_work_wait_stream(hal_comm_work_t *work, hal_stream_t *stream) {
  hal_comm_t *const comm = work->comm;
  hal_comm_signal_t *fresh = NULL;
  hal_status_t status = HAL_OK;
  if (work->is_recorded) return HAL_OK;
  if (hal_life_ended() || atomic_load(&work->queued)) return hal_comm_work_wait(work, stream, 0);
  if (!stream) HAL_RETURN_IF_ERROR(hal_stream_current(comm->device, &stream));
  if (hal_stream_device(stream) != comm->device) return hal_comm_work_wait(work, stream, 0);
  /* The stream also gets the failures of the copies of results. */
  int next =
      hal_failure_follow(stream, (hal_followed_t){.stream = comm->out}) ? enter(work, stream, &fresh) : WAIT_HOST;
  if (next == NEED_SIGNAL) {
    status = create(comm, &fresh);
    if (!status) next = enter(work, stream, &fresh);
  }
  if (fresh) destroy(fresh); /* the work has ended, or another thread was faster */
  if (status && status != HAL_UNIMPLEMENTED) return status;
  if (next != WAIT_STREAM) return hal_comm_work_wait(work, stream, 0);
  hal_comm_work_start(work);
  return hal_stream_wait_semaphore(stream, work->signal->semaphore, work->signal->value);
}

/* ---- the end of a work ---- */

/* Stores the failure in the records of the streams. */
static void record_failure(const hal_comm_signal_t *signal, hal_status_t status) {
  for (uint32_t i = 0; i < signal->count; i++) hal_comm_work_fail_stream(signal->streams[i], status);
}

int hal_comm_signal_holds(const hal_comm_work_t *work, const hal_stream_t *stream) {
  for (uint32_t i = 0; work->signal && i < work->signal->count; i++)
    if (work->signal->streams[i] == stream) return 1;
  return 0;
}

void hal_comm_signal_fail(const hal_comm_work_t *work, hal_status_t status) {
  if (work->signal) record_failure(work->signal, status);
}

/* Ends the waits from the host. Streams would wait forever after a failure, so it is tried again, then on a stream. */
static hal_status_t raise_from_host(const hal_comm_t *comm, const hal_comm_signal_t *signal) {
  for (int attempt = 0; attempt < 2; attempt++)
    if (!hal_semaphore_set(signal->semaphore, signal->value)) return HAL_OK;
  return hal_stream_signal_semaphore(comm->out, signal->semaphore, signal->value);
}

void hal_comm_signal_raise(hal_comm_work_t *work) {
  hal_comm_t *const comm = work->comm;
  const hal_comm_signal_t *const signal = work->signal;
  if (!signal || hal_life_ended()) return;
  const hal_status_t failure = hal_comm_failure_get(&work->failure);
  if (failure) record_failure(signal, failure);
  if (!failure && (!comm->direct || atomic_load(&work->is_watched))) { /* after what is queued on `out` */
    const hal_status_t status = hal_stream_signal_semaphore(comm->out, signal->semaphore, signal->value);
    if (!status) return;
    record_failure(signal, status);
  }
  char what[HAL_COMM_WHAT];
  if (raise_from_host(comm, signal))
    hal_log(HAL_LOG_ERROR, "%s: streams that wait for it may hang: %s", hal_comm_work_text(work, what),
            hal_error_message());
}
