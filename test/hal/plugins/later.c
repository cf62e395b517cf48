/* later.c: a plugin with asynchronous streams: each is a thread that waits LATER_DELAY_US (2000) before each item,
 * so that a caller that does not wait reads old memory. It has three devices, events with a lock, and no modules, so
 * that operators use the fallback. It checks addresses: an address outside its allocations is INVALID_ARGUMENT. With
 * LATER_FAIL=<n> the n-th copy on a stream fails asynchronously. */
#define _XOPEN_SOURCE 700
#include <hal/plugin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef LATER_NAME
#define LATER_NAME "later"
#endif

enum { DEVICES = 3, ALIGNMENT = 256, DEFAULT_DELAY_US = 2000 };
enum { ITEM_COPY, ITEM_RECORD, ITEM_WAIT, ITEM_CALL };

typedef struct item_s {
  struct item_s *next;
  int kind;
  void *dst;
  const void *src;
  size_t size;
  hal_plugin_event_t *event;
  uint64_t generation;
  hal_host_fn_t fn;
  void *user_data;
} item_t;

struct hal_plugin_stream_s {
  pthread_t thread;
  item_t *head, **tail;
  uint64_t queued, done;
  int32_t device;
  int stop, failed;
};

struct hal_plugin_event_s {
  uint64_t recorded, done; /* generations */
  int64_t ns;
  int references;
};

typedef struct allocation_s {
  struct allocation_s *next;
  char *address;
  size_t size;
  int32_t device;
} allocation_t;

/* One lock and one condition for all state: this plugin need not be fast. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static allocation_t *allocations;
static hal_plugin_stream_t *streams[DEVICES][128];
static int copies;

static hal_status_t fail(hal_status_t code, const char *text) { return hal_host->error_set(code, 0, text); }

static long setting(const char *name, long otherwise) {
  const char *const text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

/* ---- plugin and devices ---- */

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = LATER_NAME;
  out_info->vendor = "tests";
  out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  *out_count = DEVICES;
  return HAL_OK;
}

hal_status_t hal_plugin_device_info(int32_t device, hal_device_info_t *out_info) {
  snprintf(out_info->name, sizeof out_info->name, LATER_NAME " %d", (int)device);
  HAL_SET_FIELD(out_info, flags, HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_ASYNC);
  return HAL_OK;
}

/* ---- memory ---- */

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)flags;
  allocation_t *const made = malloc(sizeof *made);
  void *memory = NULL;
  if (!made || posix_memalign(&memory, ALIGNMENT, size)) {
    free(made);
    return fail(HAL_RESOURCE_EXHAUSTED, "later: no memory; free some");
  }
  *made = (allocation_t){.address = memory, .size = size, .device = device};
  pthread_mutex_lock(&lock);
  made->next = allocations;
  allocations = made;
  pthread_mutex_unlock(&lock);
  *out_ptr = memory;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  allocation_t *found = NULL;
  (void)device;
  pthread_mutex_lock(&lock);
  for (allocation_t **link = &allocations; *link; link = &(*link)->next) {
    if ((*link)->address != ptr) continue;
    found = *link;
    *link = found->next;
    break;
  }
  pthread_mutex_unlock(&lock);
  if (!found && ptr)
    return fail(HAL_INVALID_ARGUMENT, "later: memory_free of an address that is no allocation of mine");
  free(ptr);
  free(found);
  return HAL_OK;
}

/* Returns whether the range is inside an allocation of this device, or in host memory. */
static int is_mine(const void *address, size_t size, int32_t device) {
  if (device == HAL_HOST) return 1;
  int mine = 0;
  pthread_mutex_lock(&lock);
  for (const allocation_t *a = allocations; a && !mine; a = a->next) {
    const size_t offset = (size_t)((const char *)address - a->address);
    mine = a->device == device && offset < a->size && size <= a->size - offset;
  }
  pthread_mutex_unlock(&lock);
  return mine;
}

/* ---- streams ---- */

static hal_status_t enqueue(hal_plugin_stream_t *stream, item_t item) {
  item_t *const copy = malloc(sizeof *copy);
  if (!copy) return fail(HAL_RESOURCE_EXHAUSTED, "later: no host memory");
  *copy = item;
  copy->next = NULL;
  pthread_mutex_lock(&lock);
  *stream->tail = copy;
  stream->tail = &copy->next;
  stream->queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  if (!size) return HAL_OK;
  if (!is_mine(dst, size, dst_device) || !is_mine(src, size, src_device))
    return fail(HAL_INVALID_ARGUMENT, "later: memory_copy outside of my allocations");
  if (stream) return enqueue(stream, (item_t){.kind = ITEM_COPY, .dst = dst, .src = src, .size = size});
  memcpy(dst, src, size);
  return HAL_OK;
}

/* The lock is held. */
static void drop(hal_plugin_event_t *event) {
  if (--event->references == 0) free(event);
}

/* Runs one item. The caller holds the lock, which is released during the delay and during the user's function. */
static void do_item(hal_plugin_stream_t *stream, item_t *item) {
  struct timespec now;
  pthread_mutex_unlock(&lock);
  nanosleep(&(struct timespec){.tv_nsec = 1000 * setting("LATER_DELAY_US", DEFAULT_DELAY_US)}, NULL);
  if (item->kind == ITEM_COPY) memcpy(item->dst, item->src, item->size);
  if (item->kind == ITEM_CALL) item->fn(item->user_data);
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&lock);
  if (item->kind == ITEM_COPY && ++copies == setting("LATER_FAIL", 0)) stream->failed = 1;
  if (item->kind == ITEM_RECORD && item->event->done < item->generation) {
    item->event->done = item->generation;
    item->event->ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  }
  while (item->kind == ITEM_WAIT && item->event->done < item->generation) pthread_cond_wait(&changed, &lock);
  if (item->event) drop(item->event);
}

