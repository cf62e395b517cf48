/* submit.c: commands are recorded into command buffers and submitted together. A barrier before each command orders it
 * after all earlier commands of the queue. A timeline semaphore, whose value grows with each submission, reports
 * completion to the host and to other queues. */
#include <string.h>

#include "module.h"

/* ---- timelines -------------------------------------------------------------------------------------------------- */

void vulkan_timeline_keep(vulkan_timeline_t *timeline) { atomic_fetch_add(&timeline->users, 1); }

void vulkan_timeline_drop(vulkan_timeline_t *timeline) {
  if (atomic_fetch_sub(&timeline->users, 1) != 1) return;
  vk.DestroySemaphore(timeline->device->handle, timeline->semaphore, NULL);
  hal_host->mem_free(timeline);
}

VkResult vulkan_timeline_wait(vulkan_timeline_t *timeline, uint64_t value, int64_t timeout_ns) {
  const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                    .semaphoreCount = 1,
                                    .pSemaphores = &timeline->semaphore,
                                    .pValues = &value};
  if (!value) return VK_SUCCESS;
  if (atomic_load(&timeline->device->lost)) return VK_ERROR_DEVICE_LOST;
  const VkResult code = vk.WaitSemaphores(
      timeline->device->handle, &info, timeout_ns < 0 || timeout_ns == INT64_MAX ? UINT64_MAX : (uint64_t)timeout_ns);
  vulkan_noticed(timeline->device, code);
  return code;
}

hal_status_t vulkan_timeline_query(vulkan_timeline_t *timeline, uint64_t value) {
  uint64_t reached = 0;
  if (!value) return HAL_OK;
  if (atomic_load(&timeline->device->lost)) return HAL_UNAVAILABLE;
  const VkResult code = vk.GetSemaphoreCounterValue(timeline->device->handle, timeline->semaphore, &reached);
  vulkan_noticed(timeline->device, code);
  if (code) return vulkan_status(code);
  return reached >= value ? HAL_OK : HAL_NOT_READY;
}

static VkResult create_timeline(vulkan_device_t *device, vulkan_timeline_t **out_timeline) {
  const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  vulkan_timeline_t *const timeline = hal_host->mem_alloc(sizeof *timeline, alignof(vulkan_timeline_t));
  if (!timeline) return VK_ERROR_OUT_OF_HOST_MEMORY;
  *timeline = (vulkan_timeline_t){.device = device, .users = 1};
  const VkResult code = vk.CreateSemaphore(device->handle, &info, NULL, &timeline->semaphore);
  if (code)
    hal_host->mem_free(timeline);
  else
    *out_timeline = timeline;
  return code;
}

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

static VkResult create_buffers(vulkan_lane_t *lane) {
  const VkCommandPoolCreateInfo pool = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
      .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT | VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
      .queueFamilyIndex = lane->device->family};
  VkCommandBuffer buffers[VULKAN_FLIGHTS];
  VkResult code = vk.CreateCommandPool(lane->device->handle, &pool, NULL, &lane->pool);
  if (code) return code;
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = lane->pool,
                                            .commandBufferCount = VULKAN_FLIGHTS};
  code = vk.AllocateCommandBuffers(lane->device->handle, &info, buffers);
  for (int i = 0; i < VULKAN_FLIGHTS && !code; i++) lane->flights[i].commands = buffers[i];
  return code;
}

hal_status_t vulkan_lane_create(vulkan_device_t *device, uint32_t queue, vulkan_lane_t **out_lane) {
  vulkan_lane_t *const lane = hal_host->mem_alloc(sizeof *lane, alignof(vulkan_lane_t));
  if (!lane) return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a stream; free some memory");
  memset(lane, 0, sizeof *lane);
  lane->device = device;
  lane->queue = &device->queues[queue];
  lane->sets = VULKAN_COMMANDS;
  lane->buffers = VULKAN_COMMANDS * HAL_SPIRV_ARGS;
  VkResult code = create_timeline(device, &lane->timeline);
  if (!code) code = create_buffers(lane);
  if (!code) {
    *out_lane = lane;
    return HAL_OK;
  }
  if (lane->timeline) vulkan_timeline_drop(lane->timeline);
  vk.DestroyCommandPool(device->handle, lane->pool, NULL);
  hal_host->mem_free(lane);
  vulkan_noticed(device, code);
  return vulkan_driver_error(code, "vulkan: cannot create command buffers of '%s'", device->facts.deviceName);
}

