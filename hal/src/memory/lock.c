/* memory_lock.c: the slow paths of the allocator's lock, on Linux futexes. */
#define _GNU_SOURCE
#include "memory/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A cache hit holds the lock for some 30 ns; a pause takes 5 to 40 ns. Longer than a few hits means that the holder is
 * in the plugin or was preempted, and then sleeping is right. */
#define SPINS 64

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void hal_mem_lock_wait(hal_mem_lock_t *lock) {
  for (int i = 0; i < SPINS; i++) {
    int expected = 0;
    if (!atomic_load_explicit(&lock->state, memory_order_relaxed) &&
        atomic_compare_exchange_weak_explicit(&lock->state, &expected, 1, memory_order_acquire, memory_order_relaxed)) {
      return;
    }
    cpu_pause();
  }
  /* Whoever slept takes the lock as 2: it cannot know whether it was the last sleeper. */
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire)) {
    syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
  }
}

void hal_mem_lock_wake(hal_mem_lock_t *lock) { syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
