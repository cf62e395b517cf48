/* history_read.c: copies of an allocator's blocks and recorded events. */
#include <string.h>

#include "base/host_malloc.h"
#include "memory/history.h"

struct hal_memory_history_s {
  hal_memory_event_t *events; /* `stack` is a hal_mem_stack_t with a reference, also in the blocks */
  hal_memory_block_info_t *blocks;
  size_t event_count, block_count;
  size_t event_capacity, block_capacity;
  uint64_t lost;
};

static void retain_stacks(const hal_memory_block_info_t *blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    hal_mem_stack_retain(blocks[i].stack);
    hal_mem_stack_retain(blocks[i].segment_stack);
  }
}

/* Copies blocks and events of one moment. Returns whether they fit; otherwise sets only the counts. As in torch, the
 * history of host memory has no event of the copy. */
static int copy(hal_allocator_t *allocator, int is_host, hal_memory_history_t *to) {
  size_t (*const list)(const hal_allocator_t *, void *, size_t, size_t) =
      is_host ? hal_mem_list_host_blocks : hal_mem_list_blocks;
  const hal_mem_history_t *const history = is_host ? allocator->host.history : allocator->history;
  const size_t events = history ? history->ring.count : 0;
  to->event_count = events;
  to->block_count = list(allocator, NULL, 0, 0);
  if (to->block_count > to->block_capacity || events + 1 > to->event_capacity) return 0;
  list(allocator, to->blocks, sizeof(*to->blocks), to->block_count);
  retain_stacks(to->blocks, to->block_count);
  if (!history) return 1;
  if (!is_host) hal_mem_history_snapshot(allocator);
  to->event_count = history->ring.count;
  to->lost = history->ring.lost;
  hal_mem_ring_copy(&history->ring, to->events);
  return 1;
}

/* Allocates arrays that are larger than the counts, since other threads may allocate meanwhile. */
static int reserve(hal_memory_history_t *to) {
  hal_free(to->events);
  hal_free(to->blocks);
  to->event_capacity = to->event_count + to->event_count / 8 + 64;
  to->block_capacity = to->block_count + to->block_count / 8 + 64;
  to->events = hal_calloc(to->event_capacity, sizeof(*to->events));
  to->blocks = hal_calloc(to->block_capacity, sizeof(*to->blocks));
  return to->events && to->blocks;
}

static void destroy(hal_memory_history_t *history) {
  hal_free(history->events);
  hal_free(history->blocks);
  hal_free(history);
}

static hal_status_t read_history(int32_t index, int is_host, hal_memory_history_t **out_history) {
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  hal_memory_history_t *const history = hal_calloc(1, sizeof(*history));
  if (!history) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "the host has no memory for a copy of the history");
  hal_allocator_t *const allocator = device ? hal_allocator_of(device) : NULL;
  for (int done = !device; !done;) {
    hal_lock(&allocator->lock);
    done = copy(allocator, is_host, history);
    hal_unlock(&allocator->lock);
    if (!done && !reserve(history)) {
      destroy(history);
      return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for a copy of the history",
                           device->label);
    }
  }
  if (allocator) /* the event of this call may have replaced one with a stack */
    hal_mem_stacks_release(atomic_exchange(&allocator->dead_stacks, NULL));
  *out_history = history;
  return HAL_OK;
}

hal_status_t hal_memory_history_read(int32_t index, hal_memory_history_t **out_history) {
  return read_history(index, 0, out_history);
}

hal_status_t hal_host_history_read(int32_t index, hal_memory_history_t **out_history) {
  return read_history(index, 1, out_history);
}

void hal_memory_history_release(hal_memory_history_t *history) {
  hal_mem_stack_t *dead = NULL;
  if (!history) return;
  for (size_t i = 0; i < history->event_count; i++) hal_mem_stack_drop(history->events[i].stack, &dead);
  for (size_t i = 0; i < history->block_count; i++) {
    hal_mem_stack_drop(history->blocks[i].stack, &dead);
    hal_mem_stack_drop(history->blocks[i].segment_stack, &dead);
  }
  destroy(history);
  hal_mem_stacks_release(dead);
}

size_t hal_memory_history_events(const hal_memory_history_t *history) { return history->event_count; }
size_t hal_memory_history_blocks(const hal_memory_history_t *history) { return history->block_count; }
uint64_t hal_memory_history_lost(const hal_memory_history_t *history) { return history->lost; }

static void *stack_of(const hal_mem_stack_t *stack) { return stack ? stack->stack : NULL; }

/* Copies an entry to the caller, whose struct may be shorter or longer. */
static void deliver(const void *entry, size_t entry_size, void *out, size_t out_size) {
  memset(out, 0, out_size);
  memcpy(out, entry, out_size < entry_size ? out_size : entry_size);
}

static hal_status_t check_index(const char *function, size_t index, size_t count, const void *out) {
  if (out && index < count) return HAL_OK;
  return hal_error_set(HAL_OUT_OF_RANGE, "%s: entry %zu of %zu at %p; pass a smaller number, and an address", function,
                       index, count, out);
}

hal_status_t hal_memory_history_event(const hal_memory_history_t *history, size_t index, hal_memory_event_t *out_event,
                                      size_t size) {
  HAL_RETURN_IF_ERROR(check_index("hal_memory_history_event", index, history->event_count, out_event));
  hal_memory_event_t event = history->events[index];
  event.stack = stack_of(event.stack);
  deliver(&event, sizeof(event), out_event, size);
  return HAL_OK;
}

hal_status_t hal_memory_history_block(const hal_memory_history_t *history, size_t index,
                                      hal_memory_block_info_t *out_block, size_t size) {
  HAL_RETURN_IF_ERROR(check_index("hal_memory_history_block", index, history->block_count, out_block));
  hal_memory_block_info_t block = history->blocks[index];
  block.stack = stack_of(block.stack);
  block.segment_stack = stack_of(block.segment_stack);
  deliver(&block, sizeof(block), out_block, size);
  return HAL_OK;
}
