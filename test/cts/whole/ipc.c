/* ipc.c: memory and events of other processes. Memory of memory_alloc is an unnamed file, created by the good
 * plugin's virtual memory; another process opens it through /proc. An event between processes is two numbers in such
 * a file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "whole.h"

/* ---- memory ---- */
typedef struct segment_s {
  struct segment_s *next;
  void *ptr;
  size_t size; /* whole pages */
  hal_plugin_physical_t *memory;
  int file; /* -1: opened from another process */
} segment_t;
static segment_t *segments;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct handle_s { /* contents of the bytes of ipc_export */
  uint32_t kind;
  int32_t pid, file;
  uint64_t size;
} handle_t;
enum { MEMORY = 0x4d454d, EVENT = 0x455654 };

/* Maps `memory`, which is released after a failure. */
static hal_status_t add_segment(int32_t device, size_t size, hal_plugin_physical_t *memory, int file, void **out_ptr) {
  segment_t *const segment = malloc(sizeof *segment);
  void *ptr = NULL;
  hal_status_t status = segment ? whole_good.virtual_reserve(device, size, &ptr) : HAL_RESOURCE_EXHAUSTED;
  if (!status) status = whole_good.virtual_map(device, ptr, size, memory);
  if (status) {
    if (ptr) whole_good.virtual_unreserve(device, ptr, size);
    whole_good.virtual_release(device, memory);
    free(segment);
    if (file >= 0) close(file);
    return status;
  }
  *segment = (segment_t){.ptr = ptr, .size = size, .memory = memory, .file = file};
  pthread_mutex_lock(&lock);
  segment->next = segments, segments = segment;
  pthread_mutex_unlock(&lock);
  *out_ptr = ptr;
  return HAL_OK;
}

static hal_status_t remove_segment(int32_t device, void *ptr, int is_own) {
  pthread_mutex_lock(&lock);
  segment_t **at = &segments;
  while (*at && ((*at)->ptr != ptr || ((*at)->file >= 0) != is_own)) at = &(*at)->next;
  segment_t *const found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&lock);
  if (!found)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: this address is not the start of an allocation; pass that");
  whole_good.virtual_unmap(device, ptr, found->size);
  whole_good.virtual_unreserve(device, ptr, found->size);
  whole_good.virtual_release(device, found->memory);
  if (found->file >= 0) close(found->file);
  free(found);
  return HAL_OK;
}

static int find_segment(const void *ptr) {
  pthread_mutex_lock(&lock);
  const segment_t *at = segments;
  while (at && at->ptr != ptr) at = at->next;
  pthread_mutex_unlock(&lock);
  return at != NULL;
}

hal_status_t whole_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
  hal_plugin_physical_t *memory = NULL;
  hal_memory_handle_t handle = {.file = -1};
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  if (whole < size || whole > SIZE_MAX / 4)
    return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: out of memory; request less");
  hal_status_t status = whole_good.virtual_create(device, whole, HAL_HANDLE_FILE, &memory);
  if (status == HAL_UNIMPLEMENTED) return whole_good.memory_alloc(device, size, flags, out_ptr); /* in this setting */
  if (status) return status;
  status = whole_good.virtual_export(device, memory, HAL_HANDLE_FILE, &handle);
  if (status) return whole_good.virtual_release(device, memory), status;
  return add_segment(device, whole, memory, handle.file, out_ptr);
}

hal_status_t whole_memory_free(int32_t device, void *ptr) {
  return !ptr || !find_segment(ptr) ? whole_good.memory_free(device, ptr) : remove_segment(device, ptr, 1);
}

hal_status_t whole_memory_alloc_async(int32_t device, stream_t *stream, size_t size, uint32_t flags, void **out_ptr) {
  return (void)stream, whole_memory_alloc(device, size, flags, out_ptr);
}

typedef struct later_s {
  int32_t device;
  void *ptr;
} later_t;
static void free_later(void *data) {
  const later_t *const later = data;
  whole_memory_free(later->device, later->ptr);
  free(data);
}
hal_status_t whole_memory_free_async(int32_t device, stream_t *stream, void *ptr) {
  later_t *const later = stream ? malloc(sizeof *later) : NULL;
  if (!later) return whole_memory_free(device, ptr);
  *later = (later_t){device, ptr};
  return whole_good.stream_host_call(stream, free_later, later);
}

