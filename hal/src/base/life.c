/* life.c: see life.h. */
#include "base/life.h"

#include <pthread.h>

#include "base/lock.h"

hal_life_t hal_life;

static void in_child(void) {
  hal_lock_word += 4; /* first: from here on, locks that other threads of the parent hold are free */
  hal_life_hooks.after_fork();
}

/* At load, before any lock can be held: a thread may hold one while another forks, also before a registry is opened. */
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }
