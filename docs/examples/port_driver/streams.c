/* streams.c: step 2, asynchronous streams. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "acme.h"

enum { MOST_STREAMS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static driver_queue_t *queues[MOST_STREAMS]; /* for device_synchronize */

/* HAL_DEVICE_HOST_VISIBLE: the host can access the memory, so operators that fall back to the CPU need no copies. */
hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  (void)device;
  if (HAL_HAS_FIELD(out_info, name)) snprintf(out_info->name, sizeof out_info->name, "Acme One");
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_ASYNC | HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_FP64);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device;
  const hal_status_t status = hal_stream_desc_check("acme: stream_create", desc, 0);
  if (status) return status;
  driver_queue_t *const queue = driver_queue_create();
  int place = 0;
  pthread_mutex_lock(&lock);
  while (place < MOST_STREAMS && queues[place]) place++;
  if (queue && place < MOST_STREAMS) queues[place] = queue;
  pthread_mutex_unlock(&lock);
  if (queue && place < MOST_STREAMS) return *out_stream = (hal_plugin_stream_t *)queue, HAL_OK;
  if (queue) driver_queue_destroy(queue);
  return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "acme: no queue left; destroy some streams");
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_STREAMS; i++)
    if (queues[i] == acme_queue(stream)) queues[i] = NULL;
  pthread_mutex_unlock(&lock);
  driver_queue_destroy(acme_queue(stream));
  return HAL_OK;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (stream) driver_queue_wait(acme_queue(stream), driver_queue_last(acme_queue(stream)));
  return HAL_OK;
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  return driver_queue_reached(acme_queue(stream), driver_queue_last(acme_queue(stream))) ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  (void)device;
  pthread_mutex_lock(&lock); /* a stream that is destroyed meanwhile waits here */
  for (int i = 0; i < MOST_STREAMS; i++)
    if (queues[i]) driver_queue_wait(queues[i], driver_queue_last(queues[i]));
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

typedef struct fill_s {
  unsigned char *to;
  size_t size, pattern_size;
  unsigned char pattern[16]; /* a copy: the call returns before the fill runs */
} fill_t;

static void run_fill(const void *arguments) {
  const fill_t *const fill = arguments;
  for (size_t i = 0; i < fill->size; i++) fill->to[i] = fill->pattern[i % fill->pattern_size];
}

/* The default waits for the stream, so an asynchronous device needs its own fill. */
hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  (void)device;
  fill_t fill = {.to = dst, .size = size, .pattern_size = pattern_size};
  if (!pattern_size || pattern_size > sizeof fill.pattern || (pattern_size & (pattern_size - 1)) || size % pattern_size)
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "acme: invalid fill: expected a pattern of 1 to 16 bytes");
  memcpy(fill.pattern, pattern, pattern_size);
  return size ? acme_submit(stream, run_fill, &fill, sizeof fill) : HAL_OK;
}

typedef struct host_call_s {
  hal_host_fn_t fn;
  void *user_data;
} host_call_t;

static void run_host_call(const void *arguments) {
  const host_call_t *const call = arguments;
  call->fn(call->user_data);
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  const host_call_t call = {fn, user_data};
  return acme_submit(stream, run_host_call, &call, sizeof call);
}
