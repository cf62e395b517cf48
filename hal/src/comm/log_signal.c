/* log_signal.c: a signal that makes a process write its log, to find what a hanging process waits for. A signal handler
 * must not take a lock, so it wakes a thread that writes the log. */
#define _GNU_SOURCE /* pthread_setname_np */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"
#include "comm/log.h"
#include "comm/log_internal.h"
#include "hal/log.h"
#include "hal/status.h"

static struct {
  hal_lock_t lock;
  sem_t requests;
  pid_t process; /* process that has the thread; 0 = none */
  int number;    /* number of the signal; 0 = none */
  struct sigaction before;
} on_signal;

static void handle(int number) {
  const int error = errno;
  (void)number;
  sem_post(&on_signal.requests); /* in a forked child no thread waits for it */
  errno = error;
}

static void *write_on_request(void *unused) {
  pthread_setname_np(pthread_self(), "hal-comm-log");
  for (;;) {
    if (sem_wait(&on_signal.requests)) continue; /* interrupted */
    hal_comm_log_failure();
  }
  return unused;
}

/* The caller holds the lock. The thread exists until the process ends, because the signal may arrive at any time. */
static int start_thread(void) {
  if (on_signal.process == getpid()) return 0;
  sem_init(&on_signal.requests, 0, 0);
  const int error = hal_thread_start(NULL, write_on_request, NULL);
  if (error) return error;
  on_signal.process = getpid();
  return 0;
}

/* Restores the previous handler of the signal. The caller holds the lock. */
static void stop(void) {
  if (on_signal.number) sigaction(on_signal.number, &on_signal.before, NULL);
  on_signal.number = 0;
}

/* The caller holds the lock. */
static hal_status_t install(int number) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART}, present;
  if (sigaction(number, NULL, &present))
    return hal_error_set(HAL_INVALID_ARGUMENT, "the signal %d cannot be handled: %s", number, strerror(errno));
  if (present.sa_flags & SA_SIGINFO || (present.sa_handler != SIG_DFL && present.sa_handler != SIG_IGN))
    return hal_error_set(
        HAL_FAILED_PRECONDITION,
        "the signal %d is handled by something else in this process; choose another for the log of collectives",
        number);
  const int error = start_thread();
  if (error)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "cannot start the thread that writes the log of collectives: %s",
                         strerror(error));
  sigemptyset(&action.sa_mask);
  if (sigaction(number, &action, &on_signal.before))
    return hal_error_set(HAL_INVALID_ARGUMENT, "the signal %d cannot be handled: %s", number, strerror(errno));
  on_signal.number = number;
  return HAL_OK;
}

static int has_file(void) {
  hal_lock(&hal_comm_log.lock);
  const int has = hal_comm_log.file != NULL;
  hal_unlock(&hal_comm_log.lock);
  return has;
}

hal_status_t hal_comm_log_write_on(int32_t number) {
  if (number && !has_file())
    return hal_error_set(
        HAL_FAILED_PRECONDITION,
        "the log of collectives has no file to write on signal %d; name one with hal_comm_log_configure", number);
  hal_lock(&on_signal.lock);
  hal_status_t status = HAL_OK;
  if (number != on_signal.number) {
    stop();
    if (number) status = install(number);
  }
  hal_unlock(&on_signal.lock);
  return status;
}
