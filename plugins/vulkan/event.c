/* event.c: events. Each record of an event is an object: the value of a stream's timeline at which the recorded work is
 * done, and a time stamp. An event refers to its last record; waits and submissions refer to the record that they mean.
 * The worker of a stream that waits for a record waits until the record's work is submitted, and submits its own wait
 * then. */
#include "graph.h"

enum { SLOTS = 256 };

struct vulkan_record_s {
  vulkan_record_t *next; /* in the list of a flight */
  vulkan_device_t *device;
  vulkan_slot_t *slot; /* NULL: no time stamp */
  int users;           /* guarded by `lock`, as the members below */
  int reached;         /* the worker has submitted the recorded work: the members below do not change any more */
  vulkan_timeline_t *timeline;
  uint64_t value;
};

struct hal_plugin_event_s {
  vulkan_device_t *device;
  uint32_t flags;
  vulkan_record_t *record;    /* NULL: never recorded, or in a capture; guarded by `lock`, as `mark` is */
  vulkan_mark_t mark;         /* the place in a capture at which it was recorded */
  hal_shared_event_t *shared; /* HAL_EVENT_INTERPROCESS; the two members above are not used then. NULL: the others */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reached = PTHREAD_COND_INITIALIZER;

/* ---- places for time stamps ------------------------------------------------------------------------------------- */

typedef struct vulkan_pool_s {
  struct vulkan_pool_s *next;
  VkQueryPool pool;
  vulkan_slot_t slots[SLOTS];
} vulkan_pool_t;

/* The caller holds the device's lock. */
static VkResult add_pool(vulkan_device_t *device) {
  const VkQueryPoolCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = SLOTS};
  vulkan_pool_t *const pool = hal_host->mem_alloc(sizeof *pool, alignof(vulkan_pool_t));
  if (!pool) return VK_ERROR_OUT_OF_HOST_MEMORY;
  const VkResult code = vk.CreateQueryPool(device->handle, &info, NULL, &pool->pool);
  if (code) {
    hal_host->mem_free(pool);
    return code;
  }
  for (uint32_t i = 0; i < SLOTS; i++) {
    pool->slots[i] = (vulkan_slot_t){device->slots, pool->pool, i};
    device->slots = &pool->slots[i];
  }
  pool->next = device->pools;
  device->pools = pool;
  return VK_SUCCESS;
}

hal_status_t vulkan_slot_take(vulkan_device_t *device, vulkan_slot_t **out_slot) {
  pthread_mutex_lock(&device->lock);
  const VkResult code = device->slots ? VK_SUCCESS : add_pool(device);
  if (!code) {
    *out_slot = device->slots;
    device->slots = device->slots->next;
  }
  pthread_mutex_unlock(&device->lock);
  return code ? vulkan_driver_error(code, "vulkan: cannot create time stamps of '%s'", device->facts.deviceName)
              : HAL_OK;
}

void vulkan_slot_give(vulkan_device_t *device, vulkan_slot_t *slot) {
  if (!slot) return;
  pthread_mutex_lock(&device->lock);
  slot->next = device->slots;
  device->slots = slot;
  pthread_mutex_unlock(&device->lock);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

vulkan_record_t **vulkan_record_link(vulkan_record_t *record) { return &record->next; }

void vulkan_record_keep(vulkan_record_t *record) {
  pthread_mutex_lock(&lock);
  record->users++;
  pthread_mutex_unlock(&lock);
}

void vulkan_record_drop(vulkan_record_t *record) {
  if (!record) return;
  pthread_mutex_lock(&lock);
  const int left = --record->users;
  pthread_mutex_unlock(&lock);
  if (left) return;
  vulkan_slot_give(record->device, record->slot);
  if (record->timeline) vulkan_timeline_drop(record->timeline);
  hal_host->mem_free(record);
}

static hal_status_t write_stamp(vulkan_lane_t *lane, vulkan_record_t *record) {
  VkCommandBuffer commands;
  const vulkan_slot_t *const slot = record->slot;
  const hal_status_t status = vulkan_lane_begin(lane, &commands);
  if (status) return status;
  vk.CmdResetQueryPool(commands, slot->pool, slot->index, 1);
  vk.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, slot->pool, slot->index);
  vulkan_record_keep(record); /* the slot is the device's until then */
  vulkan_lane_keep_record(lane, record);
  return HAL_OK;
}

