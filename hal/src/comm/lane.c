/* lane.c: runs the jobs of a lane in order, on the lane's thread or on a thread that waits for them. */
#define _GNU_SOURCE /* pthread_setname_np */
#include <string.h>

#include "base/thread.h"
#include "comm/comm.h"
#include "comm/log.h"
#include "hal/status.h"

/* Jobs that this thread runs: more than one if `done` of a work waits for a later work. */
static _Thread_local unsigned depth;

/* A job that fails ends the communicator: the ranks no longer agree on the next collective. */
static void run(hal_comm_t *comm, hal_comm_job_t *job) {
  hal_comm_work_t *const work = job->work;
  const hal_status_t status = hal_comm_job_run(job);
  if (status && status != HAL_UNIMPLEMENTED) { /* all ranks find this error before data moves */
    char what[HAL_COMM_WHAT];
    if (!atomic_load(&comm->failure.set)) hal_error_prefix(status, "%s: ", hal_comm_work_text(work, what));
    hal_comm_failure_set(&comm->failure, status);
    comm->transport.abort(comm->transport.context, hal_error_message());
    hal_comm_log_failure();
    hal_comm_failure_get(&comm->failure); /* the first failure is the cause */
  }
  hal_comm_work_finish(work, 1, status);
  hal_comm_job_destroy(job);
}

/* Removes the first job of a lane and runs it. The caller holds the lock, which is released meanwhile. The lane stays
 * busy until the work's `done` has returned, because the copies of the work precede those of later works. */
static void run_first(hal_comm_lane_t *lane) {
  hal_comm_t *const comm = lane->comm;
  hal_comm_job_t *const job = lane->first;
  const int was_busy = lane->busy; /* busy with a job of this thread, whose `done` waits */
  if (!(lane->first = job->next)) {
    lane->last = &lane->first;
    lane->woken = 0;
  }
  lane->busy = 1;
  lane->runner = pthread_self();
  pthread_mutex_unlock(&comm->lock);
  depth++;
  run(comm, job);
  depth--;
  pthread_mutex_lock(&comm->lock);
  lane->busy = was_busy;
}

static void *lane_main(void *argument) {
  hal_comm_lane_t *const lane = argument;
  hal_comm_t *const comm = lane->comm;
  pthread_setname_np(pthread_self(), "hal-comm");
  pthread_mutex_lock(&comm->lock);
  for (;;) {
    while (lane->first ? lane->busy || !lane->woken : !comm->ending) pthread_cond_wait(&lane->changed, &comm->lock);
    if (!lane->first) break;
    run_first(lane);
  }
  pthread_mutex_unlock(&comm->lock);
  return NULL;
}

static int start(hal_comm_lane_t *lane) {
  const int error = hal_thread_start(&lane->thread, lane_main, lane);
  lane->started = !error;
  return error;
}

/* Makes the lane's thread run the queued jobs. A thread that runs a job continues with the next one, or wakes the
 * lane's thread. Returns whether the lane's thread has to be signaled. The caller holds the lock. */
static int release_jobs(hal_comm_lane_t *lane) {
  if (!lane->first) return 0;
  lane->woken = 1;
  return !lane->busy;
}

static void wake(hal_comm_lane_t *lane) {
  if (release_jobs(lane)) pthread_cond_signal(&lane->changed);
}

/* A caller that waits at once needs no other thread if its job is the only one. Returns as release_jobs does. */
static int append(hal_comm_lane_t *lane, hal_comm_job_t *job) {
  const int is_alone = !lane->first && !lane->busy;
  *lane->last = job;
  lane->last = &job->next;
  return is_alone && job->work->flags & HAL_COMM_CALLER_WAITS ? 0 : release_jobs(lane);
}

hal_status_t hal_comm_lane_push(hal_comm_lane_t *lane, hal_comm_job_t *job) {
  hal_comm_t *const comm = lane->comm;
  pthread_mutex_lock(&comm->lock);
  const int error = lane->started ? 0 : start(lane);
  const int signals = !error && append(lane, job);
  pthread_mutex_unlock(&comm->lock);
  if (signals) pthread_cond_signal(&lane->changed); /* after the unlock; the caller's work keeps the lane */
  if (!error) return HAL_OK;
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "cannot start a thread for collectives: %s", strerror(error));
}

void hal_comm_lane_help(hal_comm_work_t *work) {
  hal_comm_lane_t *const lane = work->lane;
  hal_comm_t *const comm = work->comm;
  pthread_mutex_lock(&comm->lock);
  while (!atomic_load(&work->queued) && !lane->busy && lane->first && lane->first->work->flags & HAL_COMM_RUN_FLAGS)
    run_first(lane);
  wake(lane);
  if (comm->ending) pthread_cond_broadcast(&comm->ended);
  pthread_mutex_unlock(&comm->lock);
}

static int is_mine(const hal_comm_lane_t *lane) { return lane->busy && pthread_equal(lane->runner, pthread_self()); }

void hal_comm_lane_resume(hal_comm_work_t *work) {
  hal_comm_t *const comm = work->comm;
  if (!depth) return;
  pthread_mutex_lock(&comm->lock);
  for (uint32_t i = 0; i < comm->lane_count; i++)
    while (!atomic_load(&work->queued) && is_mine(&comm->lanes[i]) && comm->lanes[i].first) run_first(&comm->lanes[i]);
  pthread_mutex_unlock(&comm->lock);
}

void hal_comm_lanes_wake(hal_comm_t *comm) {
  pthread_mutex_lock(&comm->lock);
  for (uint32_t i = 0; i < comm->lane_count; i++) wake(&comm->lanes[i]);
  pthread_mutex_unlock(&comm->lock);
}

/* ---- lifetime ---- */

void hal_comm_lanes_init(hal_comm_t *comm, uint32_t count) {
  comm->lane_count = count;
  for (uint32_t i = 0; i < count; i++) {
    hal_comm_lane_t *const lane = &comm->lanes[i];
    lane->comm = comm;
    lane->last = &lane->first;
    pthread_cond_init(&lane->changed, NULL);
  }
}

/* Returns whether a thread other than this one runs a job. The caller holds the lock. */
static int is_any_busy(const hal_comm_t *comm) {
  for (uint32_t i = 0; i < comm->lane_count; i++)
    if (comm->lanes[i].busy && !pthread_equal(comm->lanes[i].runner, pthread_self())) return 1;
  return 0;
}

void hal_comm_lanes_end(hal_comm_t *comm) {
  pthread_mutex_lock(&comm->lock);
  comm->ending = 1;
  for (uint32_t i = 0; i < comm->lane_count; i++) {
    wake(&comm->lanes[i]);
    pthread_cond_signal(&comm->lanes[i].changed); /* a lane without jobs ends */
  }
  pthread_mutex_unlock(&comm->lock);
  for (uint32_t i = 0; i < comm->lane_count; i++)
    if (comm->lanes[i].started) pthread_join(comm->lanes[i].thread, NULL);
  pthread_mutex_lock(&comm->lock);
  while (is_any_busy(comm)) pthread_cond_wait(&comm->ended, &comm->lock);
  pthread_mutex_unlock(&comm->lock);
}

void hal_comm_lanes_destroy(hal_comm_t *comm) {
  for (uint32_t i = 0; i < comm->lane_count; i++) pthread_cond_destroy(&comm->lanes[i].changed);
}
