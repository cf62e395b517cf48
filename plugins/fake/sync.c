/* sync.c: futex, clock and the contended path of the lock. */
#define _GNU_SOURCE
#include "sync.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a 32-bit word");

void fake_futex_wait(atomic_uint *word, uint32_t expected, int64_t timeout_ns) {
  struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? NULL : &limit, NULL, 0);
}

void fake_futex_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

void fake_futex_wait_shared(atomic_uint *word, uint32_t expected, int64_t timeout_ns) {
  const struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, NULL, 0);
}

void fake_futex_wake_shared(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

int64_t fake_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void fake_lock_slow(fake_lock_t *lock) {
  /* Most sections are shorter than a sleep and a wake-up (about 5 us), so first try again for a short time. */
  for (int i = 0; i < 100; i++) {
    unsigned expected = 0;
    FAKE_RELAX();
    if (!atomic_load_explicit(&lock->word, memory_order_relaxed) &&
        atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
      return;
  }
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire)) fake_futex_wait(&lock->word, 2, -1);
}
