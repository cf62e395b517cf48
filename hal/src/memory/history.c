/* history.c: records the events of an allocator; starts and ends the recordings. */
#define _POSIX_C_SOURCE 200809L
#include "memory/history.h"

#include <string.h>
#include <time.h>

#include "base/host_malloc.h"

/* ---- stacks ---- */

/* The stack of the thread's current call; plain thread-local data without a destructor, as in callback.c. */
static _Thread_local hal_mem_stack_t *current;

void hal_mem_stack_drop(hal_mem_stack_t *stack, hal_mem_stack_t **dead) {
  if (!stack || atomic_fetch_sub_explicit(&stack->references, 1, memory_order_acq_rel) > 1) return;
  stack->callback.next = (hal_callback_t *)*dead;
  *dead = stack;
}

static void run_release(hal_callback_t *callback) {
  hal_mem_stack_t *const stack = (hal_mem_stack_t *)callback;
  if (stack->release) stack->release(stack->stack, stack->user_data);
  hal_free(stack);
}

void hal_mem_stacks_release(hal_mem_stack_t *dead) {
  while (dead) {
    hal_mem_stack_t *const next = (hal_mem_stack_t *)dead->callback.next;
    dead->callback.run = run_release;
    hal_callback_run(&dead->callback);
    dead = next;
  }
}

/* Calls the caller's `capture`; NULL if it has none, the stack is unknown, or the host has no memory. */
static hal_mem_stack_t *capture(const hal_memory_history_desc_t *desc) {
  hal_callback_check();
  hal_mem_stack_t *const stack = hal_malloc(sizeof(*stack));
  if (!stack) return NULL;
  *stack = (hal_mem_stack_t){.release = desc->release, .user_data = desc->user_data};
  atomic_init(&stack->references, 1);
  stack->stack = desc->capture(desc->user_data);
  if (stack->stack) return stack;
  hal_free(stack);
  return NULL;
}

/* `history` is read with the lock held. */
static void enter(hal_allocator_t *allocator, hal_mem_history_t *const *history, uint32_t level,
                  hal_mem_scope_t *out_scope) {
  *out_scope = (hal_mem_scope_t){.outer = current};
  hal_lock(&allocator->lock);
  const hal_memory_history_desc_t desc = (*history)->desc;
  hal_unlock(&allocator->lock);
  /* A thread that defers callbacks holds a lock of the HAL. */
  if (desc.capture && desc.stacks >= level && !hal_callbacks_are_deferred()) out_scope->stack = capture(&desc);
  current = out_scope->stack;
}

void hal_mem_history_enter(hal_allocator_t *allocator, uint32_t level, hal_mem_scope_t *out_scope) {
  enter(allocator, &allocator->history, level, out_scope);
}

void hal_mem_host_history_enter(hal_allocator_t *allocator, uint32_t level, hal_mem_scope_t *out_scope) {
  enter(allocator, &allocator->host.history, level, out_scope);
}

void hal_mem_history_leave(hal_allocator_t *allocator, hal_mem_scope_t *scope) {
  hal_mem_stack_t *dead = atomic_exchange(&allocator->dead_stacks, NULL);
  current = scope->outer;
  hal_mem_stack_drop(scope->stack, &dead);
  hal_mem_stacks_release(dead);
}

/* ---- events ---- */

/* Returns the history that records a block's memory; NULL = it is not recorded. */
static hal_mem_history_t *history_of(const hal_allocator_t *allocator, const hal_block_t *block) {
  if (block->pool->source == HAL_MEM_HOST) return hal_mem_host_is_recorded(allocator) ? allocator->host.history : NULL;
  return hal_mem_is_recorded(allocator) ? allocator->history : NULL;
}

/* Adds a list to the stacks to be released. A thread may take all of them at the same time. */
static void add_dead(hal_allocator_t *allocator, hal_mem_stack_t *dead) {
  while (HAL_UNLIKELY(dead != NULL)) {
    hal_mem_stack_t *const next = (hal_mem_stack_t *)dead->callback.next;
    hal_mem_stack_t *others = atomic_load(&allocator->dead_stacks);
    do {
      dead->callback.next = (hal_callback_t *)others;
    } while (!atomic_compare_exchange_weak(&allocator->dead_stacks, &others, dead));
    dead = next;
  }
}

