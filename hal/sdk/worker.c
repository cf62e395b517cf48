/* worker.c: a thread with a queue (hal/plugin_worker.h). */
#define _POSIX_C_SOURCE 200809L
#include "hal/plugin_worker.h"

#include <pthread.h>

/* A queue accepts this many items before a thread that queues more must wait, as CUDA's streams do at 1024 launches: a
 * thread that queues without end must not leave much work to the thread that ends the process. */
enum { DEPTH = 1024 };

struct hal_worker_s {
  pthread_t thread;
  pthread_mutex_t lock; /* for all fields below */
  pthread_cond_t wake;  /* of the thread */
  pthread_cond_t ended; /* of threads that wait for an item */
  pthread_cond_t room;  /* of threads that wait to queue an item */
  hal_worker_item_t *first, **last;
  uint64_t queued, done;
  int waiters, pushers, stop;
  int is_held; /* another thread runs an item, between hal_worker_begin and hal_worker_end */
};

/* The thread serves a worker. It never waits to queue an item: that worker may be waiting for this one. */
static _Thread_local int is_worker;

/* The caller holds the lock. */
static void count_done(hal_worker_t *worker) {
  worker->done++;
  if (worker->waiters) pthread_cond_broadcast(&worker->ended);
  if (worker->pushers && worker->queued - worker->done <= DEPTH / 2) pthread_cond_broadcast(&worker->room);
}

static void *serve(void *argument) {
  hal_worker_t *const worker = argument;
  is_worker = 1;
  pthread_mutex_lock(&worker->lock);
  for (;;) {
    while (worker->is_held || (!worker->first && !worker->stop)) pthread_cond_wait(&worker->wake, &worker->lock);
    hal_worker_item_t *const item = worker->first;
    if (!item) break; /* to stop, and all items are done */
    worker->first = item->next;
    if (!worker->first) worker->last = &worker->first;
    pthread_mutex_unlock(&worker->lock);
    item->run(item); /* which frees it */
    pthread_mutex_lock(&worker->lock);
    count_done(worker);
  }
  pthread_mutex_unlock(&worker->lock);
  return NULL;
}

static void release(hal_worker_t *worker) {
  pthread_cond_destroy(&worker->room);
  pthread_cond_destroy(&worker->ended);
  pthread_cond_destroy(&worker->wake);
  pthread_mutex_destroy(&worker->lock);
  hal_host->mem_free(worker);
}

hal_status_t hal_worker_start(hal_worker_t **out_worker) {
  hal_worker_t *const worker = hal_host->mem_alloc(sizeof *worker, _Alignof(hal_worker_t));
  if (!worker)
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "no host memory for a thread's queue; free some memory");
  *worker = (hal_worker_t){.last = NULL};
  worker->last = &worker->first;
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->wake, NULL);
  pthread_cond_init(&worker->ended, NULL);
  pthread_cond_init(&worker->room, NULL);
  const int code = pthread_create(&worker->thread, NULL, serve, worker);
  if (code) {
    release(worker);
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, code,
                               "the system cannot create a thread for a queue; end some threads");
  }
  *out_worker = worker;
  return HAL_OK;
}

/* Waits until half of the queue is done, because sleeping and waking for each item is slow. The caller holds the lock.
 */
static void wait_for_room(hal_worker_t *worker) {
  worker->pushers++;
  while (worker->queued - worker->done > DEPTH / 2) pthread_cond_wait(&worker->room, &worker->lock);
  worker->pushers--;
}

uint64_t hal_worker_push(hal_worker_t *worker, hal_worker_item_t *item) {
  item->next = NULL;
  pthread_mutex_lock(&worker->lock);
  if (__builtin_expect(worker->queued - worker->done >= DEPTH, 0) && !is_worker) wait_for_room(worker);
  *worker->last = item;
  worker->last = &item->next;
  const uint64_t number = ++worker->queued;
  if (!worker->is_held) pthread_cond_signal(&worker->wake); /* else hal_worker_end wakes the thread */
  pthread_mutex_unlock(&worker->lock);
  return number;
}

uint64_t hal_worker_begin(hal_worker_t *worker) {
  pthread_mutex_lock(&worker->lock);
  const int is_idle = worker->queued == worker->done;
  const uint64_t number = is_idle ? ++worker->queued : 0;
  if (is_idle) worker->is_held = 1;
  pthread_mutex_unlock(&worker->lock);
  return number;
}

void hal_worker_end(hal_worker_t *worker) {
  pthread_mutex_lock(&worker->lock);
  worker->is_held = 0;
  count_done(worker);
  if (worker->first) pthread_cond_signal(&worker->wake);
  pthread_mutex_unlock(&worker->lock);
}

uint64_t hal_worker_done(hal_worker_t *worker) {
  pthread_mutex_lock(&worker->lock);
  const uint64_t number = worker->done;
  pthread_mutex_unlock(&worker->lock);
  return number;
}

uint64_t hal_worker_queued(hal_worker_t *worker) {
  pthread_mutex_lock(&worker->lock);
  const uint64_t number = worker->queued;
  pthread_mutex_unlock(&worker->lock);
  return number;
}

void hal_worker_wait(hal_worker_t *worker, uint64_t number) {
  pthread_mutex_lock(&worker->lock);
  worker->waiters++;
  while (worker->done < number) pthread_cond_wait(&worker->ended, &worker->lock);
  worker->waiters--;
  pthread_mutex_unlock(&worker->lock);
}

void hal_worker_stop(hal_worker_t *worker) {
  if (!worker) return;
  pthread_mutex_lock(&worker->lock);
  worker->stop = 1;
  pthread_cond_signal(&worker->wake);
  pthread_mutex_unlock(&worker->lock);
  pthread_join(worker->thread, NULL);
  release(worker);
}
