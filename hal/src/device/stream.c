/* stream.c: the default stream and the pools of a device, and the thread's current streams. */
#include "hal/stream.h"

#include "device/device.h"
#include "device/event_internal.h"
#include "device/failure.h"
#include "device/hooks.h"
#include "device/kernel_error.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/slots.h"

enum { POOL_NORMAL = 0, POOL_HIGH = 1 };

/* The first owned pool has normal priority, the others have high priority. */
enum { OWNED_HIGH = 1 };

static int32_t priority_of(int pool) { return pool == POOL_NORMAL || pool == HAL_STREAM_SHARED_POOLS ? 0 : -1; }

static int64_t pool_id(int pool, uint32_t slot) { return 1 + (int64_t)pool * HAL_STREAMS_PER_POOL + slot; }

/* Replaces NULL by the thread's current stream of its current device. Streams outlive their devices: then this fails
 * with the cause. */
static hal_status_t resolve(hal_stream_t **stream) {
  if (HAL_LIKELY(*stream != NULL)) return hal_device_check_alive((*stream)->device);
  return hal_stream_current(hal_thread.device, stream);
}

/* ---- lifetime, for device.c ---- */

void hal_stream_initialize(hal_stream_t *stream, hal_device_t *device, hal_plugin_stream_t *handle) {
  *stream = (hal_stream_t){.device = device,
                           .direct = hal_direct_of(device->plugin, device->ordinal, handle, device->info.max_grid[0])};
  atomic_init(&stream->queue, &stream->direct.queue);
}

static hal_status_t create_handle(hal_device_t *device, int32_t priority, hal_plugin_stream_t **out_handle) {
  const hal_stream_desc_t desc = HAL_STREAM_DESC(priority);
  hal_plugin_t *const plugin = device->plugin;
  *out_handle = NULL; /* of a plugin without streams it remains that */
  const hal_status_t status = hal_call_stream_create(plugin, device->ordinal, &desc, out_handle);
  const int may_be_null = !hal_slot_is_provided(&plugin->api, HAL_SLOT_stream_create);
  return hal_error_plugin_made(plugin, HAL_SLOT_stream_create, status, may_be_null ? device : (void *)*out_handle);
}

hal_status_t hal_stream_create_all(hal_device_t *device) {
  hal_plugin_stream_t *handle = NULL;
  if (!device->default_stream.device) {
    HAL_RETURN_IF_ERROR(create_handle(device, 0, &handle));
    hal_stream_initialize(&device->default_stream, device, handle);
    return HAL_OK;
  }
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) { /* the application may have borrowed them */
    hal_stream_t *const stream = hal_stream_at(device, id);
    const hal_status_t status = stream ? create_handle(device, stream->priority, &handle) : HAL_OK;
    if (stream && !status) stream->direct.handle = handle;
    if (!status) continue;
    hal_stream_destroy_all(device);
    return status;
  }
  return HAL_OK;
}

static void destroy(hal_stream_t *stream) {
  HAL_CALL_QUIETLY(stream->device->plugin, stream_destroy, stream->direct.handle);
  stream->direct.handle = NULL;
}

void hal_stream_destroy_all(hal_device_t *device) {
  for (int pool = 0; pool < HAL_STREAM_POOLS; pool++)
    for (int slot = 0; slot < HAL_STREAMS_PER_POOL; slot++) {
      hal_stream_t *const stream = atomic_load(&device->streams[pool][slot]);
      if (!stream) continue;
      destroy(stream);
    }
  destroy(&device->default_stream);
}

/* ---- pools ---- */

