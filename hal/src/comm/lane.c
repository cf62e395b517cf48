/* lane.c: a thread that runs jobs in their order. */
#define _GNU_SOURCE /* pthread_setname_np */
#include <signal.h>
#include <string.h>

#include "comm/comm.h"
#include "hal/status.h"

/* A job that fails ends the communicator: the ranks no longer agree on what comes next. */
static void run(hal_comm_t *comm, hal_comm_job_t *job) {
  hal_comm_work_t *const work = job->work;
  const hal_status_t status = hal_comm_job_run(job);
  if (status && status != HAL_UNIMPLEMENTED) { /* which all ranks find before anything moves */
    if (!atomic_load(&comm->failure.set)) hal_error_prefix(status, "%s: ", work->what);
    hal_comm_failure_set(&comm->failure, status);
    comm->transport.abort(comm->transport.context, hal_error_message());
    hal_comm_failure_get(&comm->failure); /* the first one is the cause */
  }
  hal_comm_work_finish(work, status);
  hal_comm_job_destroy(job);
}

static void *lane_main(void *argument) {
  hal_comm_lane_t *const lane = argument;
  hal_comm_t *const comm = lane->comm;
  pthread_setname_np(pthread_self(), "hal-comm");
  pthread_mutex_lock(&comm->lock);
  for (;;) {
    while (!lane->first && !comm->ending) pthread_cond_wait(&comm->changed, &comm->lock);
    hal_comm_job_t *const job = lane->first;
    if (!job) break;
    if (!(lane->first = job->next)) lane->last = &lane->first;
    pthread_mutex_unlock(&comm->lock);
    run(comm, job);
    pthread_mutex_lock(&comm->lock);
  }
  pthread_mutex_unlock(&comm->lock);
  return NULL;
}

/* The program's signals are for its own threads. */
static int start(hal_comm_lane_t *lane) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&lane->thread, NULL, lane_main, lane);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  lane->started = !error;
  return error;
}

hal_status_t hal_comm_lane_push(hal_comm_lane_t *lane, hal_comm_job_t *job) {
  hal_comm_t *const comm = lane->comm;
  pthread_mutex_lock(&comm->lock);
  int error = 0;
  if (!lane->started) {
    lane->last = &lane->first;
    error = start(lane);
  }
  if (!error) {
    *lane->last = job;
    lane->last = &job->next;
    job->work->jobs++;
    comm->pending++;
    pthread_cond_broadcast(&comm->changed);
  }
  pthread_mutex_unlock(&comm->lock);
  if (!error) return HAL_OK;
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "cannot start a thread for collectives: %s", strerror(error));
}