hal_status_t vulkan_lane_create_reusable(vulkan_device_t *device, uint32_t sets, uint32_t buffers,
                                         vulkan_lane_t **out_lane) {
  const hal_status_t status = vulkan_lane_create(device, 0, out_lane);
  if (status) return status;
  (*out_lane)->sets = sets;
  (*out_lane)->buffers = buffers ? buffers : 1; /* a pool holds at least one */
  (*out_lane)->is_reusable = 1;
  return HAL_OK;
}

/* Releases what completed commands used. */
static void release(vulkan_lane_t *lane, vulkan_flight_t *flight) {
  flight->shared = NULL;
  for (vulkan_segment_t *chunk; (chunk = flight->chunks);) {
    flight->chunks = chunk->next;
    vulkan_chunk_give(lane->device, chunk);
  }
  for (vulkan_record_t *record; (record = flight->records);) {
    flight->records = *vulkan_record_link(record);
    vulkan_record_drop(record);
  }
}

static void retire(vulkan_lane_t *lane) {
  release(lane, &lane->flights[lane->first]);
  lane->first = (lane->first + 1) % VULKAN_FLIGHTS;
  lane->count--;
}

void vulkan_lane_destroy(vulkan_lane_t *lane) {
  if (lane->is_reusable) lane->open = 0; /* its commands are never submitted here */
  vulkan_lane_wait(lane);
  while (lane->count) retire(lane); /* after the loss of the device */
  for (int i = 0; i < VULKAN_FLIGHTS; i++) {
    release(lane, &lane->flights[i]);
    vk.DestroyDescriptorPool(lane->device->handle, lane->flights[i].sets, NULL);
  }
  vk.DestroyCommandPool(lane->device->handle, lane->pool, NULL);
  vulkan_timeline_drop(lane->timeline);
  hal_host->mem_free(lane);
}

/* ---- recording -------------------------------------------------------------------------------------------------- */

static vulkan_flight_t *current(vulkan_lane_t *lane) {
  return &lane->flights[(lane->first + lane->count) % VULKAN_FLIGHTS];
}

static hal_status_t failed(vulkan_lane_t *lane, VkResult code, const char *call) {
  lane->code = code;
  vulkan_noticed(lane->device, code);
  return vulkan_driver_error(code, "vulkan: %s failed on device %d (%s)", call, (int)lane->device->ordinal,
                             lane->device->facts.deviceName);
}

/* Makes the writes of all earlier commands of the queue available, to later commands or to the host. */
static void barrier(VkCommandBuffer commands, VkFlags stage, VkFlags access) {
#ifndef VULKAN_NO_BARRIERS /* a test builds the plugin without them: the validation layer reports that */
  const VkMemoryBarrier memory = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT, .dstAccessMask = access};
  vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, stage, 0, 1, &memory, 0, NULL, 0, NULL);
#else
  (void)commands, (void)stage, (void)access;
#endif
}

/* Takes a command buffer; waits for the oldest submission if all are in use. */
static hal_status_t open_buffer(vulkan_lane_t *lane) {
  uint64_t reached = 0;
  VkResult code = vk.GetSemaphoreCounterValue(lane->device->handle, lane->timeline->semaphore, &reached);
  while (!code && lane->count && lane->flights[lane->first].value <= reached) retire(lane);
  if (!code && lane->count == VULKAN_FLIGHTS) {
    code = vulkan_timeline_wait(lane->timeline, lane->flights[lane->first].value, INT64_MAX);
    if (!code) retire(lane);
  }
  if (code) return failed(lane, code, "vkWaitSemaphores");
  vulkan_flight_t *const flight = current(lane);
  const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = lane->is_reusable ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                                                                    : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  if (flight->sets) code = vk.ResetDescriptorPool(lane->device->handle, flight->sets, 0);
  if (!code) code = vk.BeginCommandBuffer(flight->commands, &info);
  return code ? failed(lane, code, "vkBeginCommandBuffer") : HAL_OK;
}

