/* memory_double.h: a mock device for the allocator's suites, controlled by the test. Its memory is allocated by
 * malloc. Streams run work only if the test requests it or a thread waits. Each slot can be set to fail. Memory that
 * is freed while queued work uses it is detected. It replaces the registry, so that the allocator is tested alone. */
#ifndef TEST_HAL_MEMORY_DOUBLE_H_
#define TEST_HAL_MEMORY_DOUBLE_H_

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/internal.h"

enum { DOUBLE_STREAMS = 8, DOUBLE_SEGMENTS = 4096, DOUBLE_USES = 256, DOUBLE_WAITS = 256, DOUBLE_DEVICES = 2 };
enum { DOUBLE_ALL_STREAMS = DOUBLE_DEVICES * DOUBLE_STREAMS };

/* For each stream the mark up to which its work is done before something else. */
typedef struct double_clock_s {
  uint64_t of[DOUBLE_ALL_STREAMS];
} double_clock_t;

struct hal_plugin_stream_s {
  uint64_t queued, done; /* work items */
  int held;              /* waiting does not complete the work: another thread must */
  hal_status_t failure;  /* asynchronous, not yet reported */
  double_clock_t after;  /* what the next work item waits for */
};

struct hal_plugin_event_s {
  hal_plugin_stream_t *stream;
  uint64_t mark;
  double_clock_t after;
};

typedef struct double_use_s {
  hal_plugin_stream_t *stream;
  uint64_t mark;
  const char *begin;
  size_t size;
} double_use_t;

/* Work items of a stream after `position` wait for a mark of another stream. */
typedef struct double_dependency_s {
  hal_plugin_stream_t *stream, *other;
  uint64_t position, mark;
} double_dependency_t;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  hal_plugin_stream_t handles[DOUBLE_DEVICES][DOUBLE_STREAMS];
  hal_stream_t streams[DOUBLE_DEVICES][DOUBLE_STREAMS];
  struct {
    char *address;
    size_t size;
  } segments[DOUBLE_SEGMENTS];
  size_t live_count, live_bytes, total; /* total: the memory of the device; 0 = no limit */
  double_use_t uses[DOUBLE_USES];
  double_dependency_t waits[DOUBLE_WAITS];
  int wait_count;
  int use_count, violations, live_events;
  int fail_after[HAL_SLOT_COUNT]; /* the n-th call from now on fails; 0 = none */
  hal_status_t fail_with;
  int is_null; /* memory has no address, and there is no error */
  int calls[HAL_SLOT_COUNT];
} double_ = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .fail_with = HAL_INTERNAL};

#define DOUBLE_FN __attribute__((unused)) static

/* Counts a call and returns the failure that the test has set. The caller holds the lock. */
static hal_status_t double_enter(uint32_t slot) {
  double_.calls[slot]++;
  if (!double_.fail_after[slot] || --double_.fail_after[slot]) return HAL_OK;
  return hal_host->error_set(double_.fail_with, 0, "the mock device was set to fail");
}

#define DOUBLE_ENTER(name)                                     \
  pthread_mutex_lock(&double_.lock);                           \
  const hal_status_t failure_ = double_enter(HAL_SLOT_##name); \
  if (failure_) {                                              \
    pthread_mutex_unlock(&double_.lock);                       \
    return failure_;                                           \
  }
#define DOUBLE_LEAVE(status)               \
  do {                                     \
    const hal_status_t result_ = (status); \
    pthread_mutex_unlock(&double_.lock);   \
    return result_;                        \
  } while (0)

static int double_number(const hal_plugin_stream_t *stream) { return (int)(stream - &double_.handles[0][0]); }

static void double_forget_done_waits(void) {
  int kept = 0;
  for (int i = 0; i < double_.wait_count; i++)
    if (double_.waits[i].other->done < double_.waits[i].mark) double_.waits[kept++] = double_.waits[i];
  double_.wait_count = kept;
}

/* Waits for a mark of a stream, and first for what its work waits for. The caller holds the lock. */
static void double_wait(hal_plugin_stream_t *stream, uint64_t mark) {
  for (int i = 0; stream->done < mark && i < double_.wait_count; i++) {
    const double_dependency_t wait = double_.waits[i];
    if (wait.stream == stream && wait.position < mark) double_wait(wait.other, wait.mark);
  }
  while (stream->held && stream->done < mark) pthread_cond_wait(&double_.changed, &double_.lock);
  if (stream->done < mark) stream->done = mark;
}

/* Creates a segment. The caller holds the lock. */
static hal_status_t double_acquire(size_t size, void **out_ptr) {
  size_t i = 0;
  if (double_.is_null) return HAL_OK;
  if (double_.total && (size > double_.total || double_.live_bytes > double_.total - size)) {
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "double: it does not fit");
  }
  while (i < DOUBLE_SEGMENTS && double_.segments[i].address) i++;
  void *address = i < DOUBLE_SEGMENTS ? aligned_alloc(512, (size + 511) / 512 * 512) : NULL;
  if (!address) return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "double: malloc failed");
  double_.segments[i].address = address;
  double_.segments[i].size = size;
  double_.live_count++, double_.live_bytes += size;
  *out_ptr = address;
  return HAL_OK;
}

