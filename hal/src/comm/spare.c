/* spare.c: works and jobs that ended, for the next ones of their communicator. */
#include <string.h>

#include "base/host_malloc.h"
#include "base/life.h"
#include "comm/comm.h"

static void free_work(hal_comm_work_t *work) {
  hal_event_destroy(work->end);
  hal_free(work);
}

static void free_job(hal_comm_job_t *job) {
  hal_event_destroy(job->ready);
  hal_free(job->arrays);
  hal_free(job);
}

hal_comm_work_t *hal_comm_spare_take_work(hal_comm_t *comm) {
  pthread_mutex_lock(&comm->lock);
  hal_comm_work_t *const work = comm->spare.works;
  if (work) {
    comm->spare.works = work->watched_next;
    comm->spare.work_count--;
  }
  pthread_mutex_unlock(&comm->lock);
  if (!work) return NULL;
  hal_event_t *const end = work->end;
  memset(work, 0, offsetof(hal_comm_work_t, failure.message));
  work->end = end;
  return work;
}

hal_comm_job_t *hal_comm_spare_take_job(hal_comm_t *comm) {
  pthread_mutex_lock(&comm->lock);
  hal_comm_job_t *const job = comm->spare.jobs;
  if (job) {
    comm->spare.jobs = job->next;
    comm->spare.job_count--;
  }
  pthread_mutex_unlock(&comm->lock);
  if (!job) return NULL;
  hal_event_t *const ready = job->ready;
  memset(job, 0, sizeof *job + sizeof *job->calls);
  job->ready = ready;
  job->count = 1;
  return job;
}

/* In a forked child a thread of the parent may hold the lock. */
void hal_comm_spare_put_work(hal_comm_t *comm, hal_comm_work_t *work) {
  int is_kept = 0;
  if (!hal_life_ended()) {
    pthread_mutex_lock(&comm->lock);
    is_kept = comm->spare.work_count < HAL_COMM_SPARE;
    if (is_kept) {
      work->watched_next = comm->spare.works;
      comm->spare.works = work;
      comm->spare.work_count++;
    }
    pthread_mutex_unlock(&comm->lock);
  }
  if (!is_kept) free_work(work);
}

void hal_comm_spare_put_job(hal_comm_t *comm, hal_comm_job_t *job) {
  int is_kept = 0;
  if (!hal_life_ended() && job->count == 1 && !job->arrays && job->ready) {
    pthread_mutex_lock(&comm->lock);
    is_kept = comm->spare.job_count < HAL_COMM_SPARE;
    if (is_kept) {
      job->next = comm->spare.jobs;
      comm->spare.jobs = job;
      comm->spare.job_count++;
    }
    pthread_mutex_unlock(&comm->lock);
  }
  if (!is_kept) free_job(job);
}

void hal_comm_spare_destroy(hal_comm_t *comm) {
  for (hal_comm_work_t *work = comm->spare.works, *next; work; work = next) {
    next = work->watched_next;
    free_work(work);
  }
  for (hal_comm_job_t *job = comm->spare.jobs, *next; job; job = next) {
    next = job->next;
    free_job(job);
  }
}