/* Returns the stream of a slot, which is created if it is empty. The device's lock is held. */
static hal_status_t fill_slot(hal_device_t *device, int pool, uint32_t slot, hal_stream_t **out_stream) {
  hal_plugin_stream_t *handle = NULL;
  hal_stream_t *stream = atomic_load_explicit(&device->streams[pool][slot], memory_order_relaxed);
  if (stream) { /* another thread was first */
    *out_stream = stream;
    return HAL_OK;
  }
  stream = hal_malloc(sizeof *stream);
  if (!stream)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while making a stream of device %s",
                         device->label);
  const int32_t priority = priority_of(pool);
  const hal_status_t status = create_handle(device, priority, &handle);
  if (status) {
    hal_free(stream);
    return status;
  }
  hal_stream_initialize(stream, device, handle);
  stream->id = pool_id(pool, slot);
  stream->priority = priority;
  atomic_store_explicit(&device->streams[pool][slot], stream, memory_order_release);
  *out_stream = stream;
  return HAL_OK;
}

static hal_status_t create_in_pool(hal_device_t *device, int pool, uint32_t slot, hal_stream_t **out_stream) {
  hal_lock_and_defer(&device->lock);
  const hal_status_t status = fill_slot(device, pool, slot, out_stream);
  hal_unlock_and_run(&device->lock);
  return status;
}

/* Returns the first free slot of the owned pools of a priority, -1 if there is none. The caller holds the device's
 * lock. */
static int find_free(const hal_device_t *device, int32_t priority) {
  const int end = priority < 0 ? HAL_STREAM_OWNED_POOLS : OWNED_HIGH;
  for (int pool = priority < 0 ? OWNED_HIGH : 0; pool < end; pool++)
    if (~device->owned[pool]) return pool * HAL_STREAMS_PER_POOL + __builtin_ctz(~device->owned[pool]);
  return -1;
}

_Static_assert(HAL_STREAMS_PER_POOL == 32, "the owners of a pool are the bits of one number");

hal_status_t hal_stream_take(int32_t device, int32_t priority, hal_stream_t **out_stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_lock_and_defer(&found->lock);
  const int place = find_free(found, priority);
  const int pool = place / HAL_STREAMS_PER_POOL, slot = place % HAL_STREAMS_PER_POOL;
  hal_status_t status = HAL_OK;
  if (place >= 0) status = fill_slot(found, HAL_STREAM_SHARED_POOLS + pool, (uint32_t)slot, out_stream);
  if (place >= 0 && !status) {
    hal_failure_show_aborts(*out_stream);
    found->owned[pool] |= UINT32_C(1) << slot;
    hal_device_add_object(found);
  }
  hal_unlock_and_run(&found->lock);
  if (place >= 0) return status;
  hal_log(HAL_LOG_WARNING,
          "device %s: all streams of priority %d for one owner are in use; a further owner shares its stream. Destroy "
          "communicators that are not used, and end recordings",
          found->label, priority < 0 ? -1 : 0);
  return hal_stream_acquire(device, priority, out_stream);
}

void hal_stream_give_back(hal_stream_t *stream) {
  const int64_t first = pool_id(HAL_STREAM_SHARED_POOLS, 0);
  if (!stream || stream->id < first) return;
  const int64_t place = stream->id - first;
  hal_lock(&stream->device->lock);
  stream->device->owned[place / HAL_STREAMS_PER_POOL] &= ~(UINT32_C(1) << place % HAL_STREAMS_PER_POOL);
  hal_unlock(&stream->device->lock);
  hal_device_remove_object(stream->device);
}

hal_status_t hal_stream_default(int32_t device, hal_stream_t **out_stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  *out_stream = &found->default_stream;
  return HAL_OK;
}

