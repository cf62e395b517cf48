/* memory_virtual.h: virtual memory of the mock device (memory_double.h). Its memory counts in double_.live_bytes, as
 * that of memory_alloc. Memory that is unmapped while queued work uses it is detected, as is a wrong order of calls. */
#ifndef TEST_HAL_MEMORY_VIRTUAL_H_
#define TEST_HAL_MEMORY_VIRTUAL_H_

#include <sys/mman.h>

#include "memory_double.h"

struct hal_plugin_physical_s {
  hal_plugin_physical_t *next;
  size_t size;
  char *address; /* NULL: not mapped */
};

static struct {
  hal_plugin_physical_t *first;
  long ranges, pieces, mapped; /* that exist now */
} virtual_;

static hal_status_t virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  (void)device;
  DOUBLE_ENTER(virtual_reserve)
  void *const range = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) DOUBLE_LEAVE(hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "double: no addresses"));
  virtual_.ranges++;
  *out_ptr = range;
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t virtual_unreserve(int32_t device, void *ptr, size_t size) {
  (void)device;
  DOUBLE_ENTER(virtual_unreserve)
  for (const hal_plugin_physical_t *at = virtual_.first; at; at = at->next)
    if (at->address && at->address >= (char *)ptr && at->address < (char *)ptr + size) double_.violations++;
  virtual_.ranges--;
  munmap(ptr, size);
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t virtual_create(int32_t device, size_t size, uint32_t kinds, hal_plugin_physical_t **out_memory) {
  (void)device, (void)kinds;
  DOUBLE_ENTER(virtual_create)
  if (double_.total && (size > double_.total || double_.live_bytes > double_.total - size))
    DOUBLE_LEAVE(hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "double: it does not fit"));
  hal_plugin_physical_t *const memory = calloc(1, sizeof *memory);
  *memory = (hal_plugin_physical_t){.size = size, .next = virtual_.first};
  virtual_.first = memory;
  virtual_.pieces++, double_.live_bytes += size;
  *out_memory = memory;
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  (void)device;
  DOUBLE_ENTER(virtual_release)
  hal_plugin_physical_t **link = &virtual_.first;
  if (memory->address) double_.violations++; /* it is mapped */
  while (*link != memory) link = &(*link)->next;
  *link = memory->next;
  virtual_.pieces--, double_.live_bytes -= memory->size;
  free(memory);
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  (void)device;
  DOUBLE_ENTER(virtual_map)
  for (const hal_plugin_physical_t *at = virtual_.first; at; at = at->next)
    if (at->address && at->address < (char *)ptr + size && (char *)ptr < at->address + at->size) double_.violations++;
  if (size != memory->size || memory->address) double_.violations++;
  if (mprotect(ptr, size, PROT_READ | PROT_WRITE)) double_.violations++; /* it is not reserved */
  memory->address = ptr;
  virtual_.mapped++;
  DOUBLE_LEAVE(HAL_OK);
}

static hal_status_t virtual_unmap(int32_t device, void *ptr, size_t size) {
  (void)device;
  DOUBLE_ENTER(virtual_unmap)
  const char *const begin = ptr, *const end = begin + size;
  hal_plugin_physical_t *memory = virtual_.first;
  while (memory && memory->address != ptr) memory = memory->next;
  if (!memory || memory->size != size) DOUBLE_LEAVE(hal_host->error_set(HAL_INVALID_ARGUMENT, 0, "double: not mapped"));
  for (int u = 0; u < double_.use_count; u++) {
    const double_use_t *use = &double_.uses[u];
    if (use->stream->done < use->mark && use->begin < end && begin < use->begin + use->size) double_.violations++;
  }
  mmap(ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); /* loses the contents */
  memory->address = NULL;
  virtual_.mapped--;
  DOUBLE_LEAVE(HAL_OK);
}

/* As double_open, with virtual memory in multiples of `granularity`; 0: without. */
DOUBLE_FN hal_status_t virtual_open(int32_t devices, uint64_t granularity) {
  hal_plugin_api_t *const api = &hal_registry.plugins[0].api;
  if (granularity) {
    api->virtual_reserve = virtual_reserve;
    api->virtual_unreserve = virtual_unreserve;
    api->virtual_create = virtual_create;
    api->virtual_release = virtual_release;
    api->virtual_map = virtual_map;
    api->virtual_unmap = virtual_unmap;
  }
  for (int32_t i = 0; i < devices; i++) hal_devices[i].info.virtual_granularity = granularity;
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 0);
  return double_open(devices, 0);
}

/* As double_close, with the virtual memory that was not released. */
DOUBLE_FN long virtual_close(void) {
  const long errors = double_close();
  return errors + virtual_.ranges + virtual_.pieces + virtual_.mapped + (long)double_.live_bytes;
}

#endif /* TEST_HAL_MEMORY_VIRTUAL_H_ */
