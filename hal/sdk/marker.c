/* marker.c: queries of queues to which users submit commands (hal/plugin_worker.h). */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <time.h>

#include "hal/plugin_worker.h"

enum { FIRST_NS = 50000, MOST_NS = 20000000 };

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

hal_status_t hal_marker_query(int64_t *inout_patience_ns, int (*is_busy)(hal_plugin_stream_t *stream),
                              hal_plugin_stream_t *stream) {
  const int64_t before = __atomic_load_n(inout_patience_ns, __ATOMIC_RELAXED);
  const int64_t patience = before ? before : FIRST_NS;
  for (const int64_t end = now_ns() + patience; is_busy(stream); sched_yield()) {
    if (now_ns() < end) continue;
    __atomic_store_n(inout_patience_ns, patience < MOST_NS ? 2 * patience : MOST_NS, __ATOMIC_RELAXED);
    return HAL_NOT_READY;
  }
  __atomic_store_n(inout_patience_ns, 0, __ATOMIC_RELAXED);
  return HAL_OK;
}