hal_status_t whole_ipc_export(int32_t device, void *ptr, uint32_t flags, void *out_handle, size_t room,
                              size_t *out_size) {
  handle_t handle = {.kind = MEMORY, .pid = getpid(), .file = -1};
  (void)device;
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  pthread_mutex_lock(&lock);
  for (const segment_t *at = segments; at; at = at->next)
    if (at->ptr == ptr && at->file >= 0) handle.file = at->file, handle.size = at->size;
  pthread_mutex_unlock(&lock);
  if (handle.file < 0)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: ipc_export of what is no segment of memory_alloc");
  if (room >= sizeof handle) memcpy(out_handle, &handle, sizeof handle);
  *out_size = sizeof handle;
  return HAL_OK;
}

/* Opens the file of a handle; -1 after a failure. */
static int open_handle(const void *from, size_t size, uint32_t kind, handle_t *out_handle) {
  char path[64];
  if (size != sizeof *out_handle) return -1;
  memcpy(out_handle, from, sizeof *out_handle);
  if (out_handle->kind != kind) return -1;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)out_handle->pid, (int)out_handle->file);
  return open(path, O_RDWR | O_CLOEXEC);
}

hal_status_t whole_ipc_open(int32_t device, const void *handle, size_t size, uint32_t flags, void **out_ptr) {
  handle_t known;
  hal_plugin_physical_t *memory = NULL;
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  const int file = open_handle(handle, size, MEMORY, &known);
  if (file < 0)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: ipc_open of what is no handle of memory in use; export it anew");
  const hal_memory_handle_t other = {.kind = HAL_HANDLE_FILE, .file = file};
  const hal_status_t status = whole_good.virtual_import(device, &other, (size_t)known.size, &memory);
  close(file);
  return status ? status : add_segment(device, (size_t)known.size, memory, -1, out_ptr);
}

hal_status_t whole_ipc_close(int32_t device, void *ptr) { return remove_segment(device, ptr, 0); }

/* ---- events: `recorded` counts records, `done` is the highest whose work is done ---- */
typedef struct shared_s {
  _Atomic uint64_t recorded, done;
} shared_t;
typedef struct between_s {
  struct between_s *next;
  shared_t *shared;
  int file;
  int32_t refs; /* references of the user, and of queued work */
} between_t;
static between_t *betweens;

/* Events of the good plugin are not in the list. The event is kept until it is dropped. */
static between_t *find_event(event_t *event, int keep) {
  pthread_mutex_lock(&lock);
  between_t *at = betweens;
  while (at && (event_t *)(void *)at != event) at = at->next;
  if (at && keep) at->refs++;
  pthread_mutex_unlock(&lock);
  return at;
}

static void drop(between_t *event) {
  pthread_mutex_lock(&lock);
  const int last = --event->refs == 0;
  between_t **at = &betweens;
  while (last && *at && *at != event) at = &(*at)->next;
  if (last && *at) *at = event->next;
  pthread_mutex_unlock(&lock);
  if (!last) return;
  munmap(event->shared, sizeof *event->shared);
  close(event->file);
  free(event);
}

static hal_status_t add_event(int file, event_t **out_event) {
  between_t *const event = malloc(sizeof *event);
  shared_t *const shared =
      file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (!event || shared == MAP_FAILED) {
    if (file >= 0) close(file);
    free(event);
    return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for an event between processes");
  }
  *event = (between_t){.shared = shared, .file = file, .refs = 1};
  pthread_mutex_lock(&lock);
  event->next = betweens, betweens = event;
  pthread_mutex_unlock(&lock);
  *out_event = (event_t *)(void *)event;
  return HAL_OK;
}

hal_status_t whole_event_create(int32_t device, uint32_t flags, event_t **out_event) {
  if (!(flags & HAL_EVENT_INTERPROCESS)) return whole_good.event_create(device, flags, out_event);
  if (flags & ~(uint32_t)(HAL_EVENT_INTERPROCESS | HAL_EVENT_TIMING | HAL_EVENT_BLOCKING)) return HAL_UNIMPLEMENTED;
  if (flags & HAL_EVENT_TIMING)
    return whole_refuse(HAL_INVALID_ARGUMENT,
                        "whole: events between processes have no times; leave HAL_EVENT_TIMING out");
  const int file = memfd_create("event", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, sizeof(shared_t)))
    return close(file), whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for an event");
  return add_event(file, out_event);
}

hal_status_t whole_event_destroy(event_t *event) {
  between_t *const between = find_event(event, 0);
  return between ? drop(between), HAL_OK : whole_good.event_destroy(event);
}

typedef struct mark_s {
  between_t *event;
  uint64_t number;
} mark_t;

static void note_done(void *data) {
  mark_t *const mark = data;
  uint64_t before = atomic_load(&mark->event->shared->done);
  while (before < mark->number && !atomic_compare_exchange_weak(&mark->event->shared->done, &before, mark->number)) {
  }
  drop(mark->event);
  free(mark);
}
static void wait_until_done(void *data) {
  mark_t *const mark = data;
  while (atomic_load(&mark->event->shared->done) < mark->number) usleep(200);
  drop(mark->event);
  free(mark);
}

