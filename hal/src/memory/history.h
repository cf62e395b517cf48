/* history.h: the recorded events of an allocator, and the stacks of its blocks. Private to hal/src.
 *
 * Device memory and page-locked host memory have one history each, which are recorded independently. An event belongs
 * to the history of its block (hal_block_t.pool->source).
 *
 * While device memory is recorded, HAL_MEM_RECORDED is set in the allocator's `pending`, and HAL_MEM_HOST_RECORDED
 * while host memory is. The fast paths of allocation and release test `pending` anyway. So they have no instruction for
 * the history, and recorded calls take slow paths.
 *
 * The caller's `capture` runs before the lock is taken (hal_mem_history_enter), its `release` after the lock was
 * released (hal_mem_history_leave). Meanwhile the stack is the calling thread's; events and blocks that are recorded by
 * the thread get a reference to it. */
#ifndef HAL_SRC_MEMORY_HISTORY_H_
#define HAL_SRC_MEMORY_HISTORY_H_

#include "memory/internal.h"

/* A stack of the caller, shared by events, blocks and copies of the history. */
typedef struct hal_mem_stack_s {
  hal_callback_t callback; /* calls `release` */
  atomic_uint references;
  void *stack;
  void (*release)(void *stack, void *user_data);
  void *user_data;
} hal_mem_stack_t;

/* ---- ring of events: history_ring.c; called with the allocator's lock held ---- */

enum { HAL_MEM_RING_CHUNK = 512 }; /* events of one allocation of host memory */

typedef struct hal_mem_ring_chunk_s {
  struct hal_mem_ring_chunk_s *next;
  hal_memory_event_t events[HAL_MEM_RING_CHUNK]; /* `stack` is a hal_mem_stack_t, with a reference */
} hal_mem_ring_chunk_t;

/* The last `max` events, oldest first, in a list of chunks. */
typedef struct hal_mem_ring_s {
  hal_mem_ring_chunk_t *first, *last, *spare;
  size_t begin, end; /* of the events in the first chunk; end of those in the last one */
  size_t count, max;
  uint64_t lost; /* events that were not recorded, because the host had no memory */
} hal_mem_ring_t;

/* Returns a new event at the end, not initialized; NULL if none is recorded. An event that it replaces is removed. */
hal_memory_event_t *hal_mem_ring_push(hal_mem_ring_t *ring, hal_mem_stack_t **dead);
/* Removes the oldest events until at most `count` remain. */
void hal_mem_ring_shrink(hal_mem_ring_t *ring, size_t count, hal_mem_stack_t **dead);
/* Copies all events, each with a reference to its stack. */
void hal_mem_ring_copy(const hal_mem_ring_t *ring, hal_memory_event_t *out_events);
/* Frees the chunks of a ring without events. */
void hal_mem_ring_destroy(hal_mem_ring_t *ring);

/* ---- history.c ---- */

/* A segment whose allocation has a stack. */
typedef struct hal_mem_segment_stack_s {
  void *address;
  hal_mem_stack_t *stack;
} hal_mem_segment_stack_t;

/* A history of an allocator, created when it is recorded for the first time. */
struct hal_mem_history_s {
  hal_memory_history_desc_t desc;
  hal_mem_ring_t ring;
  hal_mem_segment_stack_t *segments;
  size_t segment_count, segment_capacity;
};

/* A function that is observing out-of-memory errors. */
struct hal_mem_observer_s {
  struct hal_mem_observer_s *next;
  hal_memory_oom_fn_t fn;
  void *user_data;
};

/* The part of a thread in hal_mem_history_enter and hal_mem_history_leave. */
typedef struct hal_mem_scope_s {
  hal_mem_stack_t *stack, *outer;
} hal_mem_scope_t;

static inline int hal_mem_is_recorded(const hal_allocator_t *allocator) {
  return (atomic_load_explicit(&allocator->pending, memory_order_relaxed) & HAL_MEM_RECORDED) != 0;
}

