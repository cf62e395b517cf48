/* pool.c: the workers, which are threads of the process: rules 1, 4, 5 and 6 of schedule.h. The pool starts with the
 * first item, and again after a fork.
 *
 * One lock guards everything except the threads' own words, so that a worker that goes to sleep and a thread that adds
 * work and looks for a searching worker exclude each other. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "schedule.h"

typedef struct worker_s {
  alignas(FAKE_CACHE_LINE) atomic_uint woken; /* futex */
  struct worker_s *next_asleep;
  uint32_t asleep; /* guarded by the pool's lock: whether it is in the list of sleeping workers */
  uint32_t index;
} worker_t;

typedef struct stream_list_s {
  hal_plugin_stream_t *first, *last;
} stream_list_t;

static struct {
  fake_lock_t lock, start_lock;
  atomic_int started;
  uint32_t workers;      /* threads that were started */
  atomic_uint alive;     /* threads that have not ended */
  atomic_uint searching; /* workers that are awake and have no work; changed under the lock */
  int stopping;
  worker_t *asleep; /* the last one first, because its caches are warm */
  worker_t *poller; /* the one of them that sleeps with a timeout, or NULL */
  fake_parallel_t *launches;
  stream_list_t urgent, normal;
  worker_t worker[FAKE_MAX_THREADS];
} pool;

atomic_uint fake_pool_work;

/* ---- waking, with the lock held unless stated otherwise --------------------------------------------------------- */

static void add_work(uint32_t count) { atomic_fetch_add_explicit(&fake_pool_work, count, memory_order_relaxed); }
static void remove_work(uint32_t count) { atomic_fetch_sub_explicit(&fake_pool_work, count, memory_order_relaxed); }
static int has_work(void) { return atomic_load_explicit(&fake_pool_work, memory_order_relaxed) != 0; }

/* Removes a worker from the list of sleeping ones. */
static void leave_asleep(worker_t *worker) {
  worker_t **link = &pool.asleep;
  while (*link != worker) link = &(*link)->next_asleep;
  *link = worker->next_asleep;
  worker->asleep = 0;
  if (pool.poller == worker) pool.poller = NULL;
}

/* Selects a sleeping worker to wake: there is work, and no worker searches, or polls if that is sufficient. */
static worker_t *take_asleep(int wake) {
  worker_t *worker = pool.asleep;
  if (!worker || pool.searching || (!wake && pool.poller) || !has_work()) return NULL;
  leave_asleep(worker);
  return worker;
}

/* Called without the lock. */
static void wake_worker(worker_t *worker) {
  atomic_store_explicit(&worker->woken, 1, memory_order_release);
  fake_futex_wake(&worker->woken, 1);
}

static void unlock_and_wake(int wake) {
  worker_t *const worker = take_asleep(wake);
  fake_unlock(&pool.lock);
  if (worker) wake_worker(worker);
}

void fake_pool_wake(void) {
  fake_lock(&pool.lock);
  unlock_and_wake(1);
}

int fake_pool_is_searching(void) { return atomic_load_explicit(&pool.searching, memory_order_relaxed) != 0; }

void fake_pool_begin_search(void) {
  fake_lock(&pool.lock);
  pool.searching++;
  fake_unlock(&pool.lock);
}

void fake_pool_end_search(void) {
  fake_lock(&pool.lock);
  pool.searching--;
  unlock_and_wake(1);
}

/* ---- work ------------------------------------------------------------------------------------------------------- */

int fake_pool_push(hal_plugin_stream_t *stream, int wake) {
  if (!fake_pool_start()) return 0;
  stream_list_t *const list = stream->priority < 0 ? &pool.urgent : &pool.normal;
  fake_lock(&pool.lock);
  stream->ready_next = NULL;
  if (list->last)
    list->last->ready_next = stream;
  else
    list->first = stream;
  list->last = stream;
  add_work(1);
  unlock_and_wake(wake);
  return 1;
}

static hal_plugin_stream_t *pop_stream(stream_list_t *list) {
  hal_plugin_stream_t *const stream = list->first;
  if (!stream) return NULL;
  list->first = stream->ready_next;
  if (!list->first) list->last = NULL;
  remove_work(1);
  return stream;
}