static void *stream_main(void *argument) {
  hal_plugin_stream_t *const stream = argument;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!stream->head && !stream->stop) pthread_cond_wait(&changed, &lock);
    item_t *const item = stream->head;
    if (!item) break;
    do_item(stream, item);
    stream->head = item->next;
    if (!stream->head) stream->tail = &stream->head;
    free(item);
    stream->done++;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

hal_status_t hal_plugin_stream_create(int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)desc;
  hal_plugin_stream_t *const stream = calloc(1, sizeof *stream);
  if (!stream) return fail(HAL_RESOURCE_EXHAUSTED, "later: no host memory");
  stream->device = device;
  stream->tail = &stream->head;
  if (pthread_create(&stream->thread, NULL, stream_main, stream)) {
    free(stream);
    return fail(HAL_RESOURCE_EXHAUSTED, "later: no thread for a stream");
  }
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 128; i++)
    if (!streams[device][i]) {
      streams[device][i] = stream;
      break;
    }
  pthread_mutex_unlock(&lock);
  *out_stream = stream;
  return HAL_OK;
}

hal_status_t hal_plugin_stream_destroy(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  pthread_mutex_lock(&lock);
  stream->stop = 1;
  for (int i = 0; i < 128; i++)
    if (streams[stream->device][i] == stream) streams[stream->device][i] = NULL;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(stream->thread, NULL);
  free(stream);
  return HAL_OK;
}

/* The lock is held. */
static hal_status_t wait_for(hal_plugin_stream_t *stream) {
  const uint64_t mark = stream->queued;
  while (stream->done < mark) pthread_cond_wait(&changed, &lock);
  const int failed = stream->failed;
  stream->failed = 0;
  return failed ? HAL_DATA_LOSS : HAL_OK;
}

static hal_status_t told(hal_status_t status) {
  return status == HAL_DATA_LOSS ? fail(status, "later: a copy failed on purpose; run it again") : status;
}

hal_status_t hal_plugin_stream_synchronize(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  pthread_mutex_lock(&lock);
  const hal_status_t status = wait_for(stream);
  pthread_mutex_unlock(&lock);
  return told(status);
}

hal_status_t hal_plugin_stream_query(hal_plugin_stream_t *stream) {
  if (!stream) return HAL_OK;
  pthread_mutex_lock(&lock);
  const hal_status_t status = stream->done == stream->queued ? wait_for(stream) : HAL_NOT_READY;
  pthread_mutex_unlock(&lock);
  return told(status);
}

hal_status_t hal_plugin_device_synchronize(int32_t device) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 128; i++) {
    const hal_status_t one = streams[device][i] ? wait_for(streams[device][i]) : HAL_OK;
    if (one) status = one;
  }
  pthread_mutex_unlock(&lock);
  return told(status);
}

hal_status_t hal_plugin_stream_host_call(hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  if (stream) return enqueue(stream, (item_t){.kind = ITEM_CALL, .fn = fn, .user_data = user_data});
  fn(user_data);
  return HAL_OK;
}

/* ---- events ---- */

hal_status_t hal_plugin_event_create(int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device, (void)flags;
  hal_plugin_event_t *const event = calloc(1, sizeof *event);
  if (!event) return fail(HAL_RESOURCE_EXHAUSTED, "later: no host memory");
  event->references = 1;
  *out_event = event;
  return HAL_OK;
}

hal_status_t hal_plugin_event_destroy(hal_plugin_event_t *event) {
  if (!event) return HAL_OK;
  pthread_mutex_lock(&lock);
  drop(event);
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

static hal_status_t queue_event(hal_plugin_event_t *event, hal_plugin_stream_t *stream, int kind) {
  pthread_mutex_lock(&lock);
  event->references++;
  const uint64_t generation = kind == ITEM_RECORD ? ++event->recorded : event->recorded;
  pthread_mutex_unlock(&lock);
  return enqueue(stream, (item_t){.kind = kind, .event = event, .generation = generation});
}

hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  if (stream) return queue_event(event, stream, ITEM_RECORD);
  pthread_mutex_lock(&lock);
  event->done = ++event->recorded;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

hal_status_t hal_plugin_stream_wait_event(hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  return stream ? queue_event(event, stream, ITEM_WAIT) : hal_plugin_event_synchronize(event);
}

hal_status_t hal_plugin_event_query(hal_plugin_event_t *event) {
  pthread_mutex_lock(&lock);
  const int done = event->done >= event->recorded;
  pthread_mutex_unlock(&lock);
  return done ? HAL_OK : HAL_NOT_READY;
}

hal_status_t hal_plugin_event_synchronize(hal_plugin_event_t *event) {
  pthread_mutex_lock(&lock);
  const uint64_t mark = event->recorded;
  while (event->done < mark) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

hal_status_t hal_plugin_event_elapsed(hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  pthread_mutex_lock(&lock);
  *out_nanoseconds = end->ns - start->ns;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}
