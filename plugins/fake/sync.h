/* sync.h: the synchronization primitives of the fake plugin: a lock on a futex, and waiting on a word. Private.
 *
 * pthread_mutex_t is not used, because a launch may take only about a hundred instructions in total. Also, after fork()
 * the child must be able to release every lock, which is undefined for a mutex that another thread held. */
#ifndef HAL_FAKE_SYNC_H_
#define HAL_FAKE_SYNC_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* How threads without work wait: rules 4 and 6 of schedule.h. A thread searches, that is reads a word of memory
 * repeatedly, in intervals between which it yields its core to other threads. */
#define FAKE_PIECE_NS 5000

/* Then it sleeps: a sleeping thread needs 5 to 50 us to start. */
#define FAKE_SPIN_NS 20000

/* With HAL_FAKE_ASYNC=0 workers only help with the caller's launches, like OpenMP's threads, which spin for
 * milliseconds (libgomp's GOMP_SPINCOUNT). If they slept, most of them would start after a small launch has ended. */
#define FAKE_HELPER_SPIN_NS 2000000

/* The sleeps of the poller: the first, the longest, and the total. */
#define FAKE_POLL_NS 50000
#define FAKE_LONGEST_POLL_NS 1000000
#define FAKE_POLLS_NS 100000000

#if defined(__x86_64__) || defined(__i386__)
#define FAKE_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define FAKE_RELAX() __asm__ __volatile__("yield" ::: "memory")
#else
#define FAKE_RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

/* Sleeps while `*word` is `expected`, at most `timeout_ns` (negative = no limit). May return early without a reason. */
void fake_futex_wait(atomic_uint *word, uint32_t expected, int64_t timeout_ns);
void fake_futex_wake(atomic_uint *word, int count);
/* The same for a word in memory that processes share; wakes all. */
void fake_futex_wait_shared(atomic_uint *word, uint32_t expected, int64_t timeout_ns);
void fake_futex_wake_shared(atomic_uint *word);

/* Returns CLOCK_MONOTONIC in nanoseconds. */
int64_t fake_now(void);

/* Spins, re-reading `condition`, until it is true or this many nanoseconds have passed. The clock is read once in 16
 * rounds: a round's pause takes 10 to 50 ns, reading the clock about 25. */
#define FAKE_SPIN_UNTIL(condition) FAKE_SPIN_FOR(FAKE_SPIN_NS, condition)
#define FAKE_SPIN_FOR(nanoseconds, condition)                                \
  do {                                                                       \
    int64_t spin_now_ = fake_now(), spin_piece_ = spin_now_ + FAKE_PIECE_NS; \
    const int64_t spin_end_ = spin_now_ + (nanoseconds);                     \
    for (uint32_t spin_ = 1; !(condition); spin_++) {                        \
      FAKE_RELAX();                                                          \
      if (spin_ % 16) continue;                                              \
      if ((spin_now_ = fake_now()) > spin_end_) break;                       \
      if (spin_now_ <= spin_piece_) continue;                                \
      sched_yield();                                                         \
      spin_piece_ = fake_now() + FAKE_PIECE_NS;                              \
    }                                                                        \
  } while (0)

/* 0 = free, 1 = held, 2 = held and a thread may sleep. Zeroed memory is a free lock. */
typedef struct fake_lock_s {
  atomic_uint word;
} fake_lock_t;

void fake_lock_slow(fake_lock_t *lock);

/* Acquires the lock if it is free; returns whether it did. */
static inline int fake_lock_try(fake_lock_t *lock) {
  unsigned expected = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void fake_lock(fake_lock_t *lock) {
  if (!fake_lock_try(lock)) fake_lock_slow(lock);
}

static inline void fake_unlock(fake_lock_t *lock) {
  if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2) fake_futex_wake(&lock->word, 1);
}

/* Releases the lock, whichever thread held it: for the child of a fork, where that thread does not exist. */
static inline void fake_lock_reset(fake_lock_t *lock) { atomic_store_explicit(&lock->word, 0, memory_order_relaxed); }

#endif /* HAL_FAKE_SYNC_H_ */