void fake_pool_offer(fake_parallel_t *launch) {
  fake_lock(&pool.lock);
  launch->next = pool.launches;
  pool.launches = launch;
  add_work(launch->helpers_wanted);
  unlock_and_wake(1);
}

void fake_pool_withdraw(fake_parallel_t *launch) {
  fake_lock(&pool.lock);
  fake_parallel_t **link = &pool.launches;
  while (*link != launch) link = &(*link)->next;
  *link = launch->next;
  remove_work(launch->helpers_wanted);
  fake_unlock(&pool.lock);
}

/* Joins a launch that needs helpers, of any stream or of `owner`. */
static fake_parallel_t *join_launch(const hal_plugin_stream_t *owner) {
  for (fake_parallel_t *launch = pool.launches; launch; launch = launch->next) {
    if (!launch->helpers_wanted || (owner && launch->owner != owner)) continue;
    launch->helpers_wanted--;
    remove_work(1);
    atomic_fetch_add_explicit(&launch->helpers, 1, memory_order_relaxed);
    return launch;
  }
  return NULL;
}

int fake_pool_help(const hal_plugin_stream_t *owner) {
  if (!has_work()) return 0;
  fake_lock(&pool.lock);
  fake_parallel_t *const launch = join_launch(owner);
  fake_unlock(&pool.lock);
  if (launch) fake_parallel_help(launch);
  return launch != NULL;
}

/* ---- workers ---------------------------------------------------------------------------------------------------- */

/* Rule 1. Called with the lock; if there is work, unlocks, does it, and locks again. Returns whether there was work;
 * *out_searched: the worker has searched since without success. */
static int do_work(int *out_searched) {
  fake_parallel_t *const launch = join_launch(NULL);
  hal_plugin_stream_t *stream = launch ? NULL : pop_stream(&pool.urgent);
  if (!launch && !stream) stream = pop_stream(&pool.normal);
  if (!launch && !stream) return 0;
  unlock_and_wake(1);
  *out_searched = 0;
  if (launch) {
    fake_parallel_help(launch);
  } else {
    *out_searched = fake_stream_serve(stream);
    fake_stream_unref(stream); /* the list's */
  }
  fake_lock(&pool.lock);
  return 1;
}

/* Rule 4. Called with the lock, which it releases meanwhile. */
static void search(void) {
  pool.searching++;
  fake_unlock(&pool.lock);
  FAKE_SPIN_FOR(fake.settings.async ? FAKE_SPIN_NS : FAKE_HELPER_SPIN_NS, has_work());
  fake_lock(&pool.lock);
  pool.searching--;
}

static int is_woken(worker_t *self) { return atomic_load_explicit(&self->woken, memory_order_acquire) != 0; }

/* Rule 6: the poller's sleep, without the lock. It ends when the poller is woken, finds work, or finds none for a long
 * time. A poller that is still in the list of sleeping workers when it finds work removes itself. */
static void poll_for_work(worker_t *self) {
  int64_t left = FAKE_POLLS_NS;
  for (int64_t length = FAKE_POLL_NS; !is_woken(self);
       length = length < FAKE_LONGEST_POLL_NS ? length + length / 2 : length) {
    fake_futex_wait(&self->woken, 0, length);
    left -= length;
    if (left > 0 && !has_work()) continue;
    fake_lock(&pool.lock);
    const int work = has_work(), listed = (int)self->asleep; /* otherwise a thread has removed it, and wakes it */
    if (listed && work) leave_asleep(self);
    if (listed && left <= 0) pool.poller = NULL;
    fake_unlock(&pool.lock);
    if (listed && work) atomic_store_explicit(&self->woken, 1, memory_order_relaxed);
    if (work || left <= 0) return;
  }
}

/* Called with the lock, which it releases meanwhile. */
static void sleep_until_woken(worker_t *self) {
  const int polls = fake.settings.async && !pool.poller && !pool.stopping;
  atomic_store_explicit(&self->woken, 0, memory_order_relaxed);
  self->next_asleep = pool.asleep;
  self->asleep = 1;
  pool.asleep = self;
  if (polls) pool.poller = self;
  fake_unlock(&pool.lock);
  if (polls) poll_for_work(self);
  while (!is_woken(self)) fake_futex_wait(&self->woken, 0, -1);
  fake_lock(&pool.lock);
}