static inline int hal_mem_host_is_recorded(const hal_allocator_t *allocator) {
  return (atomic_load_explicit(&allocator->pending, memory_order_relaxed) & HAL_MEM_HOST_RECORDED) != 0;
}

/* Captures the thread's stack if stacks of `level` (HAL_MEMORY_STACKS_*) are recorded. Called without the lock, once
 * hal_mem_is_recorded has returned 1. Calls nest. */
void hal_mem_history_enter(hal_allocator_t *allocator, uint32_t level, hal_mem_scope_t *out_scope);
/* The same for calls that allocate or free host memory, once hal_mem_host_is_recorded has returned 1. */
void hal_mem_host_history_enter(hal_allocator_t *allocator, uint32_t level, hal_mem_scope_t *out_scope);
/* Ends an enter function, and releases the stacks that are no longer referenced. Called without the lock. */
void hal_mem_history_leave(hal_allocator_t *allocator, hal_mem_scope_t *scope);

static inline hal_mem_stack_t *hal_mem_stack_retain(hal_mem_stack_t *stack) {
  if (stack) atomic_fetch_add_explicit(&stack->references, 1, memory_order_relaxed);
  return stack;
}
/* Removes a reference; NULL is allowed. A stack without a reference is added to the list `*dead`. */
void hal_mem_stack_drop(hal_mem_stack_t *stack, hal_mem_stack_t **dead);
/* Releases the stacks of a list. Called without the lock. */
void hal_mem_stacks_release(hal_mem_stack_t *dead);

/* Record an event, if the memory of the block is recorded. The caller holds the lock. */
void hal_mem_history_allocated(hal_allocator_t *allocator, hal_block_t *block);
void hal_mem_history_requested(hal_allocator_t *allocator, const hal_block_t *block); /* the release of a block */
void hal_mem_history_freed(hal_allocator_t *allocator, hal_block_t *block);
void hal_mem_history_segment(hal_allocator_t *allocator, const hal_block_t *block); /* a new segment */
void hal_mem_history_segment_freed(hal_allocator_t *allocator, const hal_block_t *block);
/* Memory that was mapped in an expandable segment, or unmapped: HAL_MEMORY_EVENT_SEGMENT_MAP, _UNMAP. */
void hal_mem_history_mapped(hal_allocator_t *allocator, const hal_mem_pool_t *pool, uint32_t action, void *address,
                            size_t size);
void hal_mem_history_snapshot(hal_allocator_t *allocator);
void hal_mem_history_exhausted(hal_allocator_t *allocator, size_t size, size_t free_bytes);
void hal_mem_host_history_exhausted(hal_allocator_t *allocator, size_t size);

/* Returns the stack of a segment's allocation, NULL if it has none. The caller holds the lock. */
hal_mem_stack_t *hal_mem_history_segment_stack(const hal_allocator_t *allocator, const hal_block_t *segment);

/* Ends both recordings, and removes all events and stacks. Called without the lock. */
void hal_mem_history_stop(hal_allocator_t *allocator);
/* As hal_mem_history_stop; also frees the histories. */
void hal_mem_history_destroy(hal_allocator_t *allocator);

/* ---- history_oom.c ---- */
/* Calls the observers of out-of-memory errors. Called without the lock. */
void hal_mem_observers_run(hal_allocator_t *allocator, size_t size, size_t total, size_t free_bytes);
void hal_mem_observers_destroy(hal_allocator_t *allocator);

/* ---- snapshot.c ---- */
/* Lists the blocks of device memory as hal_memory_blocks; `stack` and `segment_stack` are hal_mem_stack_t without a
 * reference. The caller holds the lock. */
size_t hal_mem_list_blocks(const hal_allocator_t *allocator, void *blocks, size_t stride, size_t capacity);
/* The same for host memory, whose blocks are one segment each; memory of hal_host_register is last. */
size_t hal_mem_list_host_blocks(const hal_allocator_t *allocator, void *blocks, size_t stride, size_t capacity);

#endif /* HAL_SRC_MEMORY_HISTORY_H_ */
