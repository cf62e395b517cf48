/* life.c: see life.h. */
#include "base/life.h"

#include <pthread.h>

#include "base/lock.h"

hal_life_t hal_life;

static void in_child(void) {
  hal_lock_word += 4; /* first: locks of threads that stayed in the parent are free from here on */
  hal_life_hooks.after_fork();
}

static void watch(void) { pthread_atfork(NULL, NULL, in_child); }

void hal_life_watch_forks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
}