static void drop(hal_allocator_t *allocator, hal_mem_stack_t *stack) {
  hal_mem_stack_t *dead = NULL;
  hal_mem_stack_drop(stack, &dead);
  add_dead(allocator, dead);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Returns a new event of the history, with its time and a reference to the stack; NULL if none is recorded. */
static hal_memory_event_t *push(hal_allocator_t *allocator, hal_mem_history_t *history, uint32_t action,
                                hal_mem_stack_t *stack) {
  if (history->desc.skip >> action & 1) return NULL;
  hal_mem_stack_t *dead = NULL;
  hal_memory_event_t *const event = hal_mem_ring_push(&history->ring, &dead);
  add_dead(allocator, dead); /* stacks of events that were replaced */
  if (!event) return NULL;
  const int has_stack = history->desc.stacks >= HAL_MEMORY_STACKS_ALLOC;
  *event =
      (hal_memory_event_t){.action = action, .time_ns = now(), .stack = has_stack ? hal_mem_stack_retain(stack) : NULL};
  return event;
}

static void push_block(hal_allocator_t *allocator, hal_mem_history_t *history, uint32_t action,
                       const hal_block_t *block, size_t size, hal_mem_stack_t *stack) {
  hal_memory_event_t *const event = push(allocator, history, action, stack);
  if (!event) return;
  event->address = block->address;
  event->size = size;
  event->stream = block->stream ? block->stream->id : 0;
  event->pool = block->pool->owner ? hal_memory_pool_id(block->pool->owner) : 0;
}

void hal_mem_history_allocated(hal_allocator_t *allocator, hal_block_t *block) {
  hal_mem_history_t *const history = history_of(allocator, block);
  if (!history) return;
  block->stack = hal_mem_stack_retain(current);
  push_block(allocator, history, HAL_MEMORY_EVENT_ALLOC, block, block->requested, current);
}

void hal_mem_history_requested(hal_allocator_t *allocator, const hal_block_t *block) {
  hal_mem_history_t *const history = history_of(allocator, block);
  if (history)
    push_block(allocator, history, HAL_MEMORY_EVENT_FREE_REQUESTED, block, block->requested,
               current ? current : block->stack);
}

void hal_mem_history_freed(hal_allocator_t *allocator, hal_block_t *block) {
  hal_mem_history_t *const history = history_of(allocator, block);
  if (!history) return;
  push_block(allocator, history, HAL_MEMORY_EVENT_FREE_COMPLETED, block, block->requested,
             current ? current : block->stack);
  drop(allocator, block->stack);
  block->stack = NULL;
}

void hal_mem_history_exhausted(hal_allocator_t *allocator, size_t size, size_t free_bytes) {
  if (!hal_mem_is_recorded(allocator)) return;
  hal_memory_event_t *const event = push(allocator, allocator->history, HAL_MEMORY_EVENT_OOM, current);
  if (!event) return;
  event->size = size;
  event->free_bytes = free_bytes;
}

void hal_mem_host_history_exhausted(hal_allocator_t *allocator, size_t size) {
  if (!hal_mem_host_is_recorded(allocator)) return;
  hal_memory_event_t *const event = push(allocator, allocator->host.history, HAL_MEMORY_EVENT_OOM, current);
  if (event) event->size = size;
}

void hal_mem_history_snapshot(hal_allocator_t *allocator) {
  if (!hal_mem_is_recorded(allocator)) return;
  hal_memory_event_t *const event = push(allocator, allocator->history, HAL_MEMORY_EVENT_SNAPSHOT, NULL);
  if (event) event->size = (size_t)hal_mem_stat_current(&allocator->stats, HAL_MEM_ALLOCATED_BYTES);
}

/* ---- segments ---- */

/* Stores the stack of a new segment; without memory of the host the segment has none. */
static void keep_segment(hal_mem_history_t *history, void *address, hal_mem_stack_t *stack) {
  if (history->segment_count == history->segment_capacity) {
    const size_t capacity = history->segment_capacity ? 2 * history->segment_capacity : 64;
    hal_mem_segment_stack_t *const grown = hal_calloc(capacity, sizeof(*grown));
    if (!grown) return;
    if (history->segments) memcpy(grown, history->segments, history->segment_count * sizeof(*grown));
    hal_free(history->segments);
    history->segments = grown;
    history->segment_capacity = capacity;
  }
  history->segments[history->segment_count++] = (hal_mem_segment_stack_t){address, hal_mem_stack_retain(stack)};
}

static hal_mem_segment_stack_t *find_segment(const hal_mem_history_t *history, const void *address) {
  for (size_t i = history->segment_count; i-- > 0;)
    if (history->segments[i].address == address) return &history->segments[i];
  return NULL;
}

void hal_mem_history_segment(hal_allocator_t *allocator, const hal_block_t *block) {
  hal_mem_history_t *const history = history_of(allocator, block);
  if (!history) return;
  push_block(allocator, history, HAL_MEMORY_EVENT_SEGMENT_ALLOC, block, block->size, current);
  if (current) keep_segment(history, block->address, current);
}

void hal_mem_history_segment_freed(hal_allocator_t *allocator, const hal_block_t *block) {
  hal_mem_history_t *const history = history_of(allocator, block);
  if (!history) return;
  hal_mem_segment_stack_t *const segment = find_segment(history, block->address);
  push_block(allocator, history, HAL_MEMORY_EVENT_SEGMENT_FREE, block, block->size,
             current   ? current
             : segment ? segment->stack
                       : NULL);
  if (!segment) return;
  drop(allocator, segment->stack);
  *segment = history->segments[--history->segment_count];
}

void hal_mem_history_mapped(hal_allocator_t *allocator, const hal_mem_pool_t *pool, uint32_t action, void *address,
                            size_t size) {
  if (!hal_mem_is_recorded(allocator)) return;
  hal_memory_event_t *const event = push(allocator, allocator->history, action, current);
  if (!event) return;
  event->address = address;
  event->size = size;
  event->stream = pool->stream->id;
  event->pool = pool->owner ? hal_memory_pool_id(pool->owner) : 0;
}

hal_mem_stack_t *hal_mem_history_segment_stack(const hal_allocator_t *allocator, const hal_block_t *segment) {
  const hal_mem_history_t *const history = history_of(allocator, segment);
  const hal_mem_segment_stack_t *const found = history ? find_segment(history, segment->address) : NULL;
  return found ? found->stack : NULL;
}

/* ---- start and end ---- */

/* One of the two recordings of an allocator. */
typedef struct recording_s {
  hal_allocator_t *allocator;
  hal_mem_history_t **history;
  hal_block_t *maps[2]; /* address maps of the blocks */
  int is_host;
} recording_t;

static recording_t recording_of(hal_allocator_t *allocator, int is_host) {
  return (recording_t){
      .allocator = allocator,
      .history = is_host ? &allocator->host.history : &allocator->history,
      .maps = {is_host ? allocator->host.map : allocator->map, is_host ? allocator->host.registered : NULL},
      .is_host = is_host};
}

static int is_recorded(const recording_t *recording) {
  return recording->is_host ? hal_mem_host_is_recorded(recording->allocator)
                            : hal_mem_is_recorded(recording->allocator);
}

static void set_recorded(const recording_t *recording, int recorded) {
  atomic_uint *const pending = &recording->allocator->pending;
  const unsigned bit = recording->is_host ? HAL_MEM_HOST_RECORDED : HAL_MEM_RECORDED;
  if (recorded)
    atomic_fetch_or_explicit(pending, bit, memory_order_relaxed);
  else
    atomic_fetch_and_explicit(pending, ~bit, memory_order_relaxed);
}

/* Applies a function to the blocks in use of a subtree of an address map, whose depth is small (map.c). */
static void for_each_used(hal_block_t *node, void (*apply)(hal_allocator_t *, hal_block_t *), hal_allocator_t *to) {
  if (!node) return;
  for_each_used(node->left, apply, to);
  for (hal_block_t *block = node; block; block = block->next) {
    const uint32_t state = block->state;
    if (state == HAL_MEM_LEAVING) break; /* its `next` is not a neighbor */
    if (state == HAL_MEM_PLAIN || state == HAL_MEM_SPECIAL || state == HAL_MEM_PENDING) apply(to, block);
  }
  for_each_used(node->right, apply, to);
}

static void clear_stack(hal_allocator_t *allocator, hal_block_t *block) {
  (void)allocator;
  block->stack = NULL;
}

static void drop_stack(hal_allocator_t *allocator, hal_block_t *block) {
  drop(allocator, block->stack);
  block->stack = NULL;
}

/* Removes all events but the last `count`. */
static void shrink(hal_allocator_t *allocator, hal_mem_history_t *history, size_t count) {
  hal_mem_stack_t *dead = NULL;
  hal_mem_ring_shrink(&history->ring, count, &dead);
  add_dead(allocator, dead);
}

static hal_status_t check_desc(const char *function, const hal_memory_history_desc_t *desc) {
  if (!desc || desc->struct_size < sizeof(*desc))
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: set desc->struct_size to sizeof(hal_memory_history_desc_t)",
                         function);
  if (desc->flags & ~HAL_MEMORY_HISTORY_CLEAR)
    return hal_error_set(HAL_UNIMPLEMENTED, "%s: unknown flags 0x%x; known is 0x%x", function,
                         desc->flags & ~HAL_MEMORY_HISTORY_CLEAR, HAL_MEMORY_HISTORY_CLEAR);
  if (desc->stacks > HAL_MEMORY_STACKS_ALL || (desc->stacks && !desc->capture))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "%s: stacks %u, capture %s; expected HAL_MEMORY_STACKS_NONE, or a function that captures "
                         "stacks",
                         function, desc->stacks, desc->capture ? "set" : "NULL");
  return HAL_OK;
}

