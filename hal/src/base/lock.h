/* lock.h: the HAL's lock. Taken and given back by one atomic instruction each, without a call, when nobody competes; a
 * waiter spins for about the length of a cache hit, then sleeps in the kernel.
 *
 * A lock that a thread of the parent holds when the process forks is free in the child, where that thread does not exist:
 * the holder's word says which process it is of (life.h counts them). Private to hal/src. */
#ifndef HAL_SRC_LOCK_H_
#define HAL_SRC_LOCK_H_

#include <stdatomic.h>
#include <stdint.h>

#include "base/likely.h"

/* 0 = free, else the holder's process * 4, + 1 = held, + 2 = held and somebody may sleep on it. Zeroed memory is a free
 * lock, and nothing is to be destroyed. */
typedef struct hal_lock_s {
  atomic_uint state;
} hal_lock_t;

/* What a lock of this process holds: a constant but for forks. */
extern uint32_t hal_lock_word;

void hal_lock_wait(hal_lock_t *lock);
void hal_lock_wake(hal_lock_t *lock);

static inline void hal_lock(hal_lock_t *lock) {
  unsigned expected = 0;
  if (HAL_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, hal_lock_word,
                                                            memory_order_acquire, memory_order_relaxed))) {
    hal_lock_wait(lock);
  }
}

/* Takes the lock if nobody holds it, and tells whether it did. */
static inline int hal_try_lock(hal_lock_t *lock) {
  unsigned expected = 0;
  return atomic_compare_exchange_strong_explicit(&lock->state, &expected, hal_lock_word, memory_order_acquire,
                                                 memory_order_relaxed);
}

static inline void hal_unlock(hal_lock_t *lock) {
  if (HAL_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) & 2)) hal_lock_wake(lock);
}

#endif /* HAL_SRC_LOCK_H_ */
