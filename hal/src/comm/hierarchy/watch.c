/* watch.c: see watch.h. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "comm/hierarchy/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/thread.h"
#include "comm/hierarchy/internal.h"

static const int64_t look_ns = 200 * 1000 * 1000; /* between two looks; longer with many ranks */
static const int64_t look_rank_ns = 500 * 1000;
static const int64_t waiting_ns = 20 * 1000 * 1000; /* between two looks while a thread waits for a result */
static const int64_t glance_ns = 1000 * 1000;
static const int64_t end_ns = 1000 * 1000 * 1000;
static const int64_t queried_ns = 1000 * 1000 * 1000; /* for which a query is valid */
static const int64_t publish_ns = 300 * 1000 * 1000;

/* ---- the thread ---- */

/* The tasks of one look, read under the lock. */
typedef struct task_s {
  int publishes, looks, has_waiters, reports;
  hal_hier_words_t words;
} task_t;

static int is_queried(const hal_hier_watch_t *watch) {
  return watch->queried_ns && hal_clock_ns() - watch->queried_ns < queried_ns;
}

static task_t next_task(hal_hier_watch_t *watch) {
  task_t task = {.publishes = watch->publishes, .has_waiters = watch->waiters > 0};
  const int is_late = watch->began_ns && hal_clock_ns() - watch->began_ns >= look_ns / 2;
  task.looks = task.has_waiters || watch->messages_running || is_late || is_queried(watch);
  task.reports = task.has_waiters && !watch->reported;
  if (task.publishes) task.words = watch->words;
  return task;
}

static void key_of(int32_t host, char *key, size_t size) { snprintf(key, size, "present/%d", (int)host); }

static void report(const hal_hier_watch_t *watch) {
  const uint32_t present = 1;
  char key[32];
  key_of(watch->host, key, sizeof key);
  (void)hal_hier_store_set(&watch->store, key, &present, sizeof present); /* on failure the other hosts do not see it */
}

/* Reads which hosts have reported. Only this thread writes `present`. */
static void look_for_hosts(hal_hier_watch_t *watch) {
  for (int32_t host = 0; host < watch->hosts; host++) {
    char key[32];
    uint32_t value;
    int is_known;
    pthread_mutex_lock(&watch->lock);
    is_known = watch->present[host];
    pthread_mutex_unlock(&watch->lock);
    key_of(host, key, sizeof key);
    if (is_known || !hal_hier_store_look(&watch->store, key, glance_ns, &value, sizeof value)) continue;
    pthread_mutex_lock(&watch->lock);
    watch->present[host] = 1;
    pthread_mutex_unlock(&watch->lock);
  }
}

/* Ends the transport's calls with the failure of another rank. The caller holds the lock, which is released
 * meanwhile. */
static void adopt(hal_hier_watch_t *watch, const hal_hier_words_t *words) {
  hal_hier_t *const hier = watch->hier;
  if (!hier || atomic_load(&hier->failed)) return;
  watch->adopts = 1;
  pthread_mutex_unlock(&watch->lock);
  hal_hier_adopt(hier, words);
  pthread_mutex_lock(&watch->lock);
  watch->adopts = 0;
}

/* The caller holds the lock, which is released while the store is used. */
static void look(hal_hier_watch_t *watch) {
  const task_t task = next_task(watch);
  hal_hier_words_t words;
  pthread_mutex_unlock(&watch->lock);
  if (task.publishes) hal_hier_store_fail(&watch->store, task.words.code, task.words.text);
  if (task.reports) report(watch);
  const int found = task.looks && !task.publishes && hal_hier_store_failed(&watch->store, &words);
  if (!found && task.has_waiters) look_for_hosts(watch);
  pthread_mutex_lock(&watch->lock);
  if (task.publishes) watch->publishes = 0;
  if (task.reports) watch->reported = 1;
  if (found) adopt(watch, &words);
  pthread_cond_broadcast(&watch->done);
}

static int has_work(const hal_hier_watch_t *watch) {
  const int is_failed = !watch->hier || atomic_load(&watch->hier->failed);
  return watch->publishes ||
         (!is_failed && (watch->messages_running || watch->began_ns || watch->waiters || is_queried(watch)));
}

/* Waits until a call runs, and then for a while. */
static void wait_to_look(hal_hier_watch_t *watch) {
  while (!watch->ending && !has_work(watch)) {
    watch->sleeps = 1;
    pthread_cond_wait(&watch->changed, &watch->lock);
    watch->sleeps = 0;
  }
  const struct timespec next =
      hal_comm_deadline(watch->waiters ? waiting_ns : look_ns + look_rank_ns * (int64_t)watch->ranks);
  int error = 0;
  const int waiters = watch->waiters;
  while (!watch->ending && !watch->publishes && watch->waiters <= waiters && error != ETIMEDOUT)
    error = pthread_cond_timedwait(&watch->changed, &watch->lock, &next);
}

static void release(hal_hier_watch_t *watch) {
  if (atomic_fetch_sub(&watch->references, 1) != 1) return;
  if (watch->release) watch->release(watch->context);
  pthread_cond_destroy(&watch->done);
  pthread_cond_destroy(&watch->changed);
  pthread_mutex_destroy(&watch->lock);
  hal_free(watch->present);
  hal_free(watch);
}