hal_status_t vulkan_lane_begin(vulkan_lane_t *lane, VkCommandBuffer *out_commands) {
  const hal_status_t status = lane->open ? HAL_OK : open_buffer(lane);
  if (status) return status;
  lane->open++;
  *out_commands = current(lane)->commands;
  barrier(*out_commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  return HAL_OK;
}

void vulkan_lane_keep_chunk(vulkan_lane_t *lane, vulkan_segment_t *chunk) {
  vulkan_flight_t *const flight = current(lane);
  chunk->next = flight->chunks;
  flight->chunks = chunk;
}

hal_status_t vulkan_lane_share(vulkan_lane_t *lane, size_t size, vulkan_segment_t **out_chunk, size_t *out_offset) {
  const size_t room = (size + VULKAN_ALIGNMENT - 1) & ~(size_t)(VULKAN_ALIGNMENT - 1);
  vulkan_flight_t *const flight = current(lane);
  if (!flight->shared || flight->shared_used + room > VULKAN_CHUNK) {
    vulkan_segment_t *chunk;
    const hal_status_t status = vulkan_chunk_take(lane->device, &chunk);
    if (status) return status;
    vulkan_lane_keep_chunk(lane, chunk);
    flight->shared = chunk;
    flight->shared_used = 0;
  }
  *out_chunk = flight->shared;
  *out_offset = flight->shared_used;
  flight->shared_used += room;
  return HAL_OK;
}

void vulkan_lane_keep_record(vulkan_lane_t *lane, vulkan_record_t *record) {
  vulkan_flight_t *const flight = current(lane);
  *vulkan_record_link(record) = flight->records;
  flight->records = record;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

/* Creates the pool of the descriptor sets of one command buffer. */
static VkResult create_pool(vulkan_lane_t *lane, vulkan_flight_t *flight) {
  const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, lane->buffers};
  const VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                           .maxSets = lane->sets,
                                           .poolSizeCount = 1,
                                           .pPoolSizes = &size};
  return vk.CreateDescriptorPool(lane->device->handle, &info, NULL, &flight->sets);
}

hal_status_t vulkan_lane_bind(vulkan_lane_t *lane, const hal_plugin_kernel_t *kernel,
                              const VkDescriptorBufferInfo *buffers) {
  vulkan_flight_t *const flight = current(lane);
  const uint32_t count = kernel->signature.bindings;
  VkWriteDescriptorSet writes[HAL_SPIRV_ARGS];
  VkDescriptorSet set = NULL;
  VkResult code = flight->sets ? VK_SUCCESS : create_pool(lane, flight);
  const VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                            .descriptorPool = flight->sets,
                                            .descriptorSetCount = 1,
                                            .pSetLayouts = &kernel->set_layout};
  if (!code) code = vk.AllocateDescriptorSets(lane->device->handle, &info, &set);
  if (code) return failed(lane, code, "vkAllocateDescriptorSets");
  for (uint32_t i = 0; i < count; i++)
    writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                       .dstSet = set,
                                       .dstBinding = i,
                                       .descriptorCount = 1,
                                       .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                       .pBufferInfo = &buffers[i]};
  vk.UpdateDescriptorSets(lane->device->handle, count, writes, 0, NULL);
  vk.CmdBindDescriptorSets(flight->commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout, 0, 1, &set, 0, NULL);
  return HAL_OK;
}

/* ---- submitting ------------------------------------------------------------------------------------------------- */

