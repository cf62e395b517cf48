/* watch.c: events of devices, delivered by a thread (hal/plugin_watch.h). */
#define _POSIX_C_SOURCE 200809L
#include "hal/plugin_watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static int is_known(int32_t device) { return device >= 0 && device < HAL_WATCH_DEVICES; }

/* Removes the oldest event and calls its watcher, with the lock released meanwhile. */
static void deliver(hal_watch_t *watch) {
  const hal_watched_t taken = watch->queue[watch->first];
  const hal_device_event_fn_t fn = watch->watchers[taken.device].fn;
  void *const user_data = watch->watchers[taken.device].user_data;
  const int wanted = fn && (watch->watchers[taken.device].kinds & HAL_DEVICE_EVENT_BIT(taken.kind));
  watch->first = (watch->first + 1) % HAL_WATCH_QUEUE;
  watch->count--;
  if (!wanted) return; /* its watcher was replaced meanwhile */
  const hal_device_event_t event = {.struct_size = HAL_STRUCT_SIZE(hal_device_event_t, message),
                                    .kind = taken.kind,
                                    .native_code = taken.native_code,
                                    .message = taken.message};
  watch->busy = 1 + taken.device;
  pthread_mutex_unlock(&watch->lock);
  fn(user_data, &event);
  pthread_mutex_lock(&watch->lock);
  watch->busy = 0;
  pthread_cond_broadcast(&watch->changed);
}

static void *serve(void *argument) {
  hal_watch_t *const watch = argument;
  pthread_mutex_lock(&watch->lock);
  while (!watch->stop) {
    if (watch->count) {
      deliver(watch);
    } else if (watch->listen) {
      pthread_mutex_unlock(&watch->lock);
      watch->listen();
      pthread_mutex_lock(&watch->lock);
    } else {
      pthread_cond_wait(&watch->changed, &watch->lock);
    }
  }
  pthread_mutex_unlock(&watch->lock);
  return NULL;
}

/* The thread blocks signals, which are for the program's own threads. The caller holds the lock. */
static hal_status_t start(hal_watch_t *watch) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int code = pthread_create(&watch->thread, NULL, serve, watch);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (code)
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, code,
                               "device_watch: the system cannot create a thread to wait for events; end some threads");
  watch->started = 1;
  return HAL_OK;
}

/* Ends the thread if nothing is watched any more. The caller holds the lock, which is released meanwhile. */
static void stop_when_idle(hal_watch_t *watch) {
  if (!watch->started || watch->watched) return;
  const pthread_t thread = watch->thread;
  watch->stop = 1;
  pthread_cond_broadcast(&watch->changed);
  pthread_mutex_unlock(&watch->lock);
  pthread_join(thread, NULL);
  pthread_mutex_lock(&watch->lock);
  watch->started = watch->stop = 0;
  watch->first = watch->count = 0;
  pthread_cond_broadcast(&watch->changed);
}

hal_status_t hal_watch_set(hal_watch_t *watch, int32_t device, uint32_t kinds, hal_device_event_fn_t fn,
                           void *user_data) {
  hal_status_t status = HAL_OK;
  if (!is_known(device))
    return hal_host->error_set(HAL_OUT_OF_RANGE, 0, "device_watch: only the first 64 devices can be watched");
  pthread_mutex_lock(&watch->lock);
  while (watch->stop) pthread_cond_wait(&watch->changed, &watch->lock); /* another thread ends the last watch */
  const int was_set = watch->watchers[device].fn != NULL;
  if (fn && !watch->started) status = start(watch);
  if (!status) {
    watch->watchers[device].fn = fn;
    watch->watchers[device].user_data = user_data;
    watch->watchers[device].kinds = fn ? kinds : 0;
    watch->watched += (uint32_t)(fn != NULL) - (uint32_t)was_set;
    while (watch->busy == 1 + device) pthread_cond_wait(&watch->changed, &watch->lock);
    stop_when_idle(watch);
  }
  pthread_mutex_unlock(&watch->lock);
  return status;
}

void hal_watch_report(hal_watch_t *watch, int32_t device, uint32_t kind, int64_t native_code, const char *message) {
  int first_drop = 0;
  if (!is_known(device)) return;
  pthread_mutex_lock(&watch->lock);
  const int wanted = (watch->watchers[device].kinds & HAL_DEVICE_EVENT_BIT(kind)) != 0;
  if (wanted && watch->count < HAL_WATCH_QUEUE) {
    hal_watched_t *const event = &watch->queue[(watch->first + watch->count++) % HAL_WATCH_QUEUE];
    event->device = device, event->kind = kind, event->native_code = native_code;
    snprintf(event->message, sizeof event->message, "%s", message ? message : "");
    pthread_cond_broadcast(&watch->changed);
  } else if (wanted) {
    first_drop = !watch->dropped++;
  }
  pthread_mutex_unlock(&watch->lock);
  if (first_drop)
    hal_host->log(HAL_LOG_WARNING, "device_watch: events arrive faster than they are delivered; some are dropped");
}

uint32_t hal_watch_kinds(hal_watch_t *watch, int32_t device) {
  if (!is_known(device)) return 0;
  pthread_mutex_lock(&watch->lock);
  const uint32_t kinds = watch->watchers[device].kinds;
  pthread_mutex_unlock(&watch->lock);
  return kinds;
}

void hal_watch_after_fork(hal_watch_t *watch) {
  pthread_mutex_init(&watch->lock, NULL);
  pthread_cond_init(&watch->changed, NULL);
  memset(watch->watchers, 0, sizeof watch->watchers);
  watch->watched = watch->first = watch->count = 0;
  watch->busy = watch->started = watch->stop = 0;
}
