/* life.h: whether this process may still call plugins. Private to hal/src.
 *
 * The lifetime rule, for blocks, streams, events, modules and all other objects of a device: an object of the parent of
 * a forked process, or of a closed registry, is released without a call of the driver. Any other use of it fails with
 * the cause. hal_device_is_alive (device/device.h) returns whether an object may still use its plugin.
 *
 * Locks in the child of a fork, in which the threads that held them do not exist:
 * - hal_lock_t (base/lock.h), all of them: free in the child, since the word of a holder contains its process.
 * - pthread mutexes of the worker (fusion/worker.c) and of the validate layer: initialized again by
 *   hal_life_hooks.after_fork.
 * - pthread mutexes of a device's operators, providers and packs (op/): held only while a plugin is in use, and then
 *   the child has no device that could take them.
 * test/components/fork_locks.py lists the mutexes; test/hal/device/fork_locks.c forks while other threads hold the
 * locks. */
#ifndef HAL_SRC_LIFE_H_
#define HAL_SRC_LIFE_H_

#include <stdatomic.h>

typedef struct hal_life_s {
  atomic_int closed; /* hal_registry_close has run */
  atomic_int forked; /* this process is a child of one that had initialized a plugin */
} hal_life_t;
extern hal_life_t hal_life;

/* Returns whether plugins that ran must not be called any more: 1 or 0. */
static inline int hal_life_ended(void) { return atomic_load(&hal_life.forked) || atomic_load(&hal_life.closed); }

typedef struct hal_life_hooks_s {
  /* Runs in a forked child, whose only thread is the one that forked. */
  void (*after_fork)(void);
} hal_life_hooks_t;
extern const hal_life_hooks_t hal_life_hooks;

#endif /* HAL_SRC_LIFE_H_ */