/* Submits the current command buffer, or none, which may wait for another timeline first. */
static VkResult submit(vulkan_lane_t *lane, const VkCommandBuffer *commands, const vulkan_timeline_t *other,
                       uint64_t wait, uint64_t signal) {
  const VkFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                .waitSemaphoreValueCount = other ? 1 : 0,
                                                .pWaitSemaphoreValues = &wait,
                                                .signalSemaphoreValueCount = 1,
                                                .pSignalSemaphoreValues = &signal};
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = &values,
                             .waitSemaphoreCount = other ? 1 : 0,
                             .pWaitSemaphores = other ? &other->semaphore : NULL,
                             .pWaitDstStageMask = &stage,
                             .commandBufferCount = commands ? 1 : 0,
                             .pCommandBuffers = commands,
                             .signalSemaphoreCount = 1,
                             .pSignalSemaphores = &lane->timeline->semaphore};
  pthread_mutex_lock(&lane->queue->lock);
  const VkResult code = vk.QueueSubmit(lane->queue->queue, 1, &info, NULL);
  pthread_mutex_unlock(&lane->queue->lock);
  return code;
}

hal_status_t vulkan_lane_flush(vulkan_lane_t *lane) {
  if (!lane->open) return HAL_OK;
  vulkan_flight_t *const flight = current(lane);
  const uint64_t value = atomic_load(&lane->submitted) + 1;
  barrier(flight->commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  lane->open = 0;
  VkResult code = vk.EndCommandBuffer(flight->commands);
  if (!code) code = submit(lane, &flight->commands, NULL, 0, value);
  if (code) {
    release(lane, flight);
    return failed(lane, code, "vkQueueSubmit");
  }
  flight->value = value;
  lane->count++;
  atomic_store(&lane->submitted, value);
  return HAL_OK;
}

hal_status_t vulkan_lane_wait(vulkan_lane_t *lane) {
  const hal_status_t status = vulkan_lane_flush(lane);
  if (status) return status;
  const VkResult code = vulkan_timeline_wait(lane->timeline, atomic_load(&lane->submitted), INT64_MAX);
  if (code) return failed(lane, code, "vkWaitSemaphores");
  while (lane->count) retire(lane);
  return HAL_OK;
}

/* A wait of a submission without commands holds for all later submissions of the queue. */
hal_status_t vulkan_lane_wait_for(vulkan_lane_t *lane, vulkan_timeline_t *timeline, uint64_t value) {
  const hal_status_t status = vulkan_lane_flush(lane);
  if (status) return status;
  const uint64_t signal = atomic_load(&lane->submitted) + 1;
  const VkResult code = submit(lane, NULL, timeline, value, signal);
  if (code) return failed(lane, code, "vkQueueSubmit");
  atomic_store(&lane->submitted, signal);
  return HAL_OK;
}

/* ---- reusable command buffers ----------------------------------------------------------------------------------- */

hal_status_t vulkan_lane_end(vulkan_lane_t *reusable) {
  const VkCommandBuffer commands = current(reusable)->commands;
  barrier(commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  const VkResult code = vk.EndCommandBuffer(commands);
  return code ? failed(reusable, code, "vkEndCommandBuffer") : HAL_OK;
}

hal_status_t vulkan_lane_replay(vulkan_lane_t *lane, const vulkan_lane_t *reusable) {
  const hal_status_t status = vulkan_lane_flush(lane);
  if (status) return status;
  const uint64_t signal = atomic_load(&lane->submitted) + 1;
  const VkResult code = submit(lane, &reusable->flights[0].commands, NULL, 0, signal);
  if (code) return failed(lane, code, "vkQueueSubmit");
  atomic_store(&lane->submitted, signal);
  return HAL_OK;
}

/* ---- lanes of synchronous work ---------------------------------------------------------------------------------- */

hal_status_t vulkan_lane_borrow(vulkan_device_t *device, vulkan_lane_t **out_lane) {
  pthread_mutex_lock(&device->lock);
  vulkan_lane_t *const lane = device->lanes;
  if (lane) device->lanes = lane->next;
  pthread_mutex_unlock(&device->lock);
  if (!lane)
    return vulkan_lane_create(device, atomic_fetch_add(&device->next_queue, 1) % device->queue_count, out_lane);
  *out_lane = lane;
  return HAL_OK;
}

void vulkan_lane_return(vulkan_lane_t *lane) {
  pthread_mutex_lock(&lane->device->lock);
  lane->next = lane->device->lanes;
  lane->device->lanes = lane;
  pthread_mutex_unlock(&lane->device->lock);
}
