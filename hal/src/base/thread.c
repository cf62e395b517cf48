/* thread.c: see thread.h. */
#define _POSIX_C_SOURCE 200809L /* sigset_t */
#include "base/thread.h"

#include <signal.h>

int hal_thread_start(pthread_t *out_thread, void *(*run)(void *), void *data) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, NULL, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) return error;
  if (out_thread)
    *out_thread = thread;
  else
    pthread_detach(thread);
  return 0;
}
