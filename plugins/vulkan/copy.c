/* copy.c: copies and fills. The device copies between its buffers, among which is page-locked memory. Other host memory
 * is copied by the worker: directly where the host accesses device memory, else through staging memory. */
#include <hal/plugin_transfer.h>
#include <string.h>

#include "vulkan_plugin.h"

/* One side of a copy: a range of a segment of the lane's device, or host memory. */
typedef struct side_s {
  char *address;
  vulkan_segment_t *segment; /* NULL: host memory */
} side_t;

static VkDeviceSize offset_of(const side_t *side) {
  return side->segment->shift + (VkDeviceSize)(side->address - side->segment->base);
}

/* ---- copies on one device --------------------------------------------------------------------------------------- */

typedef struct copy_s {
  side_t to, from;
  size_t size;
} copy_t;

static hal_status_t copy_buffers(vulkan_lane_t *lane, const side_t *to, const side_t *from, size_t size) {
  VkCommandBuffer commands;
  const hal_status_t status = vulkan_lane_begin(lane, &commands);
  if (status) return status;
  const VkBufferCopy region = {offset_of(from), offset_of(to), size};
  vk.CmdCopyBuffer(commands, from->segment->buffer, to->segment->buffer, 1, &region);
  return HAL_OK;
}

/* Copies one piece of pageable host memory through staging memory. */
static hal_status_t copy_piece(vulkan_lane_t *lane, const copy_t *copy, size_t done, size_t size) {
  const int writes = copy->to.segment != NULL;
  vulkan_segment_t *chunk;
  hal_status_t status = vulkan_chunk_take(lane->device, &chunk);
  if (status) return status;
  const side_t staging = {chunk->base, chunk};
  const side_t near = {(writes ? copy->to.address : copy->from.address) + done,
                       writes ? copy->to.segment : copy->from.segment};
  if (writes) memcpy(chunk->mapped, copy->from.address + done, size);
  status = writes ? copy_buffers(lane, &near, &staging, size) : copy_buffers(lane, &staging, &near, size);
  if (!status && writes) {
    vulkan_lane_keep_chunk(lane, chunk);
    return vulkan_lane_flush(lane);
  }
  if (!status) status = vulkan_lane_wait(lane);
  if (!status) memcpy(copy->to.address + done, chunk->mapped, size);
  vulkan_chunk_give(lane->device, chunk);
  return status;
}

static hal_status_t run_copy(vulkan_lane_t *lane, void *arguments) {
  const copy_t *const copy = arguments;
  const vulkan_segment_t *const to = copy->to.segment, *const from = copy->from.segment;
  hal_status_t status = HAL_OK;
  if (to && from) return copy_buffers(lane, &copy->to, &copy->from, copy->size);
  if ((!to || to->mapped) && (!from || from->mapped)) {
    status = vulkan_lane_wait(lane);
    if (!status) memcpy(copy->to.address, copy->from.address, copy->size);
    return status;
  }
  for (size_t done = 0; done < copy->size && !status; done += VULKAN_CHUNK)
    status = copy_piece(lane, copy, done, copy->size - done < VULKAN_CHUNK ? copy->size - done : VULKAN_CHUNK);
  return status;
}

/* ---- copies between devices ------------------------------------------------------------------------------------- */

typedef struct peer_s {
  char *dst;
  const char *src;
  size_t size;
  int32_t dst_device, src_device;
} peer_t;

/* Copies through host memory, with synchronous copies of both devices. */
static hal_status_t run_peer(vulkan_lane_t *lane, void *arguments) {
  const peer_t *const peer = arguments;
  hal_status_t status = vulkan_lane_wait(lane);
  char *const middle = status ? NULL : hal_host->mem_alloc(VULKAN_CHUNK, VULKAN_ALIGNMENT);
  if (!status && !middle)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory to copy between devices; free some memory");
  for (size_t done = 0; done < peer->size && !status; done += VULKAN_CHUNK) {
    const size_t size = peer->size - done < VULKAN_CHUNK ? peer->size - done : VULKAN_CHUNK;
    status = hal_plugin_memory_copy(NULL, middle, HAL_HOST, peer->src + done, peer->src_device, size);
    if (!status) status = hal_plugin_memory_copy(NULL, peer->dst + done, peer->dst_device, middle, HAL_HOST, size);
  }
  hal_host->mem_free(middle);
  return status;
}

/* ---- memory_copy ------------------------------------------------------------------------------------------------ */

/* Finds the segment of a side. Host memory has none, unless it is page-locked memory of the device. */
static hal_status_t find_side(const vulkan_device_t *device, int32_t place, const void *address, size_t size,
                              side_t *out_side) {
  vulkan_segment_t *segment = vulkan_map_find(address);
  if (place == HAL_HOST && segment && (segment->kind < VULKAN_PINNED || segment->device != device->ordinal))
    segment = NULL;
  if (place == HAL_HOST && segment && size > segment->size - (size_t)((const char *)address - segment->base))
    segment = NULL;
  *out_side = (side_t){(char *)(uintptr_t)address, segment};
  if (place == HAL_HOST) return HAL_OK;
  if (!segment || segment->kind >= VULKAN_PINNED || segment->device != place ||
      size > segment->size - (size_t)((const char *)address - segment->base))
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: %zu bytes at %p are not in an allocation of device %d", size,
                        address, (int)place);
  return HAL_OK;
}

