/* memory.c: device memory that the host cannot access. Each segment is mapped twice: at the public address, without
 * access rights, and at an address that only the device's threads use. This simulates the separate address space of a
 * real device within a process. A host that omits a copy faults immediately. */
#define _GNU_SOURCE /* memfd_create */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "threads.h"

typedef struct segment_s {
  struct segment_s *next;
  char *closed, *open; /* the host's mapping, the device's mapping */
  size_t size;
  int32_t device;
} segment_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static segment_t *segments; /* few, because the host's allocator allocates large ones and divides them */

static segment_t *find(const void *address) {
  for (segment_t *segment = segments; segment; segment = segment->next)
    if ((const char *)address >= segment->closed && (const char *)address < segment->closed + segment->size)
      return segment;
  return NULL;
}

void *threads_translate(const void *address) {
  pthread_mutex_lock(&lock);
  const segment_t *const segment = find(address);
  void *const open = segment ? segment->open + ((const char *)address - segment->closed) : NULL;
  pthread_mutex_unlock(&lock);
  return open;
}

/* Maps `size` bytes twice. */
static int map_twice(segment_t *segment, size_t size) {
  const int file = memfd_create("threads", MFD_CLOEXEC);
  if (file < 0) return 0;
  void *closed = MAP_FAILED, *open = MAP_FAILED;
  if (ftruncate(file, (off_t)size) == 0) {
    closed = mmap(NULL, size, PROT_NONE, MAP_SHARED, file, 0);
    open = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file); /* the mappings keep the memory */
  segment->closed = closed, segment->open = open;
  if (closed != MAP_FAILED && open != MAP_FAILED) return 1;
  if (closed != MAP_FAILED) munmap(closed, size);
  if (open != MAP_FAILED) munmap(open, size);
  return 0;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = threads_check_device(device);
  if (!status) status = hal_flags_check("threads: memory_alloc", flags, 0);
  if (status) return status;
  segment_t *const segment = hal_host->mem_alloc(sizeof *segment, _Alignof(segment_t));
  if (!segment || !map_twice(segment, size)) {
    hal_host->mem_free(segment);
    return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "threads: out of memory for a segment; free some tensors");
  }
  segment->size = size, segment->device = device;
  pthread_mutex_lock(&lock);
  segment->next = segments, segments = segment;
  pthread_mutex_unlock(&lock);
  *out_ptr = segment->closed;
  return HAL_OK;
}

/* The host calls this only when no queued work uses the memory, so it does not wait. */
hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  (void)device;
  if (!ptr) return HAL_OK;
  pthread_mutex_lock(&lock);
  segment_t **link = &segments;
  while (*link && (*link)->closed != ptr) link = &(*link)->next;
  segment_t *const segment = *link;
  if (segment) *link = segment->next;
  pthread_mutex_unlock(&lock);
  if (!segment)
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "threads: the address to free is not the start of a segment");
  munmap(segment->closed, segment->size);
  munmap(segment->open, segment->size);
  hal_host->mem_free(segment);
  return HAL_OK;
}

/* ---- copies and fills ------------------------------------------------------------------------------------------ */

/* Returns the address by which the device's threads access one side of a copy. */
static void *reach(const void *address, int32_t device) {
  return device == HAL_HOST ? (void *)address : threads_translate(address);
}

hal_status_t threads_copy_now(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t size) {
  void *const to = reach(dst, dst_device);
  const void *const from = reach(src, src_device);
  if (!to || !from)
    return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "threads: an address to copy is not in a segment");
  memcpy(to, from, size);
  return HAL_OK;
}

typedef struct copy_s {
  void *dst;
  const void *src;
  size_t size;
  int32_t dst_device, src_device;
} copy_t;

static hal_status_t run_copy(const void *arguments) {
  const copy_t *const copy = arguments;
  return threads_copy_now(copy->dst, copy->dst_device, copy->src, copy->src_device, copy->size);
}

/* Both buffers stay valid until the copy is done, so their addresses are sufficient. With a NULL stream the copy runs
 * immediately. */
hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  const copy_t copy = {dst, src, size, dst_device, src_device};
  return size ? threads_submit(stream, "memory_copy", run_copy, &copy, sizeof copy) : HAL_OK;
}

typedef struct fill_s {
  void *dst;
  size_t size, pattern_size;
  unsigned char pattern[16]; /* copied before the call returns */
} fill_t;

static hal_status_t run_fill(const void *arguments) {
  const fill_t *const fill = arguments;
  unsigned char *const to = threads_translate(fill->dst);
  if (!to) return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "threads: the address to fill is not in a segment");
  for (size_t i = 0; i < fill->size; i++) to[i] = fill->pattern[i % fill->pattern_size];
  return HAL_OK;
}

hal_status_t hal_plugin_memory_fill(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                    size_t pattern_size, size_t size) {
  (void)device;
  fill_t fill = {.dst = dst, .size = size, .pattern_size = pattern_size};
  if (!pattern_size || pattern_size > sizeof fill.pattern || (pattern_size & (pattern_size - 1)) || size % pattern_size)
    return hal_host->error_set(
        HAL_INVALID_ARGUMENT, 0,
        "threads: invalid pattern: expected 1, 2, 4, 8 or 16 bytes, and a size that is a multiple of it");
  memcpy(fill.pattern, pattern, pattern_size);
  return size ? threads_submit(stream, "memory_fill", run_fill, &fill, sizeof fill) : HAL_OK;
}
