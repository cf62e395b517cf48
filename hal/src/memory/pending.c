/* pending.c: released blocks that other streams still use, and deferred frees.
 *
 * Each stream that is waited for has a queue of uses in the order of their events; a queue is polled up to its first
 * event that is not done. A block ends when its last use has ended. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stddef.h>

#include "memory/history.h"
#include "memory/pool.h"

/* Returns the queue of a stream; NULL if the host has no memory. A device has few queues: those of streams that use
 * blocks of other streams. */
static hal_mem_pending_t *queue_of(hal_allocator_t *allocator, hal_stream_t *stream) {
  hal_mem_pending_t *queue = allocator->queues;
  while (queue && queue->stream != stream) queue = queue->next;
  if (queue) return queue;
  queue = hal_calloc(1, sizeof(*queue));
  if (!queue) return NULL;
  queue->stream = stream;
  queue->next = allocator->queues;
  allocator->queues = queue;
  return queue;
}

hal_status_t hal_mem_block_use(hal_allocator_t *allocator, hal_block_t *block, hal_stream_t *stream) {
  for (const hal_mem_use_t *use = block->uses; use; use = use->next) {
    if (use->stream == stream) return HAL_OK;
  }
  hal_mem_use_t *use = hal_mem_slab_take(&allocator->uses);
  if (!use) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for the allocator's records");
  *use = (hal_mem_use_t){.next = block->uses, .block = block, .stream = stream};
  block->uses = use;
  if (block->state == HAL_MEM_PLAIN) block->state = HAL_MEM_SPECIAL;
  return HAL_OK;
}

static void forget(hal_allocator_t *allocator, hal_block_t *block) {
  const uint32_t kind = block->pool->kind;
  hal_mem_history_freed(allocator, block);
  hal_mem_history_segment_freed(allocator, block);
  hal_mem_map_remove(&allocator->map, block);
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_REQUESTED_BYTES, (int64_t)block->requested);
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_SEGMENT, 1);
  hal_mem_stat_decrease(&allocator->stats, kind, HAL_MEM_RESERVED_BYTES, (int64_t)block->size);
}

void hal_mem_block_free_queued(hal_allocator_t *allocator, hal_block_t *block) {
  forget(allocator, block);
  allocator->stats.num_device_free++;
  block->state = HAL_MEM_LEAVING;
  hal_unlock(&allocator->lock); /* the default waits for the stream */
  hal_mem_free_queued(block->stream, block->address);
  hal_lock(&allocator->lock);
  hal_mem_block_forget(allocator, block);
}

/* Device memory is part of the device's statistics; host memory and actions are not. */
static int is_counted(const hal_block_t *block) {
  return block->pool->source != HAL_MEM_ACTION && block->pool->source != HAL_MEM_HOST;
}

/* Ends an unused block. */
static void finish(hal_allocator_t *allocator, hal_block_t *block, hal_block_t **ready) {
  hal_mem_pool_t *pool = block->pool;
  if (block->state == HAL_MEM_PENDING) {
    atomic_fetch_sub_explicit(&allocator->pending, 1, memory_order_relaxed);
    if (is_counted(block)) {
      hal_mem_stat_decrease(&allocator->stats, pool->kind, HAL_MEM_PENDING_BLOCKS, 1);
      hal_mem_stat_decrease(&allocator->stats, pool->kind, HAL_MEM_PENDING_BYTES, (int64_t)block->size);
    }
  }
  switch (pool->source) {
    case HAL_MEM_CACHED:
      hal_mem_history_freed(allocator, block);
      hal_mem_pool_return(allocator, pool, pool->kind, block);
      return;
    case HAL_MEM_POOLED:
      forget(allocator, block);
      allocator->stats.num_device_free++;
      block->state = HAL_MEM_LEAVING;
      hal_unlock(&allocator->lock); /* the default waits for the stream */
      hal_mem_free_async(block->stream, block->address);
      hal_lock(&allocator->lock);
      hal_mem_block_forget(allocator, block);
      return;
    case HAL_MEM_EMPTY:
      allocator->empty_count--;
      hal_mem_block_forget(allocator, block);
      return;
    case HAL_MEM_HOST:
      hal_mem_history_freed(allocator, block);
      hal_mem_host_return(allocator, block);
      return;
    case HAL_MEM_ADOPTED:
      forget(allocator, block);
      break;
    default:
      break;
  }
  block->state = HAL_MEM_LEAVING;
  block->next = *ready;
  *ready = block;
}

/* Adds one use to its stream's queue, after an event; returns 0 if there is nothing to wait for. */
static int wait_for(hal_allocator_t *allocator, hal_mem_use_t *use) {
  hal_mem_pending_t *queue = queue_of(allocator, use->stream);
  use->next = NULL;
  use->event = queue ? hal_mem_event_record(allocator, use->stream) : NULL;
  if (!use->event) {
    hal_mem_stream_wait(allocator, use->stream);
    hal_mem_slab_give(&allocator->uses, use);
    return 0;
  }
  if (queue->tail) {
    queue->tail->next = use;
  } else {
    queue->head = use;
  }
  queue->tail = use;
  use->block->waits++;
  return 1;
}

