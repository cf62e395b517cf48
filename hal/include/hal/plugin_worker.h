/* plugin_worker.h: for plugins: a thread that runs items in the order in which they were queued. It is a stream of a
 * device without hardware queues, or it calls a stream's host functions. Also: queries of queues to which others submit
 * work. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_WORKER_H_
#define HAL_PLUGIN_WORKER_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_worker_s hal_worker_t;

/* A work item: the first member of a struct of the plugin, in memory that `run` releases. Since 0.2. */
typedef struct hal_worker_item_s {
  struct hal_worker_item_s *next;              /* private to the worker */
  void (*run)(struct hal_worker_item_s *item); /* called on the worker's thread, which holds no lock */
} hal_worker_item_t;

/* Starts a thread, which hal_worker_stop ends. Errors: HAL_RESOURCE_EXHAUSTED = no memory or no thread, with the cause
 * in the message. Since 0.2. */
hal_status_t hal_worker_start(hal_worker_t **out_worker);

/* Queues an item, which the worker owns from now on. Returns its number: 1 for the first, and so on. Never fails. If
 * 1024 items are queued, the calling thread waits until half of them are done, except in an item's `run`. The caller
 * holds no lock that an item takes. Thread-safe. Since 0.2. */
uint64_t hal_worker_push(hal_worker_t *worker, hal_worker_item_t *item);

/* Returns the number of the last item whose `run` has returned; 0 = none. Thread-safe. Since 0.2. */
uint64_t hal_worker_done(hal_worker_t *worker);

/* Returns the number of the last item that was queued; 0 = none. Thread-safe. Since 0.2. */
uint64_t hal_worker_queued(hal_worker_t *worker);

/* Waits until the item of that number is done. Do not call it from an item's `run`, which would wait for itself.
 * Thread-safe. Since 0.2. */
void hal_worker_wait(hal_worker_t *worker, uint64_t number);

/* Begins an item that the calling thread runs itself. Returns its number, which is the next one, or 0 if an item is
 * queued or running: then use hal_worker_push. The worker runs no item until the caller has called hal_worker_end,
 * before which it waits for no other item of this worker. Thread-safe. Since 0.5. */
uint64_t hal_worker_begin(hal_worker_t *worker);

/* Ends the item that hal_worker_begin has begun: it is done. Thread-safe. Since 0.5. */
void hal_worker_end(hal_worker_t *worker);

/* Runs the items that are still queued, ends the thread and releases the worker; NULL is allowed. No other thread may
 * use the worker then. Since 0.2. */
void hal_worker_stop(hal_worker_t *worker);

/* Returns HAL_OK if a queue of the driver is idle, else HAL_NOT_READY, for queues to which a user submits commands that
 * the plugin does not know (stream_native). The plugin has queued a marker after them, and `is_busy(stream)` returns 1
 * until the marker has completed. The function polls for a short time, in which the marker of an idle queue completes.
 * If it does not, the next call polls twice as long, up to 20 ms, so that a caller that polls finds the queue idle
 * eventually. `*inout_patience_ns` belongs to the queue, is 0 at first, and is accessed atomically. Thread-safe, as
 * `is_busy` is. Since 0.4. */
hal_status_t hal_marker_query(int64_t *inout_patience_ns, int (*is_busy)(hal_plugin_stream_t *stream),
                              hal_plugin_stream_t *stream);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_WORKER_H_ */