/* Starts one of the recordings of a device. */
static hal_status_t start(hal_device_t *device, const hal_memory_history_desc_t *desc, int is_host) {
  hal_allocator_t *const allocator = hal_allocator_of(device);
  hal_mem_history_t *created = hal_calloc(1, sizeof(*created));
  if (!created)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for the history", device->label);
  hal_lock(&allocator->lock);
  const recording_t recording = recording_of(allocator, is_host);
  if (!*recording.history) {
    *recording.history = created;
    created = NULL;
  }
  hal_mem_history_t *const history = *recording.history;
  if (!is_recorded(&recording)) {
    for (int i = 0; i < 2; i++) for_each_used(recording.maps[i], clear_stack, allocator);
    set_recorded(&recording, 1);
  }
  history->desc = *desc;
  history->ring.max = desc->max_events < SIZE_MAX ? (size_t)desc->max_events : SIZE_MAX;
  shrink(allocator, history, desc->flags & HAL_MEMORY_HISTORY_CLEAR ? 0 : history->ring.max);
  hal_unlock(&allocator->lock);
  hal_free(created);
  hal_mem_stacks_release(atomic_exchange(&allocator->dead_stacks, NULL));
  return HAL_OK;
}

hal_status_t hal_memory_history_start(int32_t index, const hal_memory_history_desc_t *desc) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(check_desc("hal_memory_history_start", desc));
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  return start(device, desc, 0);
}

