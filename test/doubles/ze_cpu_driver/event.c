/* event.c: event pools, events, and fences, which are events without a pool. One lock for all: an event may be
 * destroyed while others are waited for. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_condition(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
}

typedef struct pool_s {
  device_t *device; /* the only one, or NULL */
  uint32_t count;
  event_t events[];
} pool_t;

void event_wake_all(void) {
  pthread_once(&once, make_condition);
  pthread_mutex_lock(&lock);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

void event_put(event_t *event, int set, uint64_t begin) {
  pthread_once(&once, make_condition);
  pthread_mutex_lock(&lock);
  event->set = set;
  if (set) event->begin = begin, event->end = clock_now();
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static int is_lost(const device_t *device) { return device && atomic_load(&device->lost); }

ze_result_t event_wait(const event_t *event, const device_t *device, uint64_t timeout) {
  const uint64_t now = clock_now(), end = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
  const struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
  int code = 0;
  pthread_once(&once, make_condition);
  pthread_mutex_lock(&lock);
  while (!event->set && timeout && code != ETIMEDOUT && !is_lost(device) && !is_lost(event->device))
    code = end == UINT64_MAX ? pthread_cond_wait(&changed, &lock) : pthread_cond_timedwait(&changed, &lock, &until);
  const int set = event->set;
  pthread_mutex_unlock(&lock);
  if (set) return ZE_RESULT_SUCCESS;
  return is_lost(device) || is_lost(event->device) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_NOT_READY;
}

/* ---- pools ---- */

static ze_result_t pool_create(ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t count,
                               ze_device_handle_t *of, ze_event_pool_handle_t *out) {
  (void)context;
  if (!desc->count) return ZE_RESULT_ERROR_INVALID_SIZE;
  if (fault_takes(FAULT_HOST)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  pool_t *const pool = calloc(1, sizeof *pool + desc->count * sizeof *pool->events);
  if (!pool) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  pool->device = count == 1 && of ? (device_t *)of[0] : NULL;
  pool->count = desc->count;
  *out = (ze_event_pool_handle_t)pool;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t pool_destroy(ze_event_pool_handle_t pool) {
  free(pool);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t create(ze_event_pool_handle_t handle, const ze_event_desc_t *desc, ze_event_handle_t *out) {
  pool_t *const pool = (pool_t *)handle;
  if (desc->index >= pool->count) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  event_t *const event = &pool->events[desc->index];
  event->device = pool->device;
  event_put(event, 0, 0);
  *out = (ze_event_handle_t)event;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t destroy(ze_event_handle_t event) {
  (void)event; /* it lies in its pool */
  return ZE_RESULT_SUCCESS;
}

static ze_result_t host_signal(ze_event_handle_t event) {
  event_put((event_t *)event, 1, clock_now());
  return ZE_RESULT_SUCCESS;
}

static ze_result_t host_synchronize(ze_event_handle_t event, uint64_t timeout) {
  return event_wait((event_t *)event, NULL, timeout);
}

static ze_result_t query(ze_event_handle_t event) { return event_wait((event_t *)event, NULL, 0); }

static ze_result_t host_reset(ze_event_handle_t event) {
  event_put((event_t *)event, 0, 0);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t timestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t *out) {
  const event_t *const event = (event_t *)handle;
  pthread_mutex_lock(&lock);
  const int set = event->set;
  const uint64_t begin = event->begin, end = event->end;
  pthread_mutex_unlock(&lock);
  if (!set) return ZE_RESULT_NOT_READY;
  out->global.kernelStart = out->context.kernelStart = begin;
  out->global.kernelEnd = out->context.kernelEnd = end;
  return ZE_RESULT_SUCCESS;
}

/* ---- fences ---- */

static ze_result_t fence_create(ze_command_queue_handle_t queue, const ze_fence_desc_t *desc, ze_fence_handle_t *out) {
  (void)queue;
  event_t *const fence = calloc(1, sizeof *fence);
  if (!fence) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  fence->set = (desc->flags & ZE_FENCE_FLAG_SIGNALED) != 0;
  *out = (ze_fence_handle_t)fence;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t fence_destroy(ze_fence_handle_t fence) {
  free(fence);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t fence_synchronize(ze_fence_handle_t fence, uint64_t timeout) {
  return event_wait((event_t *)fence, NULL, timeout);
}

static ze_result_t fence_query(ze_fence_handle_t fence) { return event_wait((event_t *)fence, NULL, 0); }

static ze_result_t fence_reset(ze_fence_handle_t fence) {
  event_put((event_t *)fence, 0, 0);
  return ZE_RESULT_SUCCESS;
}

void event_fill_tables(ze_event_pool_dditable_t *pools, ze_event_dditable_t *events, ze_fence_dditable_t *fences) {
  if (pools) {
    pools->pfnCreate = pool_create;
    pools->pfnDestroy = pool_destroy;
  }
  if (events) {
    events->pfnCreate = create;
    events->pfnDestroy = destroy;
    events->pfnHostSignal = host_signal;
    events->pfnHostSynchronize = host_synchronize;
    events->pfnQueryStatus = query;
    events->pfnHostReset = host_reset;
    events->pfnQueryKernelTimestamp = timestamp;
  }
  if (fences) {
    fences->pfnCreate = fence_create;
    fences->pfnDestroy = fence_destroy;
    fences->pfnHostSynchronize = fence_synchronize;
    fences->pfnQueryStatus = fence_query;
    fences->pfnReset = fence_reset;
  }
}
