/* worker.c: the thread that compiles chains: one in a process, of low priority, started when there is something to compile and ended when
 * there is no more. */
#define _GNU_SOURCE /* gettid */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "fusion/emit.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/status.h"
#include "op/launch.h"
#include "op/table.h"

/* Behind the threads that compute; not so far that one of them waits long for a lock of malloc's or the loader's. */
enum { NICER = 5 };

typedef struct job_s {
  struct job_s *next;
  hal_fuse_t *fuse;
  hal_fuse_plan_t *plan;
  char *text;
  char name[HAL_FUSE_NAME];
} job_t;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* a job has ended, or the thread has */
  job_t *first;
  const hal_fuse_t *busy; /* whose job is being done */
  int32_t cancelled;      /* 1 = nobody waits for that; atomic */
  int running, ending;    /* there is a thread; the process ends */
} worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void destroy(job_t *job) {
  hal_free(job->text);
  hal_free(job);
}

/* Says once for a device why its chains stay interpreted. That there is no compiler is nothing to warn of. */
static void give_up(hal_fuse_t *fuse, hal_status_t status) {
  if (atomic_exchange_explicit(&fuse->uncompiled, 1, memory_order_relaxed)) return;
  hal_log(status == HAL_UNIMPLEMENTED ? HAL_LOG_INFO : HAL_LOG_WARNING,
          "device %s: groups of operators of lazy work are not compiled, and run as before, with the same results: %s",
          fuse->device->label, hal_error_message());
}

static int is_cancelled(void) { return hal_is_cancelled(&worker.cancelled); }

/* Takes the lock of compilers unless the job is cancelled meanwhile: another thread's may run for long, or for ever. */
static int take(pthread_mutex_t *lock) {
  const struct timespec moment = {.tv_nsec = 5000000};
  while (pthread_mutex_trylock(lock)) {
    if (is_cancelled()) return 0;
    nanosleep(&moment, NULL);
  }
  return 1;
}

static void compile(const job_t *job) {
  hal_provider_t *const provider = &hal_op_table_of(job->fuse->device)->provider;
  pthread_mutex_t *const lock = hal_provider_own_lock(provider);
  hal_kernel_t *kernel = NULL;
  if (atomic_load_explicit(&job->fuse->uncompiled, memory_order_relaxed) || !take(lock)) return;
  const hal_status_t status = hal_provider_compile(provider, job->name, job->text, &kernel);
  pthread_mutex_unlock(lock);
  if (!status)
    atomic_store_explicit(&job->plan->compiled, hal_kernel_handle(kernel), memory_order_release);
  else if (!is_cancelled())
    give_up(job->fuse, status);
}

static void *run(void *nothing) {
  const id_t self = (id_t)gettid();
  setpriority(PRIO_PROCESS, self,
              getpriority(PRIO_PROCESS, self) + NICER); /* of this thread, and of the compilers that it starts */
  hal_provider_set_cancellation(&worker.cancelled);
  pthread_mutex_lock(&worker.lock);
  while (worker.first) {
    job_t *const job = worker.first;
    worker.first = job->next;
    worker.busy = job->fuse;
    __atomic_store_n(&worker.cancelled, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&worker.lock);
    compile(job);
    destroy(job);
    pthread_mutex_lock(&worker.lock);
    worker.busy = NULL;
    pthread_cond_broadcast(&worker.changed);
  }
  worker.running = 0;
  pthread_cond_broadcast(&worker.changed);
  pthread_mutex_unlock(&worker.lock);
  return nothing;
}

/* Forgets the jobs of a device, NULL = of all, and waits for the one that is being done, which is cancelled. The lock
 * is held. */
static void forget(const hal_fuse_t *fuse) {
  for (job_t **link = &worker.first; *link;) {
    job_t *const job = *link;
    if (fuse && job->fuse != fuse) {
      link = &job->next;
      continue;
    }
    *link = job->next;
    destroy(job);
  }
  while (worker.busy && (!fuse || worker.busy == fuse)) {
    __atomic_store_n(&worker.cancelled, 1, __ATOMIC_RELEASE);
    pthread_cond_wait(&worker.changed, &worker.lock);
  }
}

/* A process that ends abandons the compiler that runs, and waits for that: what it leaves has a place in the file system. */
static void end(void) {
  pthread_mutex_lock(&worker.lock);
  worker.ending = 1;
  forget(NULL);
  pthread_mutex_unlock(&worker.lock);
}

static void watch_end(void) { atexit(end); }

/* Starts the thread, which takes no signals: they belong to the program's own. The lock is held. */
static void start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old;
  pthread_once(&once, watch_end);
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  worker.running = pthread_create(&thread, &attributes, run, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
}

void hal_fuse_worker_push(hal_fuse_t *fuse, hal_fuse_plan_t *plan, const char *name, char *text) {
  job_t *const job = hal_calloc(1, sizeof *job);
  if (!job) {
    hal_free(text);
    return;
  }
  job->fuse = fuse;
  job->plan = plan;
  job->text = text;
  memcpy(job->name, name, strlen(name) + 1);
  pthread_mutex_lock(&worker.lock);
  job_t **link = &worker.first;
  while (*link) link = &(*link)->next;
  *link = job;
  if (!worker.running && !worker.ending) start();
  if (!worker.running) forget(NULL);
  pthread_mutex_unlock(&worker.lock);
}

void hal_fuse_worker_forget(const hal_fuse_t *fuse) {
  pthread_mutex_lock(&worker.lock);
  forget(fuse);
  pthread_mutex_unlock(&worker.lock);
}

void hal_fuse_worker_after_fork(void) {
  pthread_mutex_init(&worker.lock, NULL);
  pthread_cond_init(&worker.changed, NULL);
  worker.first = NULL; /* the parent's */
  worker.busy = NULL;
  worker.running = 0;
}
