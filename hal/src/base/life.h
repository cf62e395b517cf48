/* life.h: whether this process may still call plugins. Private to hal/src.
 *
 * The rule of life, for blocks, streams, events, modules and whatever else a device gave: what belongs to the parent of a
 * forked process, or to a registry that was closed, is released quietly and touches neither a driver nor a lock of the
 * parent; any other use of it is refused with the cause. hal_device_is_alive (device/device.h) is the question. */
#ifndef HAL_SRC_LIFE_H_
#define HAL_SRC_LIFE_H_

#include <stdatomic.h>

typedef struct hal_life_s {
  atomic_int closed; /* hal_registry_close has run */
  atomic_int forked; /* this process is a child of one that had initialised a plugin */
} hal_life_t;
extern hal_life_t hal_life;

/* Tells whether plugins that ran may not be called any more: 1 or 0. */
static inline int hal_life_ended(void) { return atomic_load(&hal_life.forked) || atomic_load(&hal_life.closed); }

/* Makes forks known from now on: called before the first lock that outlives its call can be held. */
void hal_life_watch_forks(void);

typedef struct hal_life_hooks_s {
  /* Runs in a forked child, whose only thread is the one that forked. */
  void (*after_fork)(void);
} hal_life_hooks_t;
extern const hal_life_hooks_t hal_life_hooks;

#endif /* HAL_SRC_LIFE_H_ */
