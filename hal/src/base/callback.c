/* callback.c: see callback.h. */
#include "base/callback.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status_internal.h"

/* Plain thread-local data without a destructor, as in status.c. */
static _Thread_local struct {
  hal_callback_t *first, *last;
  int deferrals; /* sections that defer callbacks and have not ended */
  int running;   /* hal_callbacks_drain is active */
} due;

void hal_callbacks_drain(void) {
  hal_error_saved_t saved;
  if (!due.first || due.deferrals) return;
  const int outer = due.running;
  due.running = 1;
  hal_error_save(&saved);
  while (due.first) {
    hal_callback_t *const callback = due.first;
    due.first = callback->next;
    hal_callback_check();
    callback->run(callback);
  }
  hal_error_restore(&saved);
  due.running = outer;
}

void hal_callback_run(hal_callback_t *callback) {
  callback->next = NULL;
  if (due.first)
    due.last->next = callback;
  else
    due.first = callback;
  due.last = callback;
  if (!due.running) hal_callbacks_drain();
}

void hal_callbacks_defer(void) { due.deferrals++; }

void hal_callbacks_resume(void) {
  if (--due.deferrals == 0 && !due.running) hal_callbacks_drain();
}

int hal_callbacks_are_deferred(void) { return due.deferrals != 0; }

#ifdef HAL_CHECK_CALLBACKS
void hal_callback_check(void) {
  if (!hal_locks_held) return;
  fprintf(stderr, "torch_backend: a callback of the application is called by a thread that holds %d HAL locks\n",
          hal_locks_held);
  abort();
}
#endif