hal_status_t hal_host_history_start(int32_t index, const hal_memory_history_desc_t *desc) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(check_desc("hal_host_history_start", desc));
  HAL_RETURN_IF_ERROR(hal_device_get(index, &device));
  return start(device, desc, 1);
}

int hal_host_history_is_recorded(int32_t index) {
  hal_device_t *device;
  return !hal_device_used(index, &device) && device && hal_mem_host_is_recorded(hal_allocator_of(device));
}

/* Ends one of the recordings. */
static void stop(hal_allocator_t *allocator, int is_host) {
  hal_lock(&allocator->lock);
  const recording_t recording = recording_of(allocator, is_host);
  hal_mem_history_t *const history = *recording.history;
  if (history) {
    for (int i = 0; i < 2 && is_recorded(&recording); i++) for_each_used(recording.maps[i], drop_stack, allocator);
    set_recorded(&recording, 0);
    while (history->segment_count) drop(allocator, history->segments[--history->segment_count].stack);
    shrink(allocator, history, 0);
    history->ring.lost = 0;
    hal_mem_ring_destroy(&history->ring);
  }
  hal_unlock(&allocator->lock);
  hal_mem_stacks_release(atomic_exchange(&allocator->dead_stacks, NULL));
}

hal_status_t hal_memory_history_stop(int32_t index) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (device) stop(hal_allocator_of(device), 0);
  return HAL_OK;
}

hal_status_t hal_host_history_stop(int32_t index) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  if (device) stop(hal_allocator_of(device), 1);
  return HAL_OK;
}

void hal_mem_history_stop(hal_allocator_t *allocator) {
  stop(allocator, 0);
  stop(allocator, 1);
}

static void destroy(hal_mem_history_t **history) {
  if (*history) hal_free((*history)->segments);
  hal_free(*history);
  *history = NULL;
}

void hal_mem_history_destroy(hal_allocator_t *allocator) {
  hal_mem_history_stop(allocator);
  destroy(&allocator->history);
  destroy(&allocator->host.history);
}
