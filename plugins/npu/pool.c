/* pool.c: events of the driver, which are created in pools and reused. Every command has one: the next command waits
 * for it, and it provides the end of the command and its times. */
#include <string.h>

#include "npu.h"

enum { POOL_EVENTS = 256 };

typedef struct npu_pool_s {
  struct npu_pool_s *next;
  ze_event_pool_handle_t handle;
  uint64_t *stamps;
  uint32_t count;
  npu_event_t events[POOL_EVENTS];
} npu_pool_t;

static void destroy_pool(npu_pool_t *pool) {
  for (uint32_t i = 0; i < pool->count; i++) ze.zeEventDestroy(pool->events[i].handle);
  if (pool->stamps) ze.zeMemFree(npu.context, pool->stamps);
  if (pool->handle) ze.zeEventPoolDestroy(pool->handle);
  hal_host->mem_free(pool);
}

static ze_result_t fill_pool(npu_pool_t *pool, int32_t device) {
  ze_device_handle_t devices[NPU_MAX_DEVICES];
  const ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                     .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                     .count = POOL_EVENTS};
  const ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
  void *stamps = NULL;
  for (int32_t i = 0; i < npu.device_count; i++)
    devices[i] = npu.devices[i].handle; /* another device may wait for it */
  ze_result_t code = ze.zeEventPoolCreate(npu.context, &desc, (uint32_t)npu.device_count, devices, &pool->handle);
  if (!code)
    code = ze.zeMemAllocHost(npu.context, &host, POOL_EVENTS * sizeof *pool->stamps, sizeof(uint64_t), &stamps);
  pool->stamps = stamps;
  for (uint32_t i = 0; i < POOL_EVENTS && !code; i++) {
    const ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                   .index = i,
                                   .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                   .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    code = ze.zeEventCreate(pool->handle, &event, &pool->events[i].handle);
    if (code) break;
    pool->count++;
    pool->events[i].device = device;
    pool->events[i].stamp = &pool->stamps[i];
  }
  return code;
}

/* Adds a pool. The caller holds the lock. */
static hal_status_t grow(int32_t ordinal) {
  npu_device_t *const device = &npu.devices[ordinal];
  npu_pool_t *const pool = hal_host->mem_alloc(sizeof *pool, alignof(npu_pool_t));
  if (!pool)
    return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for %d events; synchronize the streams",
                     POOL_EVENTS);
  memset(pool, 0, sizeof *pool);
  const ze_result_t code = fill_pool(pool, ordinal);
  if (code) {
    destroy_pool(pool);
    return npu_driver_error(code, "npu: the driver cannot create %d more events for device %d; synchronize the streams",
                            POOL_EVENTS, (int)ordinal);
  }
  pool->next = device->pools;
  device->pools = pool;
  for (uint32_t i = 0; i < POOL_EVENTS; i++) {
    pool->events[i].next = device->free_events;
    device->free_events = &pool->events[i];
  }
  return HAL_OK;
}

hal_status_t npu_event_take(int32_t ordinal, npu_event_t **out_event) {
  npu_device_t *const device = &npu.devices[ordinal];
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&device->events_lock);
  if (NPU_UNLIKELY(!device->free_events)) status = grow(ordinal);
  npu_event_t *const event = device->free_events;
  if (NPU_LIKELY(!status)) device->free_events = event->next;
  pthread_mutex_unlock(&device->events_lock);
  if (NPU_UNLIKELY(status)) return status;
  atomic_store_explicit(&event->users, 1, memory_order_relaxed);
  *out_event = event;
  return HAL_OK;
}

/* The last user returns it to the list, reset; no command waits for it then. */
void npu_event_release(npu_event_t *event) {
  if (atomic_fetch_sub_explicit(&event->users, 1, memory_order_acq_rel) != 1) return;
  npu_device_t *const device = &npu.devices[event->device];
  ze.zeEventHostReset(event->handle);
  pthread_mutex_lock(&device->events_lock);
  event->next = device->free_events;
  device->free_events = event;
  pthread_mutex_unlock(&device->events_lock);
}

void npu_events_destroy(int32_t ordinal) {
  npu_device_t *const device = &npu.devices[ordinal];
  for (npu_pool_t *pool = device->pools, *next; pool; pool = next) {
    next = pool->next;
    destroy_pool(pool);
  }
  device->pools = NULL;
  device->free_events = NULL;
}
