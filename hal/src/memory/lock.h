/* memory_lock.h: the allocator's lock. Taken and given back by one atomic instruction each, without a call, when nobody
 * competes; a waiter spins for about the length of a cache hit, then sleeps in the kernel. Private to hal/src. */
#ifndef HAL_SRC_MEMORY_LOCK_H_
#define HAL_SRC_MEMORY_LOCK_H_

#include <stdatomic.h>

#include "base/likely.h"

/* 0 = free, 1 = held, 2 = held and somebody may sleep on it. Zeroed memory is a free lock. */
typedef struct hal_mem_lock_s {
  atomic_int state;
} hal_mem_lock_t;

void hal_mem_lock_wait(hal_mem_lock_t *lock);
void hal_mem_lock_wake(hal_mem_lock_t *lock);

static inline void hal_mem_lock(hal_mem_lock_t *lock) {
  int expected = 0;
  if (HAL_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                            memory_order_relaxed))) {
    hal_mem_lock_wait(lock);
  }
}

static inline void hal_mem_unlock(hal_mem_lock_t *lock) {
  if (HAL_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)) hal_mem_lock_wake(lock);
}

#endif /* HAL_SRC_MEMORY_LOCK_H_ */