void vulkan_record_reach(vulkan_record_t *record, const vulkan_lane_t *lane) {
  vulkan_timeline_keep(lane->timeline);
  pthread_mutex_lock(&lock);
  record->timeline = lane->timeline;
  record->value = atomic_load(&lane->submitted);
  record->reached = 1;
  pthread_cond_broadcast(&reached);
  pthread_mutex_unlock(&lock);
}

int vulkan_record_is_reached(vulkan_record_t *record) {
  pthread_mutex_lock(&lock);
  const int is_reached = record->reached;
  pthread_mutex_unlock(&lock);
  return is_reached;
}

/* Takes ownership of a reference to the record. After a failure the record is reached, too, because others wait for it;
 * the stream reports the failure. */
static hal_status_t run_record(vulkan_lane_t *lane, void *arguments) {
  vulkan_record_t *const record = *(vulkan_record_t **)arguments;
  hal_status_t status = record->slot ? write_stamp(lane, record) : HAL_OK;
  const hal_status_t flushed = vulkan_lane_flush(lane);
  if (!status) status = flushed;
  vulkan_record_reach(record, lane);
  vulkan_record_drop(record);
  return status;
}

hal_status_t vulkan_record_create(vulkan_device_t *device, vulkan_record_t **out_record) {
  vulkan_record_t *const record = hal_host->mem_alloc(sizeof *record, alignof(vulkan_record_t));
  if (!record)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory to record an event; free some memory");
  *record = (vulkan_record_t){.device = device, .users = 1};
  *out_record = record;
  return HAL_OK;
}

/* Creates a record with one reference for the caller, and queues it, also on a captured stream. */
static hal_status_t make_record(vulkan_device_t *device, hal_plugin_stream_t *stream, vulkan_slot_t *slot,
                                vulkan_record_t **out_record) {
  vulkan_record_t *record;
  hal_status_t status = vulkan_record_create(device, &record);
  if (status) {
    vulkan_slot_give(device, slot);
    return status;
  }
  record->slot = slot;
  record->users = 2;
  status = vulkan_enqueue(stream, device, (vulkan_label_t){.op = "event_record"}, run_record, &record, sizeof record);
  if (!status) {
    *out_record = record;
    return HAL_OK;
  }
  if (!record->reached) record->users = 1; /* it was not queued */
  vulkan_record_drop(record);
  return status;
}

hal_status_t vulkan_record_make(hal_plugin_stream_t *stream, vulkan_record_t **out_record) {
  return make_record(stream->device, stream, NULL, out_record);
}

/* Waits until the recorded work is submitted. */
static void wait_reached(vulkan_record_t *record) {
  pthread_mutex_lock(&lock);
  while (!record->reached) pthread_cond_wait(&reached, &lock);
  pthread_mutex_unlock(&lock);
}

VkResult vulkan_record_wait(vulkan_record_t *record) {
  wait_reached(record);
  return vulkan_timeline_wait(record->timeline, record->value, INT64_MAX);
}

static hal_status_t query_record(vulkan_record_t *record) {
  return vulkan_record_is_reached(record) ? vulkan_timeline_query(record->timeline, record->value) : HAL_NOT_READY;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static hal_status_t check_flags(const vulkan_device_t *device, uint32_t flags) {
  const hal_status_t status =
      hal_flags_check("vulkan: event_create", flags, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS);
  if (status) return status;
  if (flags & HAL_EVENT_TIMING && flags & HAL_EVENT_INTERPROCESS)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: interprocess events do not support timing; create the event with one of the two");
  if (flags & HAL_EVENT_TIMING && !device->timestamp_bits)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: '%s' has no time stamps on its compute queues; create the event without timing",
                        device->facts.deviceName);
  return HAL_OK;
}