static hal_status_t check_place(int32_t place) { return place == HAL_HOST ? HAL_OK : vulkan_check_alive(place); }

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  vulkan_label_t label = {.op = "memory_copy",
                          .measured = 1,
                          .kind = HAL_PROFILE_COPY,
                          .direction = hal_copy_direction(dst_device, src_device),
                          .bytes = size};
  if (!size) return HAL_OK;
  hal_status_t status = check_place(dst_device);
  if (!status) status = check_place(src_device);
  if (status) return status;
  if (dst_device == HAL_HOST && src_device == HAL_HOST)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: memory_copy between host memory and host memory");
  vulkan_device_t *const device =
      stream ? stream->device : &vulkan.devices[dst_device != HAL_HOST ? dst_device : src_device];
  if ((dst_device != HAL_HOST && dst_device != device->ordinal) ||
      (src_device != HAL_HOST && src_device != device->ordinal)) {
    const peer_t peer = {dst, src, size, dst_device, src_device};
    return vulkan_submit(stream, device, label, run_peer, &peer, sizeof peer);
  }
  copy_t copy = {.size = size};
  status = find_side(device, dst_device, dst, size, &copy.to);
  if (!status) status = find_side(device, src_device, src, size, &copy.from);
  label.is_recordable = copy.to.segment && copy.from.segment;
  return status ? status : vulkan_submit(stream, device, label, run_copy, &copy, sizeof copy);
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

typedef struct fill_s {
  vulkan_segment_t *segment;
  VkDeviceSize offset; /* in the buffer */
  size_t size, pattern_size;
  unsigned char pattern[16];
} fill_t;

/* Takes staging memory with at least `bytes` bytes of the repeated pattern. */
static hal_status_t take_pattern(vulkan_lane_t *lane, const fill_t *fill, size_t bytes, vulkan_segment_t **out_chunk) {
  const hal_status_t status = vulkan_chunk_take(lane->device, out_chunk);
  if (status) return status;
  char *const at = (*out_chunk)->mapped;
  size_t done = fill->pattern_size;
  memcpy(at, fill->pattern, done);
  for (; done < bytes && 2 * done <= VULKAN_CHUNK; done *= 2) memcpy(at + done, at, done);
  return HAL_OK;
}

/* Copies the repeated pattern to a range that begins `phase` bytes after the start of a pattern. */
static void copy_pattern(VkCommandBuffer commands, const fill_t *fill, const vulkan_segment_t *chunk, size_t phase,
                         VkDeviceSize offset, size_t size) {
  const VkBufferCopy region = {chunk->shift + phase, offset, size};
  if (size) vk.CmdCopyBuffer(commands, chunk->buffer, fill->segment->buffer, 1, &region);
}

/* vkCmdFillBuffer writes whole words. The bytes before and after them are copied from staging memory. */
static hal_status_t fill_words(vulkan_lane_t *lane, const fill_t *fill) {
  const size_t gap = -fill->offset & 3, head = gap < fill->size ? gap : fill->size;
  const size_t words = (fill->size - head) & ~(size_t)3, tail = fill->size - head - words;
  unsigned char bytes[4];
  VkCommandBuffer commands;
  vulkan_segment_t *chunk = NULL;
  uint32_t word;
  for (size_t i = 0; i < 4; i++) bytes[i] = fill->pattern[(head + i) % fill->pattern_size];
  memcpy(&word, bytes, sizeof word);
  hal_status_t status = head || tail ? take_pattern(lane, fill, 16, &chunk) : HAL_OK;
  if (!status) {
    status = vulkan_lane_begin(lane, &commands);
    if (status && chunk) vulkan_chunk_give(lane->device, chunk);
  }
  if (status) return status;
  if (words) vk.CmdFillBuffer(commands, fill->segment->buffer, fill->offset + head, words, word);
  if (!chunk) return HAL_OK;
  copy_pattern(commands, fill, chunk, 0, fill->offset, head);
  copy_pattern(commands, fill, chunk, (head + words) % fill->pattern_size, fill->offset + head + words, tail);
  vulkan_lane_keep_chunk(lane, chunk);
  return HAL_OK;
}

static hal_status_t run_fill(vulkan_lane_t *lane, void *arguments) {
  const fill_t *const fill = arguments;
  VkCommandBuffer commands;
  vulkan_segment_t *chunk;
  if (fill->pattern_size <= 4) return fill_words(lane, fill);
  hal_status_t status = take_pattern(lane, fill, fill->size, &chunk);
  if (status) return status;
  status = vulkan_lane_begin(lane, &commands);
  if (status) {
    vulkan_chunk_give(lane->device, chunk);
    return status;
  }
  for (size_t done = 0; done < fill->size; done += VULKAN_CHUNK)
    copy_pattern(commands, fill, chunk, 0, fill->offset + done,
                 fill->size - done < VULKAN_CHUNK ? fill->size - done : VULKAN_CHUNK);
  vulkan_lane_keep_chunk(lane, chunk);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t ordinal, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  const vulkan_label_t label = {
      .op = "memory_fill", .is_recordable = 1, .measured = 1, .kind = HAL_PROFILE_FILL, .bytes = size};
  side_t side;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_fill_check("vulkan", dst, pattern, pattern_size, size);
  if (status || !size) return status;
  vulkan_device_t *const device = &vulkan.devices[ordinal];
  status = find_side(device, ordinal, dst, size, &side);
  if (status) return status;
  fill_t fill = {.segment = side.segment,
                 .offset = offset_of(&side),
                 .size = size,
                 .pattern_size = hal_fill_shortest(pattern, pattern_size)};
  memcpy(fill.pattern, pattern, fill.pattern_size);
  return vulkan_submit(stream, device, label, run_fill, &fill, sizeof fill);
}
