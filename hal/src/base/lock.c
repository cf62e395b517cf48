/* lock.c: the slow paths of the lock, on Linux futexes. */
#define _GNU_SOURCE
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A cache hit holds the allocator's lock for about 30 ns; a pause takes 5 to 40 ns. A longer wait means that the holder
 * is in the plugin or was preempted; then the waiter sleeps. */
#define SPINS 64

uint32_t hal_lock_word = 1;

#ifdef HAL_CHECK_CALLBACKS
_Thread_local int hal_locks_held;
#endif

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void hal_lock_wait(hal_lock_t *lock) {
  const unsigned process = hal_lock_word & ~3u;
  for (int i = 0; i < SPINS; i++) {
    unsigned expected = 0;
    if (!atomic_load_explicit(&lock->state, memory_order_relaxed) &&
        atomic_compare_exchange_weak_explicit(&lock->state, &expected, hal_lock_word, memory_order_acquire,
                                              memory_order_relaxed)) {
      return;
    }
    cpu_pause();
  }
  /* A thread that slept takes the lock in the state "has sleepers", because it cannot know whether it was the last
   * one. */
  for (;;) {
    const unsigned held = atomic_exchange_explicit(&lock->state, process | 2, memory_order_acquire);
    if (!held || (held & ~3u) != process) return; /* free, or held by a thread of the parent */
    syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, process | 2, NULL, NULL, 0);
  }
}

void hal_lock_wake(hal_lock_t *lock) { syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
