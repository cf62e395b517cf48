/* plugin_watch.h: for plugins: device_watch over a thread that waits for the driver's events and delivers them. The
 * thread exists while a device is watched. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_WATCH_H_
#define HAL_PLUGIN_WATCH_H_

#include <pthread.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAL_WATCH_DEVICES = 64, HAL_WATCH_QUEUE = 64, HAL_WATCH_MESSAGE = 160 };

typedef struct hal_watched_s { /* an event to deliver */
  int32_t device;
  uint32_t kind;
  int64_t native_code;
  char message[HAL_WATCH_MESSAGE];
} hal_watched_t;

/* One per plugin, in static memory: {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .listen =
 * ...}. */
typedef struct hal_watch_s {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* Waits for events of the driver, at most about 100 ms, and reports them; the thread calls it repeatedly. NULL: only
   * other threads report events. */
  void (*listen)(void);
  /* private to hal_watch_*: */
  struct {
    hal_device_event_fn_t fn;
    void *user_data;
    uint32_t kinds;
  } watchers[HAL_WATCH_DEVICES];
  uint32_t watched; /* watchers that are set */
  int32_t busy;     /* 1 + the device whose function is running; 0 = none */
  int started, stop;
  pthread_t thread;
  hal_watched_t queue[HAL_WATCH_QUEUE];
  uint32_t first, count, dropped;
} hal_watch_t;

/* Implements device_watch; the caller has checked the device. Errors: HAL_RESOURCE_EXHAUSTED = the system cannot create
 * a thread. Since 0.3. */
hal_status_t hal_watch_set(hal_watch_t *watch, int32_t device, uint32_t kinds, hal_device_event_fn_t fn,
                           void *user_data);

/* Delivers an event later, on the watch's thread; does nothing if no watcher has requested its kind. Any thread, which
 * may hold locks of the plugin; waits for no event and no watcher. `message` is copied, and cut if it is too long.
 * Since 0.3. */
void hal_watch_report(hal_watch_t *watch, int32_t device, uint32_t kind, int64_t native_code, const char *message);

/* Returns the kinds of events that the watcher of a device has requested, 0 = none. Since 0.3. */
uint32_t hal_watch_kinds(hal_watch_t *watch, int32_t device);

/* Called in the child of a fork, which has no thread of the parent: nothing is watched. Since 0.3. */
void hal_watch_after_fork(hal_watch_t *watch);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_WATCH_H_ */
