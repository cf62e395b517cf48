/* snapshot.c: lists the blocks of a device's allocator, with their segments. */
#include <string.h>

#include "memory/expand/expand.h"
#include "memory/history.h"
#include "memory/pool.h"

/* The caller's array: entries of `stride` bytes, whose struct may be shorter or longer than hal_memory_block_info_t. */
typedef struct list_s {
  char *at;
  size_t stride, room, count;
  const hal_allocator_t *allocator;
  int is_recorded; /* the stacks are listed */
} list_t;

static uint32_t state_of(const hal_block_t *block) {
  switch (block->state) {
    case HAL_MEM_PLAIN:
    case HAL_MEM_SPECIAL:
      return HAL_MEMORY_BLOCK_ALLOCATED;
    case HAL_MEM_PENDING:
      return HAL_MEMORY_BLOCK_PENDING;
    default:
      return HAL_MEMORY_BLOCK_FREE;
  }
}

/* A segment, or a part of an expandable one that has memory. */
typedef struct segment_s {
  void *address;
  size_t size;
  uint32_t flags;
  hal_mem_stack_t *stack; /* of its allocation */
} segment_t;

static void add(list_t *list, const segment_t *segment, const hal_block_t *block) {
  const hal_mem_pool_t *pool = block->pool;
  const uint32_t state = state_of(block);
  const hal_memory_block_info_t info = {
      .address = block->address,
      .segment = segment->address,
      .size = block->size,
      .requested = state == HAL_MEMORY_BLOCK_FREE ? 0 : block->requested,
      .segment_size = segment->size,
      .stream = block->stream ? hal_stream_id(block->stream) : 0,
      .pool = pool->owner ? hal_memory_pool_id(pool->owner) : 0,
      .state = state,
      .kind = pool->kind == HAL_MEM_SMALL ? HAL_POOL_SMALL : HAL_POOL_LARGE,
      .stack = list->is_recorded && state != HAL_MEMORY_BLOCK_FREE ? block->stack : NULL,
      .segment_stack = segment->stack,
      .flags = segment->flags,
  };
  if (list->count++ >= list->room) return;
  memset(list->at, 0, list->stride);
  memcpy(list->at, &info, list->stride < sizeof(info) ? list->stride : sizeof(info));
  list->at += list->stride;
}

static int has_memory(const hal_block_t *block) {
  return block->state != HAL_MEM_UNMAPPED && block->state != HAL_MEM_MOVING;
}

/* Adds the parts of an expandable segment that have memory. */
static void add_parts(list_t *list, segment_t *segment, const hal_block_t *block) {
  while (block) {
    segment->address = block->address;
    segment->size = 0;
    for (const hal_block_t *at = block; at && has_memory(at); at = at->next) segment->size += at->size;
    for (; block && has_memory(block); block = block->next) add(list, segment, block);
    if (block) block = block->next;
  }
}

/* Adds the segments of a subtree of the address map, in the order of their addresses; its depth is small (map.c). */
static void add_segments(list_t *list, const hal_block_t *node) {
  if (!node) return;
  add_segments(list, node->left);
  const hal_mem_range_t *const range = hal_mem_range_of(list->allocator, node);
  segment_t segment = {.address = node->address, .size = node->extent};
  if (range) segment.flags = HAL_MEMORY_BLOCK_EXPANDABLE;
  if (list->is_recorded && list->room) segment.stack = hal_mem_history_segment_stack(list->allocator, node);
  if (range && range->first) {
    add_parts(list, &segment, node);
  } else {
    add(list, &segment, node);
    /* The `next` of a segment that is being freed links such segments. */
    const hal_block_t *block = node->state != HAL_MEM_LEAVING ? node->next : NULL;
    for (; block; block = block->next) add(list, &segment, block);
  }
  add_segments(list, node->right);
}

size_t hal_mem_list_blocks(const hal_allocator_t *allocator, void *blocks, size_t stride, size_t capacity) {
  list_t list = {.at = blocks,
                 .stride = stride,
                 .room = capacity,
                 .allocator = allocator,
                 .is_recorded = hal_mem_is_recorded(allocator)};
  add_segments(&list, allocator->map);
  return list.count;
}

/* Adds the blocks of host memory of a subtree of their map, in the order of their addresses. */
static void add_host_blocks(list_t *list, const hal_block_t *node) {
  if (!node) return;
  add_host_blocks(list, node->left);
  segment_t segment = {.address = node->address, .size = node->size};
  if (list->is_recorded && list->room) segment.stack = hal_mem_history_segment_stack(list->allocator, node);
  add(list, &segment, node);
  add_host_blocks(list, node->right);
}

size_t hal_mem_list_host_blocks(const hal_allocator_t *allocator, void *blocks, size_t stride, size_t capacity) {
  list_t list = {.at = blocks,
                 .stride = stride,
                 .room = capacity,
                 .allocator = allocator,
                 .is_recorded = hal_mem_host_is_recorded(allocator)};
  add_host_blocks(&list, allocator->host.map);
  add_host_blocks(&list, allocator->host.registered);
  return list.count;
}

hal_status_t hal_memory_blocks(int32_t index, hal_memory_block_info_t *blocks, size_t stride, size_t room,
                               size_t *out_count) {
  if (!out_count || (room && (!blocks || stride < sizeof(void *))))
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "hal_memory_blocks: invalid array for %zu blocks of %zu bytes at %p, count at %p; pass an array, the size of "
        "its elements, and an address for the count",
        room, stride, (void *)blocks, (void *)out_count);
  hal_device_t *device;
  HAL_RETURN_IF_ERROR(hal_device_used(index, &device));
  list_t list = {.at = (char *)blocks, .stride = stride, .room = room};
  if (device) {
    list.allocator = hal_allocator_of(device);
    hal_lock(&hal_allocator_of(device)->lock);
    add_segments(&list, hal_allocator_of(device)->map);
    hal_unlock(&hal_allocator_of(device)->lock);
  }
  *out_count = list.count;
  return HAL_OK;
}
