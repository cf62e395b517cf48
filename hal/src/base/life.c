/* life.c: whether this process may still call plugins; see base/life.h. */
#include "base/life.h"

#include <pthread.h>

#include "base/lock.h"

hal_life_t hal_life;

static void in_child(void) {
  hal_lock_word += 4; /* first: after this line, locks that other threads of the parent hold are free */
  hal_life_hooks.after_fork();
}

/* At load, before any lock can be held: one thread may hold a lock while another one forks, even before a registry is
 * opened. */
static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }
