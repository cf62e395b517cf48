/* idle.c: queues the groups of streams whose program pauses (HAL_LAZY_GROUPS), so that the device does not wait for
 * deferred work while the program does something else. One thread per process, which exists while such streams do, and
 * sleeps while no group begins. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/life.h"
#include "base/thread.h"
#include "lazy/lazy.h"

enum {
  TICK_NS = 1000000, /* a group without a new command between two ticks is queued if the device is idle */
  PATIENCE = 8,      /* ticks after which it is queued in any case: a plugin may have no query */
  QUIET = 32         /* ticks without a group after which the thread sleeps */
};

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* to the thread: wake; to others: a flush has ended */
  hal_lazy_t *first;
  const hal_lazy_t *busy; /* the thread flushes it without the lock */
  uint32_t round;
  int running, ending;       /* running: there is a thread; ending: the process ends */
  atomic_int asleep, begins; /* begins: a group has begun since the thread last looked */
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Returns whether the deferred group has no more commands than at the last tick. Counts such ticks. */
static int pauses(hal_lazy_t *lazy) {
  hal_lazy_watched_t *const watched = &lazy->watched;
  hal_program_lock(&lazy->program);
  const uint64_t id = lazy->program.front->id;
  const uint32_t count = lazy->program.list.command_count;
  hal_program_unlock(&lazy->program);
  const int same = count && id == watched->id && count == watched->commands;
  watched->id = id;
  watched->commands = count;
  watched->ticks = same ? watched->ticks + 1 : 0;
  return same;
}

static void look_at(hal_lazy_t *lazy) {
  if (!pauses(lazy) || !hal_device_is_alive(lazy->program.device)) return;
  if (lazy->watched.ticks < PATIENCE && hal_direct_poll(&lazy->program.stream->direct) == HAL_NOT_READY) return;
  hal_lazy_flush_quietly(lazy, "the device is idle");
}

/* Returns a queue that this round has not seen; NULL = there is none. The lock is held. */
static hal_lazy_t *next_of_round(void) {
  hal_lazy_t *lazy = watcher.first;
  while (lazy && lazy->watched.round == watcher.round) lazy = lazy->watched.next;
  return lazy;
}

/* Looks at each queue. Returns whether one defers a group. The lock is held, except during a flush. */
static int tick(void) {
  int any = 0;
  watcher.round++;
  for (hal_lazy_t *lazy; !watcher.ending && (lazy = next_of_round());) {
    lazy->watched.round = watcher.round;
    if (!hal_lazy_is_open(lazy)) continue;
    any = 1;
    watcher.busy = lazy;
    pthread_mutex_unlock(&watcher.lock);
    look_at(lazy);
    pthread_mutex_lock(&watcher.lock);
    watcher.busy = NULL;
    pthread_cond_broadcast(&watcher.changed);
  }
  return any;
}

/* Sleeps until a group begins. The lock is held. hal_lazy_idle_notice stores and loads in the opposite order. */
static void sleep_until_begun(void) {
  atomic_store(&watcher.asleep, 1);
  while (!atomic_exchange(&watcher.begins, 0) && watcher.first && !watcher.ending)
    pthread_cond_wait(&watcher.changed, &watcher.lock);
  atomic_store(&watcher.asleep, 0);
}

static void *run(void *nothing) {
  const struct timespec moment = {.tv_nsec = TICK_NS};
  int quiet = 0;
  pthread_mutex_lock(&watcher.lock);
  while (watcher.first && !watcher.ending) {
    if (quiet == QUIET) {
      sleep_until_begun();
      quiet = 0;
    }
    quiet = tick() ? 0 : quiet + 1;
    pthread_mutex_unlock(&watcher.lock);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&watcher.lock);
  }
  watcher.running = 0;
  pthread_mutex_unlock(&watcher.lock);
  return nothing;
}

/* At process exit: waits for a flush that is running. */
static void end(void) {
  pthread_mutex_lock(&watcher.lock);
  watcher.ending = 1;
  pthread_cond_broadcast(&watcher.changed);
  while (watcher.busy) pthread_cond_wait(&watcher.changed, &watcher.lock);
  pthread_mutex_unlock(&watcher.lock);
}

static void watch_end(void) { atexit(end); }

/* Starts the thread. Without it, groups are queued later. The lock is held. */
static void start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_end);
  watcher.running = hal_thread_start(NULL, run, NULL) == 0;
}

void hal_lazy_idle_watch(hal_lazy_t *lazy) {
  if (!(lazy->program.device->info.flags & HAL_DEVICE_ASYNC)) return; /* the program's thread would run it */
  pthread_mutex_lock(&watcher.lock);
  lazy->watched = (hal_lazy_watched_t){.next = watcher.first, .round = watcher.round};
  watcher.first = lazy;
  if (!watcher.running && !watcher.ending) start();
  pthread_mutex_unlock(&watcher.lock);
}

void hal_lazy_idle_forget(hal_lazy_t *lazy) {
  if (!lazy->groups) return;
  pthread_mutex_lock(&watcher.lock);
  for (hal_lazy_t **link = &watcher.first; *link; link = &(*link)->watched.next) {
    if (*link != lazy) continue;
    *link = lazy->watched.next;
    break;
  }
  while (watcher.busy == lazy) pthread_cond_wait(&watcher.changed, &watcher.lock);
  pthread_cond_broadcast(&watcher.changed); /* the thread ends with the last queue */
  pthread_mutex_unlock(&watcher.lock);
}

void hal_lazy_idle_close(void) {
  pthread_mutex_lock(&watcher.lock);
  watcher.first = NULL;
  while (watcher.busy) pthread_cond_wait(&watcher.changed, &watcher.lock);
  pthread_cond_broadcast(&watcher.changed); /* the thread ends */
  pthread_mutex_unlock(&watcher.lock);
}

void hal_lazy_idle_notice(void) {
  atomic_store(&watcher.begins, 1);
  if (!atomic_load(&watcher.asleep)) return;
  pthread_mutex_lock(&watcher.lock);
  pthread_cond_broadcast(&watcher.changed);
  pthread_mutex_unlock(&watcher.lock);
}

void hal_lazy_after_fork(void) {
  pthread_mutex_init(&watcher.lock, NULL);
  pthread_cond_init(&watcher.changed, NULL);
  watcher.first = NULL; /* of the parent */
  watcher.busy = NULL;
  watcher.running = 0;
  atomic_store(&watcher.asleep, 0);
}