static hal_status_t make_event(vulkan_device_t *device, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_plugin_event_t *const event = hal_host->mem_alloc(sizeof *event, alignof(hal_plugin_event_t));
  if (!event) return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for an event; free some memory");
  *event = (hal_plugin_event_t){.device = device, .flags = flags};
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_create(int32_t ordinal, uint32_t flags, hal_plugin_event_t **out_event) {
  hal_plugin_event_t *event = NULL;
  hal_status_t status = vulkan_check_device(ordinal);
  if (!status) status = check_flags(&vulkan.devices[ordinal], flags);
  if (!status) status = make_event(&vulkan.devices[ordinal], flags, &event);
  if (!status && flags & HAL_EVENT_INTERPROCESS) status = hal_shared_event_make("vulkan", &event->shared);
  if (!status)
    *out_event = event;
  else
    hal_host->mem_free(event);
  return status;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  const hal_status_t status = vulkan_check_device(event->device->ordinal);
  if (status) return status;
  vulkan_record_drop(event->record);
  hal_shared_event_release(event->shared);
  hal_host->mem_free(event);
  return HAL_OK;
}

/* ---- between processes ------------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_event_ipc_export(hal_plugin_event_t *event, uint32_t flags, void *handle, size_t room,
                                         size_t *out_size) {
  hal_status_t status = vulkan_check_device(event->device->ordinal);
  if (!status) status = hal_flags_check("vulkan: event_ipc_export", flags, 0);
  if (status) return status;
  if (!event->shared)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: an event that was created without HAL_EVENT_INTERPROCESS cannot be shared with other "
                        "processes");
  hal_shared_event_export(event->shared, handle, room, out_size);
  return HAL_OK;
}

hal_status_t hal_plugin_event_ipc_open(int32_t ordinal, const void *handle, size_t handle_size, uint32_t flags,
                                       hal_plugin_event_t **out_event) {
  hal_plugin_event_t *event = NULL;
  hal_status_t status = vulkan_check_device(ordinal);
  if (!status) status = hal_flags_check("vulkan: event_ipc_open", flags, 0);
  if (!status) status = make_event(&vulkan.devices[ordinal], HAL_EVENT_INTERPROCESS, &event);
  if (!status) status = hal_shared_event_open("vulkan", handle, handle_size, &event->shared);
  if (!status)
    *out_event = event;
  else
    hal_host->mem_free(event);
  return status;
}

/* ---- records of events ------------------------------------------------------------------------------------------ */

/* Replaces the event's record; takes ownership of the reference to `record`, NULL in a capture. */
static void set_record(hal_plugin_event_t *event, vulkan_record_t *record, vulkan_mark_t mark) {
  pthread_mutex_lock(&lock);
  vulkan_record_t *const old = event->record;
  event->record = record;
  event->mark = mark;
  pthread_mutex_unlock(&lock);
  vulkan_record_drop(old);
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  vulkan_device_t *const device = stream ? stream->device : event->device;
  vulkan_slot_t *slot = NULL;
  vulkan_record_t *record = NULL;
  hal_status_t status = vulkan_check_alive(device->ordinal);
  if (!status && event->shared) return vulkan_shared_record(event->shared, stream);
  if (!status && vulkan_is_captured(stream)) {
    set_record(event, NULL, vulkan_capture_mark(stream));
    return HAL_OK;
  }
  if (!status && event->flags & HAL_EVENT_TIMING) status = vulkan_slot_take(device, &slot);
  if (!status) status = make_record(device, stream, slot, &record);
  if (!status) set_record(event, record, (vulkan_mark_t){0});
  return status;
}

static vulkan_mark_t mark_of(hal_plugin_event_t *event) {
  pthread_mutex_lock(&lock);
  const vulkan_mark_t mark = event->mark;
  pthread_mutex_unlock(&lock);
  return mark;
}

/* Work in a capture is never done. */
static hal_status_t check_event(hal_plugin_event_t *event, const char *op) {
  const hal_status_t status = vulkan_check_device(event->device->ordinal);
  const vulkan_mark_t mark = status ? (vulkan_mark_t){0} : mark_of(event);
  if (VULKAN_LIKELY(!vulkan_capture_is_on(&mark))) return status;
  return vulkan_error(HAL_FAILED_PRECONDITION, 0,
                      "vulkan: %s of an event that was recorded on a captured stream; only streams may wait for it",
                      op);
}

/* Returns the event's last record with a reference; NULL = never recorded. */
static vulkan_record_t *take_record(hal_plugin_event_t *event) {
  pthread_mutex_lock(&lock);
  vulkan_record_t *const record = event->record;
  if (record) record->users++;
  pthread_mutex_unlock(&lock);
  return record;
}

/* Failed work is done, too; its stream reports the failure. */
hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  const hal_status_t status = check_event(event, "event_query");
  if (!status && event->shared)
    return hal_shared_event_done(event->shared, hal_shared_event_last(event->shared)) ? HAL_OK : HAL_NOT_READY;
  vulkan_record_t *const record = status ? NULL : take_record(event);
  if (!record) return status;
  const hal_status_t state = query_record(record);
  vulkan_record_drop(record);
  return state == HAL_NOT_READY ? HAL_NOT_READY : HAL_OK;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  const hal_status_t status = check_event(event, "event_synchronize");
  if (!status && event->shared) return vulkan_shared_wait(event->shared, NULL);
  vulkan_record_t *const record = status ? NULL : take_record(event);
  if (!record) return status;
  const VkResult code = vulkan_record_wait(record);
  vulkan_record_drop(record);
  return code ? vulkan_driver_error(code, "vulkan: an event's work did not end") : HAL_OK;
}

