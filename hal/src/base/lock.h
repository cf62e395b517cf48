/* lock.h: the HAL's lock. Without contention, locking and unlocking are one atomic instruction each, without a call. A
 * waiter spins for about the duration of a cache hit, then sleeps in the kernel.
 *
 * A lock that a thread of the parent holds when the process forks is free in the child, where that thread does not
 * exist: the word of a holder contains the number of its process (hal_lock_word). Private to hal/src. */
#ifndef HAL_SRC_LOCK_H_
#define HAL_SRC_LOCK_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/likely.h"

/* Builds with HAL_CHECK_CALLBACKS count the HAL locks that a thread holds (callback.h). */
#ifdef HAL_CHECK_CALLBACKS
extern _Thread_local int hal_locks_held;
#define HAL_COUNT_LOCK(change) (hal_locks_held += (change))
#else
#define HAL_COUNT_LOCK(change) ((void)0)
#endif

/* 0 = free, else the holder's process * 4, + 1 = held, + 2 = held and a thread may sleep on it. Zeroed memory is a free
 * lock, and needs no destruction. */
typedef struct hal_lock_s {
  atomic_uint state;
} hal_lock_t;

/* The word of a lock that this process holds; it changes in the child of a fork. */
extern uint32_t hal_lock_word;

void hal_lock_wait(hal_lock_t *lock);
void hal_lock_wake(hal_lock_t *lock);

static inline void hal_lock(hal_lock_t *lock) {
  unsigned expected = 0;
  if (HAL_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, hal_lock_word,
                                                            memory_order_acquire, memory_order_relaxed))) {
    hal_lock_wait(lock);
  }
  HAL_COUNT_LOCK(1);
}

/* Takes the lock if it is free. Returns whether it was free. */
static inline int hal_try_lock(hal_lock_t *lock) {
  unsigned expected = 0;
  const int taken = atomic_compare_exchange_strong_explicit(&lock->state, &expected, hal_lock_word,
                                                            memory_order_acquire, memory_order_relaxed);
  if (taken) HAL_COUNT_LOCK(1);
  return taken;
}

static inline void hal_unlock(hal_lock_t *lock) {
  HAL_COUNT_LOCK(-1);
  if (HAL_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) & 2)) hal_lock_wake(lock);
}

#endif /* HAL_SRC_LOCK_H_ */