static hal_status_t double_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  DOUBLE_ENTER(memory_alloc)
  DOUBLE_LEAVE(double_acquire(size, out_ptr));
}

static hal_status_t double_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  DOUBLE_ENTER(host_alloc)
  DOUBLE_LEAVE(double_acquire(size, out_ptr));
}

/* Frees a segment. The caller holds the lock. */
static hal_status_t double_release(void *ptr) {
  size_t i = 0;
  while (i < DOUBLE_SEGMENTS && double_.segments[i].address != ptr) i++;
  if (i == DOUBLE_SEGMENTS) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "double: not a segment");
  const char *begin = double_.segments[i].address, *end = begin + double_.segments[i].size;
  for (int u = 0; u < double_.use_count; u++) {
    const double_use_t *use = &double_.uses[u];
    if (use->stream->done < use->mark && use->begin < end && begin < use->begin + use->size) double_.violations++;
  }
  double_.live_count--, double_.live_bytes -= double_.segments[i].size;
  double_.segments[i].address = NULL;
  free(ptr);
  return HAL_OK;
}

static hal_status_t double_memory_free(int32_t device, void *ptr) {
  (void)device;
  DOUBLE_ENTER(memory_free)
  DOUBLE_LEAVE(double_release(ptr));
}

static hal_status_t double_host_free(int32_t device, void *ptr) {
  (void)device;
  DOUBLE_ENTER(host_free)
  DOUBLE_LEAVE(double_release(ptr));
}

static hal_status_t double_memory_alloc_async(int32_t device, hal_plugin_stream_t *stream, size_t size, uint32_t flags,
                                              void **out_ptr) {
  (void)stream;
  pthread_mutex_lock(&double_.lock);
  const hal_status_t failure = double_enter(HAL_SLOT_memory_alloc_async);
  pthread_mutex_unlock(&double_.lock);
  return failure ? failure : double_memory_alloc(device, size, flags, out_ptr);
}

static hal_status_t double_memory_free_async(int32_t device, hal_plugin_stream_t *stream, void *ptr) {
  (void)device;
  DOUBLE_ENTER(memory_free_async)
  double_wait(stream, stream->queued);
  DOUBLE_LEAVE(double_release(ptr));
}

static hal_status_t double_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                       int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  DOUBLE_ENTER(memory_copy)
  memcpy(dst, src, size);
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t double_stream_synchronize(hal_plugin_stream_t *stream) {
  DOUBLE_ENTER(stream_synchronize)
  double_wait(stream, stream->queued);
  const hal_status_t failure = stream->failure;
  stream->failure = HAL_OK;
  DOUBLE_LEAVE(failure ? hal_host->error_set(failure, 0, "double: asynchronous failure") : HAL_OK);
}

static hal_status_t double_stream_query(hal_plugin_stream_t *stream) {
  DOUBLE_ENTER(stream_query)
  const hal_status_t failure = stream->failure;
  stream->failure = HAL_OK;
  if (failure) DOUBLE_LEAVE(hal_host->error_set(failure, 0, "double: asynchronous failure"));
  DOUBLE_LEAVE(stream->done < stream->queued ? HAL_NOT_READY : HAL_OK);
}