/* After this, the block is released for every thread that takes the lock. */
static void begin_pending(hal_allocator_t *allocator, hal_block_t *block) {
  if (block->state == HAL_MEM_PENDING) return;
  block->state = HAL_MEM_PENDING;
  atomic_fetch_add_explicit(&allocator->pending, 1, memory_order_relaxed);
  if (!is_counted(block)) return;
  hal_mem_stat_decrease(&allocator->stats, block->pool->kind, HAL_MEM_PENDING_BLOCKS, -1);
  hal_mem_stat_decrease(&allocator->stats, block->pool->kind, HAL_MEM_PENDING_BYTES, -(int64_t)block->size);
}

void hal_mem_block_end(hal_allocator_t *allocator, hal_block_t *block, int own, hal_block_t **ready) {
  block->waits = 1; /* a use of this function: protects the block while the lock is released */
  if (own || block->uses) begin_pending(allocator, block);
  if (own && !hal_mem_stream_idle(allocator, block->stream) && hal_mem_block_use(allocator, block, block->stream)) {
    hal_mem_stream_wait(allocator, block->stream);
  }
  hal_mem_use_t *use = block->uses;
  block->uses = NULL;
  while (use) {
    hal_mem_use_t *next = use->next;
    wait_for(allocator, use);
    use = next;
  }
  if (--block->waits == 0) finish(allocator, block, ready);
}

/* Removes the first use of a queue. */
static hal_mem_use_t *pop(hal_mem_pending_t *queue) {
  hal_mem_use_t *use = queue->head;
  queue->head = use->next;
  if (!queue->head) queue->tail = NULL;
  return use;
}

/* Ends a use whose event was returned. */
static void end_use(hal_allocator_t *allocator, hal_mem_use_t *use, hal_block_t **ready) {
  hal_block_t *block = use->block;
  hal_mem_slab_give(&allocator->uses, use);
  if (--block->waits == 0) finish(allocator, block, ready);
}

/* Queries the event of a queue's first use, which is removed from the queue meanwhile; returns 1 if it has ended. */
static int poll_first(hal_allocator_t *allocator, hal_mem_pending_t *queue, hal_block_t **ready) {
  hal_mem_use_t *use = pop(queue);
  queue->polled = 1;
  const int done = hal_mem_event_done(allocator, queue->stream, use->event);
  queue->polled = 0;
  if (done) {
    hal_mem_event_give(allocator, queue->stream, use->event);
    end_use(allocator, use, ready);
    return 1;
  }
  use->next = queue->head;
  queue->head = use;
  if (!queue->tail) queue->tail = use;
  return 0;
}

void hal_mem_pending_poll(hal_allocator_t *allocator, hal_block_t **ready) {
  for (hal_mem_pending_t *queue = allocator->queues; queue; queue = queue->next) {
    while (queue->head && !queue->polled && poll_first(allocator, queue, ready)) continue;
  }
}

void hal_mem_pending_drain(hal_allocator_t *allocator, hal_block_t **ready) {
  /* Other threads may add uses while the lock is released: only uses that are queued now are waited for. */
  for (hal_mem_pending_t *queue = allocator->queues; queue; queue = queue->next) {
    size_t count = 0;
    while (queue->polled) { /* another thread is querying the event of its first use */
      hal_unlock(&allocator->lock);
      sched_yield();
      hal_lock(&allocator->lock);
    }
    for (const hal_mem_use_t *use = queue->head; use; use = use->next) count++;
    for (; count && queue->head; count--) {
      hal_mem_use_t *use = pop(queue);
      hal_mem_event_wait(allocator, queue->stream, use->event);
      end_use(allocator, use, ready);
    }
  }
}

void hal_mem_pending_destroy(hal_allocator_t *allocator) {
  while (allocator->queues) {
    hal_mem_pending_t *queue = allocator->queues;
    allocator->queues = queue->next;
    hal_free(queue);
  }
}

/* Calls the free_fn of a block that ended. */
static void run_free(hal_callback_t *callback) {
  hal_block_t *const block = (hal_block_t *)(void *)((char *)callback - offsetof(hal_block_t, callback));
  hal_allocator_t *const allocator = block->pool->allocator;
  const hal_host_fn_t fn = block->u.free.fn;
  void *const data = block->u.free.data;
  hal_lock(&allocator->lock);
  hal_mem_block_forget(allocator, block);
  hal_unlock(&allocator->lock);
  if (fn) fn(data);
}

void hal_mem_ready_run(hal_block_t *ready) {
  hal_block_t *first = NULL;
  if (!ready) return;
  while (ready) { /* the list begins with the last one that ended */
    hal_block_t *const next = ready->next;
    ready->next = first;
    first = ready;
    ready = next;
  }
  hal_callbacks_defer(); /* until all are added */
  while (first) {
    hal_block_t *const block = first;
    first = block->next;
    block->callback.run = run_free;
    hal_callback_run(&block->callback);
  }
  hal_callbacks_resume();
}

void hal_memory_poll(hal_device_t *device) {
  hal_allocator_t *allocator = hal_allocator_of(device);
  hal_block_t *ready = NULL;
  if (HAL_LIKELY(!atomic_load_explicit(&allocator->pending, memory_order_relaxed))) return;
  hal_lock(&allocator->lock);
  hal_mem_pending_poll(allocator, &ready);
  hal_unlock(&allocator->lock);
  hal_mem_ready_run(ready);
}