static void *watch_main(void *argument) {
  hal_hier_watch_t *const watch = argument;
  pthread_setname_np(pthread_self(), "hal-comm-watch");
  pthread_mutex_lock(&watch->lock);
  while (!watch->ending || watch->publishes) {
    if (!watch->publishes) wait_to_look(watch);
    look(watch);
  }
  watch->ended = 1;
  pthread_cond_broadcast(&watch->done);
  pthread_mutex_unlock(&watch->lock);
  release(watch);
  return NULL;
}

/* ---- start and end ---- */

hal_hier_watch_t *hal_hier_watch_create(const hal_hier_store_t *store, void (*release_store)(void *), void *context) {
  hal_hier_watch_t *const watch = hal_calloc(1, sizeof *watch);
  pthread_condattr_t attributes;
  if (!watch) return NULL;
  atomic_init(&watch->references, 1);
  watch->store = *store;
  watch->release = release_store;
  watch->context = context;
  pthread_mutex_init(&watch->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&watch->changed, &attributes);
  pthread_cond_init(&watch->done, &attributes);
  pthread_condattr_destroy(&attributes);
  return watch;
}

hal_status_t hal_hier_watch_start(hal_hier_watch_t *watch, hal_hier_t *hier) {
  watch->hosts = hier->at.hosts, watch->host = hier->at.host, watch->ranks = hier->at.size;
  watch->present = hal_calloc((size_t)watch->hosts, sizeof *watch->present);
  if (!watch->present) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %d hosts", watch->hosts);
  watch->hier = hier;
  atomic_fetch_add(&watch->references, 1);
  const int error = hal_thread_start(&watch->thread, watch_main, watch);
  watch->started = !error;
  if (!error) return HAL_OK;
  atomic_fetch_sub(&watch->references, 1);
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "cannot start a thread for collectives: %s", strerror(error));
}

void hal_hier_watch_end(hal_hier_watch_t *watch) {
  const struct timespec limit = hal_comm_deadline(end_ns);
  int error = 0;
  pthread_mutex_lock(&watch->lock);
  watch->ending = 1;
  watch->hier = NULL;
  pthread_cond_broadcast(&watch->changed);
  while (watch->adopts) pthread_cond_wait(&watch->done, &watch->lock);
  while (watch->started && !watch->ended && error != ETIMEDOUT)
    error = pthread_cond_timedwait(&watch->done, &watch->lock, &limit);
  const int joins = watch->started && watch->ended, leaves = watch->started && !watch->ended;
  pthread_mutex_unlock(&watch->lock);
  if (joins) pthread_join(watch->thread, NULL);
  if (leaves) pthread_detach(watch->thread);
  release(watch);
}

/* ---- requests of other threads ---- */

void hal_hier_watch_run(hal_hier_watch_t *watch, int is_message, int begins) {
  pthread_mutex_lock(&watch->lock);
  if (is_message) watch->messages_running += begins ? 1 : -1;
  if (!is_message) watch->began_ns = begins ? hal_clock_ns() : 0;
  if (begins && watch->sleeps) pthread_cond_signal(&watch->changed);
  pthread_mutex_unlock(&watch->lock);
}

void hal_hier_watch_publish(hal_hier_watch_t *watch, const hal_hier_words_t *words) {
  watch->words = *words;
  watch->publishes = 1;
  pthread_cond_broadcast(&watch->changed);
}

void hal_hier_watch_flush(hal_hier_watch_t *watch) {
  const struct timespec limit = hal_comm_deadline(publish_ns);
  int error = 0;
  pthread_mutex_lock(&watch->lock);
  while (watch->publishes && error != ETIMEDOUT) error = pthread_cond_timedwait(&watch->done, &watch->lock, &limit);
  pthread_mutex_unlock(&watch->lock);
}

int hal_hier_watch_wait(hal_hier_watch_t *watch, int64_t time_ns) {
  const struct timespec limit = hal_comm_deadline(time_ns);
  int error = 0;
  pthread_mutex_lock(&watch->lock);
  watch->waiters++;
  pthread_cond_broadcast(&watch->changed);
  while (!atomic_load(&watch->hier->failed) && error != ETIMEDOUT)
    error = pthread_cond_timedwait(&watch->done, &watch->lock, &limit);
  watch->waiters--;
  const int has_failed = atomic_load(&watch->hier->failed);
  pthread_mutex_unlock(&watch->lock);
  return has_failed;
}

void hal_hier_watch_query(hal_hier_watch_t *watch) {
  pthread_mutex_lock(&watch->lock);
  watch->queried_ns = hal_clock_ns();
  if (watch->sleeps) pthread_cond_signal(&watch->changed);
  pthread_mutex_unlock(&watch->lock);
}

int hal_hier_watch_sees(hal_hier_watch_t *watch, int32_t host) {
  pthread_mutex_lock(&watch->lock);
  const int is_present = watch->present[host];
  pthread_mutex_unlock(&watch->lock);
  return is_present;
}