hal_status_t hal_stream_acquire(int32_t device, int32_t priority, hal_stream_t **out_stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  const int pool = priority < 0 ? POOL_HIGH : POOL_NORMAL;
  const uint32_t turn = atomic_fetch_add_explicit(&found->next_stream[pool], 1, memory_order_relaxed);
  const uint32_t slot = turn % HAL_STREAMS_PER_POOL;
  hal_stream_t *const stream = atomic_load_explicit(&found->streams[pool][slot], memory_order_acquire);
  if (!stream) return create_in_pool(found, pool, slot, out_stream);
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_stream_from_id(int32_t device, int64_t id, hal_stream_t **out_stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  hal_stream_t *const stream = id >= 0 && id < HAL_STREAMS_OF_DEVICE ? hal_stream_at(found, id) : NULL;
  if (!stream)
    return hal_error_set(HAL_NOT_FOUND,
                         "device %s has no stream with id %lld; take ids from hal_stream_id of a stream of this "
                         "process",
                         found->label, (long long)id);
  *out_stream = stream;
  return HAL_OK;
}

/* ---- current streams ---- */

hal_status_t hal_stream_current(int32_t device, hal_stream_t **out_stream) {
  hal_device_t *found;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &found));
  *out_stream = hal_stream_or_current(found, NULL);
  return HAL_OK;
}

hal_status_t hal_stream_set_current(hal_stream_t *stream, hal_stream_t **out_previous) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  hal_device_t *const device = stream->device;
  if (out_previous) *out_previous = hal_stream_or_current(device, NULL);
  hal_thread_set_stream(device->index, stream);
  return HAL_OK;
}

int64_t hal_stream_id(const hal_stream_t *stream) { return stream->id; }
int32_t hal_stream_device(const hal_stream_t *stream) { return stream->device->index; }
int32_t hal_stream_priority(const hal_stream_t *stream) { return stream->priority; }

/* ---- work ---- */

/* Ends a synchronization or query for which the plugin returned `status`; `mark` was taken before. */
static hal_status_t finish(hal_stream_t *stream, uint64_t mark, uint32_t slot, hal_status_t status) {
  if (HAL_LIKELY(!status)) hal_device_hooks.poll(stream->device);
  return hal_failure_deliver(stream, mark, slot, status);
}

hal_status_t hal_stream_synchronize(hal_stream_t *stream) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  hal_queue_t *const queue = hal_stream_queue(stream);
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "hal_stream_synchronize"));
  const uint64_t mark = hal_kernel_error_mark(stream);
  const hal_status_t status = queue->calls->synchronize(queue);
  return finish(stream, mark, HAL_SLOT_stream_synchronize, status);
}

hal_status_t hal_stream_synchronize_timeout(hal_stream_t *stream, int64_t timeout_ns) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  hal_queue_t *const queue = hal_stream_queue(stream);
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "hal_stream_synchronize_timeout"));
  const uint64_t mark = hal_kernel_error_mark(stream);
  const hal_status_t status = queue->calls->synchronize_timeout(queue, timeout_ns);
  return finish(stream, mark, HAL_SLOT_stream_synchronize_timeout, status);
}

hal_status_t hal_stream_query(hal_stream_t *stream) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  hal_queue_t *const queue = hal_stream_queue(stream);
  HAL_RETURN_IF_ERROR(queue->calls->require(queue, "hal_stream_query"));
  const uint64_t mark = hal_kernel_error_mark(stream);
  const hal_status_t status = queue->calls->query(queue);
  return finish(stream, mark, HAL_SLOT_stream_query, status);
}

hal_status_t hal_stream_record_again(hal_stream_t *stream, hal_plugin_event_t *event, hal_status_t status) {
  hal_plugin_t *const plugin = stream->device->plugin;
  if (hal_slot_is_provided(&plugin->api, HAL_SLOT_event_record)) return status;
  hal_failure_record_plugin(stream, HAL_SLOT_event_record, status);
  return hal_call_event_record(plugin, event, stream->direct.handle);
}