static hal_status_t queue_mark(stream_t *stream, between_t *event, uint64_t number, hal_host_fn_t fn) {
  mark_t *const mark = malloc(sizeof *mark);
  if (!mark) return drop(event), whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for an event");
  *mark = (mark_t){event, number};
  return whole_good.stream_host_call(stream, fn, mark);
}

hal_status_t whole_event_record(event_t *event, stream_t *stream) {
  between_t *const between = find_event(event, 1);
  if (!between) return whole_good.event_record(event, stream);
  return queue_mark(stream, between, atomic_fetch_add(&between->shared->recorded, 1) + 1, note_done);
}

static int is_done(const between_t *event) {
  return atomic_load(&event->shared->done) >= atomic_load(&event->shared->recorded);
}
hal_status_t whole_event_query(event_t *event) {
  const between_t *const between = find_event(event, 0);
  return !between ? whole_good.event_query(event) : is_done(between) ? HAL_OK : HAL_NOT_READY;
}
hal_status_t whole_event_synchronize(event_t *event) {
  between_t *const between = find_event(event, 1);
  if (!between) return whole_good.event_synchronize(event);
  const uint64_t number = atomic_load(&between->shared->recorded);
  while (atomic_load(&between->shared->done) < number) usleep(200);
  return drop(between), HAL_OK;
}
hal_status_t whole_event_elapsed(event_t *start, event_t *end, int64_t *out_nanoseconds) {
  if (find_event(start, 0) || find_event(end, 0))
    return whole_refuse(HAL_FAILED_PRECONDITION,
                        "whole: events between processes have no times; make them with HAL_EVENT_TIMING");
  return whole_good.event_elapsed(start, end, out_nanoseconds);
}
hal_status_t whole_stream_wait_event(stream_t *stream, event_t *event) {
  between_t *const between = find_event(event, 1);
  if (!between) return whole_good.stream_wait_event(stream, event);
  return queue_mark(stream, between, atomic_load(&between->shared->recorded), wait_until_done);
}

hal_status_t whole_event_ipc_export(event_t *event, uint32_t flags, void *out_handle, size_t room, size_t *out_size) {
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  const between_t *const between = find_event(event, 0);
  if (!between)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: event_ipc_export of an event without HAL_EVENT_INTERPROCESS");
  const handle_t handle = {.kind = EVENT, .pid = getpid(), .file = between->file};
  if (room >= sizeof handle) memcpy(out_handle, &handle, sizeof handle);
  *out_size = sizeof handle;
  return HAL_OK;
}
hal_status_t whole_event_ipc_open(int32_t device, const void *handle, size_t size, uint32_t flags,
                                  event_t **out_event) {
  handle_t known;
  (void)device;
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  const int file = open_handle(handle, size, EVENT, &known);
  if (file < 0)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: event_ipc_open of what is no handle of an event in use");
  return add_event(file, out_event);
}

/* ---- host memory of the caller ---- */
enum { RANGES = 64 };
static struct {
  const uint8_t *ptr;
  size_t size;
} ranges[RANGES];

hal_status_t whole_host_register(int32_t device, void *ptr, size_t size, uint32_t flags) {
  const uint8_t *const begin = ptr;
  int room = -1, taken = 0;
  (void)device;
  if (flags) return HAL_UNIMPLEMENTED; /* none is known */
  if (!ptr || !size) return whole_refuse(HAL_INVALID_ARGUMENT, "whole: host_register of no memory");
  pthread_mutex_lock(&lock);
  for (int i = 0; i < RANGES; i++) {
    if (!ranges[i].ptr) room = i;
    taken |= ranges[i].ptr && begin < ranges[i].ptr + ranges[i].size && ranges[i].ptr < begin + size;
  }
  if (!taken && room >= 0) ranges[room].ptr = begin, ranges[room].size = size;
  pthread_mutex_unlock(&lock);
  if (taken)
    return whole_refuse(HAL_INVALID_ARGUMENT, "whole: host_register of memory that is registered; unregister it first");
  return room < 0 ? whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: too much host memory is registered") : HAL_OK;
}
hal_status_t whole_host_unregister(int32_t device, void *ptr) {
  int found = 0;
  (void)device;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < RANGES; i++)
    if (ptr && ranges[i].ptr == ptr) ranges[i].ptr = NULL, found = 1;
  pthread_mutex_unlock(&lock);
  return found ? HAL_OK : whole_refuse(HAL_INVALID_ARGUMENT, "whole: host_unregister of memory that is not registered");
}