hal_status_t vulkan_record_await(vulkan_record_t *record, vulkan_lane_t *lane) {
  hal_status_t status = HAL_OK;
  wait_reached(record);
  if (record->timeline != lane->timeline && vulkan_timeline_query(record->timeline, record->value) == HAL_NOT_READY) {
    if (record->device == lane->device)
      status = vulkan_lane_wait_for(lane, record->timeline, record->value);
    else /* semaphores of another device are waited for on the host */
      lane->code = vulkan_timeline_wait(record->timeline, record->value, INT64_MAX);
    if (!status && lane->code) status = vulkan_status(lane->code);
  }
  return status;
}

/* Takes ownership of a reference to the record. */
static hal_status_t run_wait(vulkan_lane_t *lane, void *arguments) {
  vulkan_record_t *const record = *(vulkan_record_t **)arguments;
  const hal_status_t status = vulkan_record_await(record, lane);
  vulkan_record_drop(record);
  return status;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  if (!stream) return hal_plugin_event_synchronize(event);
  hal_status_t status = vulkan_check_alive(stream->device->ordinal);
  if (!status && event->shared) return vulkan_shared_wait(event->shared, stream);
  vulkan_record_t *const record = status ? NULL : take_record(event);
  const vulkan_mark_t mark = status ? (vulkan_mark_t){0} : mark_of(event);
  if (!status && VULKAN_UNLIKELY(vulkan_is_captured(stream) || mark.capture)) {
    status = vulkan_capture_wait(stream, &mark, !record || query_record(record) != HAL_NOT_READY);
    vulkan_record_drop(record);
    return status;
  }
  if (!record) return status;
  status = vulkan_enqueue(stream, stream->device, (vulkan_label_t){.op = "stream_wait_event"}, run_wait, &record,
                          sizeof record);
  if (status) vulkan_record_drop(record);
  return status;
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

static hal_status_t read_stamp(vulkan_record_t *record, uint64_t *out_ticks) {
  const hal_status_t status = query_record(record);
  if (status) return status;
  const VkResult code = vk.GetQueryPoolResults(record->device->handle, record->slot->pool, record->slot->index, 1,
                                               sizeof *out_ticks, out_ticks, sizeof *out_ticks, VK_QUERY_RESULT_64_BIT);
  return code == VK_NOT_READY ? HAL_NOT_READY
         : code               ? vulkan_driver_error(code, "vulkan: an event has no time")
                              : HAL_OK;
}

static hal_status_t time_of(hal_plugin_event_t *event, uint64_t *out_ticks) {
  vulkan_record_t *const record = take_record(event);
  if (!record)
    return vulkan_error(HAL_FAILED_PRECONDITION, 0,
                        "vulkan: elapsed time of an event that was never recorded; record both");
  const hal_status_t status = read_stamp(record, out_ticks);
  vulkan_record_drop(record);
  return status;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  uint64_t from = 0, to = 0;
  hal_status_t status = vulkan_check_device(start->device->ordinal);
  if (status) return status;
  if (!(start->flags & end->flags & HAL_EVENT_TIMING))
    return vulkan_error(HAL_FAILED_PRECONDITION, 0,
                        "vulkan: elapsed time of events created without HAL_EVENT_TIMING; create both with timing "
                        "enabled");
  if (start->device != end->device)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: elapsed time between events of device %d and device %d; use events of one device",
                        (int)start->device->ordinal, (int)end->device->ordinal);
  status = time_of(start, &from);
  if (!status) status = time_of(end, &to);
  if (status) return status;
  /* The difference of two counters of this many bits, which may have wrapped around, has a sign. */
  const uint32_t unused = 64 - start->device->timestamp_bits;
  const int64_t ticks = (int64_t)((to - from) << unused) / (INT64_C(1) << unused);
  *out_nanoseconds = (int64_t)((double)ticks * (double)start->device->facts.limits.timestampPeriod);
  return HAL_OK;
}