static void *worker_main(void *argument) {
  worker_t *const self = argument;
  char name[16];
  snprintf(name, sizeof name, "hal-fake-%u", (unsigned)self->index % 10000);
  pthread_setname_np(pthread_self(), name);
  int searched = 0; /* since the last work */
  fake_lock(&pool.lock);
  while (!pool.stopping) {
    if (do_work(&searched)) continue;
    const int enough_search = pool.searching && pool.searching * 2 >= fake.settings.threads;
    if (searched || enough_search) {
      sleep_until_woken(self);
      searched = 0;
    } else {
      search();
      searched = 1;
    }
  }
  fake_unlock(&pool.lock);
  atomic_fetch_sub_explicit(&pool.alive, 1, memory_order_release);
  return NULL;
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

/* Starts the threads. They block signals, which are for the program's own threads, except those of their own faults: a
 * handler (fault.c, a sanitizer's) does not run for a fault whose signal is blocked. */
static void start_threads(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  sigset_t all, old;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  /* not joined, because a process may end at any time */
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const uint32_t wanted = fake.settings.async ? fake.settings.threads : fake.settings.threads - 1;
  pool.workers = 0;
  while (pool.workers < wanted) {
    worker_t *worker = &pool.worker[pool.workers];
    pthread_t thread;
    worker->index = pool.workers;
    atomic_fetch_add_explicit(&pool.alive, 1, memory_order_relaxed);
    if (pthread_create(&thread, &attributes, worker_main, worker)) {
      atomic_fetch_sub_explicit(&pool.alive, 1, memory_order_relaxed);
      break;
    }
    pool.workers++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (pool.workers < wanted) {
    char message[160];
    snprintf(message, sizeof message,
             "fake: the system started only %u of %u worker threads; work continues with these", (unsigned)pool.workers,
             (unsigned)wanted);
    hal_host->log(HAL_LOG_WARNING, message);
  }
}

int fake_pool_start(void) {
  if (FAKE_UNLIKELY(!atomic_load_explicit(&pool.started, memory_order_acquire))) {
    fake_lock(&pool.start_lock);
    if (!atomic_load_explicit(&pool.started, memory_order_relaxed)) {
      start_threads();
      atomic_store_explicit(&pool.started, 1, memory_order_release);
    }
    fake_unlock(&pool.start_lock);
  }
  return pool.workers != 0;
}

/* Releases the references of a list that no worker serves any more. A thread that waits for a stream runs its work. */
static void release_streams(stream_list_t *list) {
  for (;;) {
    fake_lock(&pool.lock);
    hal_plugin_stream_t *const stream = pop_stream(list);
    fake_unlock(&pool.lock);
    if (!stream) return;
    fake_lock(&stream->lock);
    stream->listed = 0;
    fake_unlock(&stream->lock);
    fake_stream_unref(stream);
  }
}

void fake_pool_stop(void) {
  fake_lock(&pool.lock);
  pool.stopping = 1;
  worker_t *asleep = pool.asleep;
  pool.asleep = pool.poller = NULL;
  for (worker_t *worker = asleep; worker; worker = worker->next_asleep) worker->asleep = 0;
  fake_unlock(&pool.lock);
  while (asleep) {
    worker_t *const next = asleep->next_asleep;
    wake_worker(asleep);
    asleep = next;
  }
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < 1000 && atomic_load_explicit(&pool.alive, memory_order_acquire); i++) nanosleep(&moment, NULL);
  release_streams(&pool.urgent);
  release_streams(&pool.normal);
}

/* ---- fork: the child has none of the threads -------------------------------------------------------------------- */

void fake_pool_fork_prepare(void) {
  fake_lock(&pool.start_lock);
  fake_lock(&pool.lock);
}

void fake_pool_fork_parent(void) {
  fake_unlock(&pool.lock);
  fake_unlock(&pool.start_lock);
}

void fake_pool_fork_child(void) {
  pool.launches = NULL;
  pool.asleep = pool.poller = NULL;
  pool.urgent = pool.normal = (stream_list_t){NULL, NULL};
  pool.searching = 0;
  pool.workers = 0;
  atomic_store_explicit(&pool.alive, 0, memory_order_relaxed);
  atomic_store_explicit(&fake_pool_work, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.started, 0, memory_order_relaxed);
  fake_lock_reset(&pool.lock);
  fake_lock_reset(&pool.start_lock);
}