void hal_stream_drain(hal_stream_t *stream) {
  hal_plugin_t *const plugin = stream->device->plugin;
  hal_plugin_event_t *event = NULL;
  hal_stream_flush(stream, "the stream is waited for");
  /* By an event, if the plugin has events: the user's own synchronization then reports a failure. */
  hal_status_t status = hal_call_event_create(plugin, stream->device->ordinal, 0, &event);
  if (!status && event) {
    status = hal_stream_record(stream, event);
    if (!status) status = hal_call_event_synchronize(plugin, event);
    HAL_CALL_AFTER(plugin, event_destroy, event);
  }
  if (status) status = hal_direct_calls.synchronize(&stream->direct.queue);
  if (status) hal_failure_record_plugin(stream, HAL_SLOT_stream_synchronize, status);
}

void hal_stream_flush(hal_stream_t *stream, const char *reason) {
  hal_queue_t *const queue = hal_stream_queue(stream);
  const hal_status_t status = queue->calls->flush(queue, reason);
  if (HAL_UNLIKELY(status)) hal_failure_record(stream, status);
}

void hal_stream_flush_all(hal_device_t *device, const char *reason) {
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_stream_t *const stream = hal_stream_at(device, id);
    if (stream) hal_stream_flush(stream, reason);
  }
}

void hal_stream_drain_all(hal_device_t *device) {
  for (int id = 0; id < HAL_STREAMS_OF_DEVICE; id++) {
    hal_stream_t *const stream = hal_stream_at(device, id);
    if (stream) hal_stream_drain(stream);
  }
}

hal_status_t hal_stream_wait_event(hal_stream_t *stream, hal_event_t *event) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  HAL_RETURN_IF_ERROR(hal_device_check_alive(event->device));
  hal_queue_t *const queue = hal_stream_queue(stream);
  int recorded;
  HAL_RETURN_IF_ERROR(hal_event_use_recorded(event, stream, "hal_stream_wait_event", &recorded));
  if (HAL_UNLIKELY(recorded)) return HAL_OK;
  /* Another plugin cannot use the handle, so the calling thread waits: later than necessary, but correct. */
  if (event->device->plugin != stream->device->plugin) {
    HAL_RETURN_IF_ERROR(queue->calls->require(queue, "waiting for an event of another plugin"));
    return hal_event_synchronize(event);
  }
  hal_stream_t *const other = atomic_load_explicit(&event->stream, memory_order_acquire);
  HAL_RETURN_IF_ERROR(queue->calls->wait_event(queue, event->handle));
  if (!other) return HAL_OK;
  const hal_followed_t of = {.stream = other,
                             .mark = atomic_load_explicit(&event->mark, memory_order_relaxed),
                             .position = atomic_load_explicit(&event->position, memory_order_relaxed)};
  if (hal_failure_follow(stream, of)) return HAL_OK;
  return hal_event_synchronize(event); /* the table is full: the failure is reported now */
}

hal_status_t hal_stream_host_call(hal_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  if (!fn)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_stream_host_call: missing function; pass the function to call");
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->host_call(queue, fn, user_data);
}

void hal_stream_fail(hal_stream_t *stream, hal_status_t status, const char *message) {
  if (!stream || !status) return;
  hal_failure_record(stream, hal_error_set(status, "%s", message ? message : "a function of the program failed"));
}

int32_t hal_stream_is_recorded(hal_stream_t *stream) {
  if (resolve(&stream)) return 0;
  hal_queue_t *const queue = hal_stream_queue(stream);
  return queue->calls->is_recording(queue);
}

hal_status_t hal_stream_set_name(hal_stream_t *stream, const char *name) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  return hal_device_name_object("hal_stream_set_name", stream->device, HAL_OBJECT_STREAM, stream->direct.handle, name);
}

hal_status_t hal_stream_native(hal_stream_t *stream, void **out_native) {
  HAL_RETURN_IF_ERROR(resolve(&stream));
  hal_stream_flush(stream, "hal_stream_native"); /* the caller is about to queue its own work */
  hal_plugin_t *const plugin = stream->device->plugin;
  return hal_error_plugin(plugin, HAL_SLOT_stream_native,
                          hal_call_stream_native(plugin, stream->direct.handle, out_native));
}