static hal_status_t double_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device, (void)flags;
  DOUBLE_ENTER(event_create)
  hal_plugin_event_t *event = calloc(1, sizeof(*event));
  if (!event) DOUBLE_LEAVE(HAL_RESOURCE_EXHAUSTED);
  double_.live_events++;
  *out_event = event;
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t double_event_destroy(hal_plugin_event_t *event) {
  DOUBLE_ENTER(event_destroy)
  if (event) double_.live_events--;
  free(event);
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t double_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  DOUBLE_ENTER(event_record)
  event->stream = stream;
  event->mark = stream->queued;
  event->after = stream->after;
  event->after.of[double_number(stream)] = stream->queued;
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t double_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  DOUBLE_ENTER(stream_wait_event)
  if (!event->stream) DOUBLE_LEAVE(HAL_OK);
  for (int i = 0; i < DOUBLE_ALL_STREAMS; i++)
    if (stream->after.of[i] < event->after.of[i]) stream->after.of[i] = event->after.of[i];
  if (double_.wait_count == DOUBLE_WAITS) double_forget_done_waits();
  if (double_.wait_count == DOUBLE_WAITS) double_wait(event->stream, event->mark);
  if (event->stream->done < event->mark && event->stream != stream) /* the wait is a work item, too */
    double_.waits[double_.wait_count++] = (double_dependency_t){
        .stream = stream, .other = event->stream, .position = stream->queued++, .mark = event->mark};
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t double_event_query(hal_plugin_event_t *event) {
  DOUBLE_ENTER(event_query)
  DOUBLE_LEAVE(event->stream && event->stream->done < event->mark ? HAL_NOT_READY : HAL_OK);
}

static hal_status_t double_event_synchronize(hal_plugin_event_t *event) {
  DOUBLE_ENTER(event_synchronize)
  if (event->stream) double_wait(event->stream, event->mark);
  DOUBLE_LEAVE(HAL_OK);
}

static void double_forget_done_uses(void) {
  int kept = 0;
  for (int i = 0; i < double_.use_count; i++)
    if (double_.uses[i].stream->done < double_.uses[i].mark) double_.uses[kept++] = double_.uses[i];
  double_.use_count = kept;
}

/* Queues one work item that uses `size` bytes at `address`. */
DOUBLE_FN void double_enqueue(hal_stream_t *stream, const void *address, size_t size) {
  pthread_mutex_lock(&double_.lock);
  hal_plugin_stream_t *handle = stream->direct.handle;
  if (double_.use_count == DOUBLE_USES) double_forget_done_uses();
  double_.uses[double_.use_count < DOUBLE_USES ? double_.use_count++ : 0] =
      (double_use_t){.stream = handle, .mark = ++handle->queued, .begin = address, .size = size};
  pthread_mutex_unlock(&double_.lock);
}

/* Finishes the next work item of a stream, unless it waits for another one. */
DOUBLE_FN void double_advance(hal_stream_t *stream) {
  pthread_mutex_lock(&double_.lock);
  hal_plugin_stream_t *const handle = stream->direct.handle;
  int is_ready = handle->done < handle->queued;
  for (int i = 0; i < double_.wait_count; i++) {
    const double_dependency_t *const wait = &double_.waits[i];
    if (wait->stream == handle && wait->position <= handle->done && wait->other->done < wait->mark) is_ready = 0;
  }
  handle->done += (uint64_t)is_ready;
  pthread_mutex_unlock(&double_.lock);
}

/* Finishes all queued work of a stream. */
DOUBLE_FN void double_finish(hal_stream_t *stream) {
  pthread_mutex_lock(&double_.lock);
  stream->direct.handle->done = stream->direct.handle->queued;
  stream->direct.handle->held = 0;
  pthread_cond_broadcast(&double_.changed);
  pthread_mutex_unlock(&double_.lock);
}

DOUBLE_FN hal_stream_t *double_stream(int32_t device, int id) {
  return id ? &double_.streams[device][id] : &hal_devices[device].default_stream;
}

/* Replaces the registry by the mock device, with `devices` devices. Returns the status of the creation of the
   allocators. */
DOUBLE_FN hal_status_t double_open(int32_t devices, uint64_t flags) {
  hal_plugin_t *plugin = &hal_registry.plugins[0];
  plugin->api.struct_size = sizeof(plugin->api);
  plugin->api.memory_alloc = double_memory_alloc;
  plugin->api.memory_free = double_memory_free;
  plugin->api.memory_alloc_async = double_memory_alloc_async;
  plugin->api.memory_free_async = double_memory_free_async;
  plugin->api.memory_copy = double_memory_copy;
  plugin->api.host_alloc = double_host_alloc;
  plugin->api.host_free = double_host_free;
  static uint64_t provided[HAL_SLOT_COUNT / 64 + 1];
  static const uint32_t own[] = {HAL_SLOT_memory_alloc_async, HAL_SLOT_memory_free_async,  HAL_SLOT_host_alloc,
                                 HAL_SLOT_host_free,          HAL_SLOT_stream_synchronize, HAL_SLOT_stream_query,
                                 HAL_SLOT_event_record,       HAL_SLOT_event_synchronize,  HAL_SLOT_event_query,
                                 HAL_SLOT_stream_wait_event};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) provided[own[i] / 64] |= UINT64_C(1) << (own[i] % 64);
  if (plugin->api.virtual_reserve) /* memory_virtual.h */
    provided[HAL_SLOT_virtual_reserve / 64] |= UINT64_C(1) << (HAL_SLOT_virtual_reserve % 64);
  plugin->api.provided = provided;
  plugin->api.provided_words = sizeof provided / sizeof provided[0];
  plugin->api.stream_synchronize = double_stream_synchronize;
  plugin->api.stream_query = double_stream_query;
  plugin->api.stream_wait_event = double_stream_wait_event;
  plugin->api.event_create = double_event_create;
  plugin->api.event_destroy = double_event_destroy;
  plugin->api.event_record = double_event_record;
  plugin->api.event_query = double_event_query;
  plugin->api.event_synchronize = double_event_synchronize;
  plugin->layers = HAL_LAYER_TAIL; /* the other slots use the host's defaults */
  plugin->device_count = devices;
  plugin->info.name = "double";
  plugin->state = HAL_PLUGIN_READY;
  hal_registry.plugin_count = 1;
  hal_registry.device_count = devices;
  for (int32_t i = 0; i < devices; i++) {
    hal_device_t *device = &hal_devices[i];
    device->plugin = plugin;
    device->index = device->ordinal = i;
    snprintf(device->label, sizeof device->label, "double:%d", i);
    device->info.flags = flags;
    for (int id = 0; id < DOUBLE_STREAMS; id++) {
      hal_stream_initialize(&double_.streams[i][id], device, &double_.handles[i][id]);
      double_.streams[i][id].id = id;
    }
    hal_stream_initialize(&device->default_stream, device, &double_.handles[i][0]);
    hal_allocator_t *allocator = NULL;
    const hal_status_t status = hal_allocator_create(device, &allocator);
    device->slots[HAL_COMPONENT_MEMORY] = allocator;
    if (status) return status;
    device->ready = 1;
  }
  hal_registry.open = 1;
  return HAL_OK;
}

/* Destroys the allocators. Returns the number of errors found: leaked segments and events, and memory freed while
   running work used it. */
DOUBLE_FN long double_close(void) {
  for (int32_t i = 0; i < hal_registry.device_count; i++) {
    hal_devices[i].ready = 0;
    hal_allocator_destroy(hal_allocator_of(&hal_devices[i]));
    hal_devices[i].slots[HAL_COMPONENT_MEMORY] = NULL;
  }
  return (long)double_.live_count + double_.live_events + double_.violations;
}

DOUBLE_FN hal_memory_stats_t double_stats(int32_t device) {
  hal_memory_stats_t stats = {.struct_size = sizeof(stats)};
  hal_memory_stats(device, &stats);
  return stats;
}

#endif /* TEST_HAL_MEMORY_DOUBLE_H_ */
