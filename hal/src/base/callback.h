/* callback.h: functions of the application (release functions, listeners, log sinks) run while the calling thread holds
 * no HAL lock. Private to hal/src.
 *
 * A callback may take a lock of the application that another thread holds while it waits for the HAL. So a section that
 * holds a HAL lock and calls a plugin, logs, or allocates defers the callbacks that become due meanwhile:
 * hal_lock_and_defer, hal_unlock_and_run. Short sections that do none of these use hal_lock and hal_unlock. Builds with
 * HAL_CHECK_CALLBACKS (Debug, sanitizers) count the locks of each thread and abort if a callback runs under one. */
#ifndef HAL_SRC_CALLBACK_H_
#define HAL_SRC_CALLBACK_H_

#include "base/lock.h"

/* A deferred call; part of the caller's own record. */
typedef struct hal_callback_s {
  struct hal_callback_s *next;
  void (*run)(struct hal_callback_s *callback); /* called once, without a HAL lock; may free the record */
} hal_callback_t;

/* Runs the callback now, or in hal_callbacks_resume if this thread defers callbacks. Callbacks run in the order of
 * these calls; a callback that is due while another one runs waits for its end. The thread's error message does not
 * change. */
void hal_callback_run(hal_callback_t *callback);

/* Runs the callbacks that are due, even if a callback of this thread is running: call it before waiting for callbacks
 * of other threads. Does nothing while this thread defers callbacks. */
void hal_callbacks_drain(void);

/* Called before each call of a function of the application. In builds that count locks it aborts if this thread holds
 * one. */
#ifdef HAL_CHECK_CALLBACKS
void hal_callback_check(void);
#else
static inline void hal_callback_check(void) {}
#endif

/* Defers this thread's callbacks until hal_callbacks_resume. Calls nest. */
void hal_callbacks_defer(void);

/* Ends hal_callbacks_defer; the last one runs the callbacks that are due. */
void hal_callbacks_resume(void);

/* Returns whether this thread defers callbacks: 1 or 0. */
int hal_callbacks_are_deferred(void);

static inline void hal_lock_and_defer(hal_lock_t *lock) {
  hal_callbacks_defer();
  hal_lock(lock);
}

static inline void hal_unlock_and_run(hal_lock_t *lock) {
  hal_unlock(lock);
  hal_callbacks_resume();
}

/* The same for a mutex, which protects sections that take long. */
static inline void hal_mutex_lock_and_defer(pthread_mutex_t *mutex) {
  hal_callbacks_defer();
  pthread_mutex_lock(mutex);
  HAL_COUNT_LOCK(1);
}

static inline void hal_mutex_unlock_and_run(pthread_mutex_t *mutex) {
  HAL_COUNT_LOCK(-1);
  pthread_mutex_unlock(mutex);
  hal_callbacks_resume();
}

#endif /* HAL_SRC_CALLBACK_H_ */
