/* memory.c: device memory and pinned host memory. Every allocation is a separate mapping, registered in a sorted table,
 * so that an invalid free is an error and an address identifies its allocation. The host's allocator requests few,
 * large segments. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protect.h"
#include "sanitize/sanitize.h"

#define HUGE_PAGE ((size_t)2 << 20)

static struct {
  fake_lock_t lock;
  fake_segment_t *segments; /* sorted by address */
  size_t count, capacity;
} map;

/* ---- the table, under its lock ---------------------------------------------------------------------------------- */

/* Returns the index of the last segment whose base is not above `address`, plus one. */
static size_t upper_bound(const char *address) {
  size_t low = 0, high = map.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (map.segments[middle].base <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static hal_status_t insert(fake_segment_t segment) {
  if (map.count == map.capacity) {
    const size_t capacity = map.capacity ? 2 * map.capacity : 64;
    fake_segment_t *grown = hal_host->mem_alloc(capacity * sizeof *grown, alignof(fake_segment_t));
    if (!grown) return HAL_RESOURCE_EXHAUSTED;
    if (map.count) memcpy(grown, map.segments, map.count * sizeof *grown);
    hal_host->mem_free(map.segments);
    map.segments = grown;
    map.capacity = capacity;
  }
  const size_t at = upper_bound(segment.base);
  memmove(map.segments + at + 1, map.segments + at, (map.count - at) * sizeof segment);
  map.segments[at] = segment;
  map.count++;
  return HAL_OK;
}

/* Removes the segment that begins at `ptr` and belongs to `device` from the table; 0 = there is none. */
static int take_out(int32_t device, const void *ptr, fake_segment_t *out_segment) {
  const size_t end = upper_bound(ptr);
  if (!end || map.segments[end - 1].base != ptr || map.segments[end - 1].device != device) return 0;
  *out_segment = map.segments[end - 1];
  memmove(map.segments + end - 1, map.segments + end, (map.count - end) * sizeof *map.segments);
  map.count--;
  return 1;
}

/* Returns the segment that contains `address`, also in its guard pages; NULL = none. */
static const fake_segment_t *holder(const char *address) {
  const size_t end = upper_bound(address);
  const fake_segment_t *below = end ? &map.segments[end - 1] : NULL;
  const fake_segment_t *above = end < map.count ? &map.segments[end] : NULL;
  if (below && address < below->reserved + below->reserved_size) return below;
  return above && address >= above->reserved ? above : NULL;
}

int fake_memory_find(const void *address, fake_segment_t *out_segment) {
  fake_lock(&map.lock);
  const fake_segment_t *segment = holder(address);
  if (segment) *out_segment = *segment;
  fake_unlock(&map.lock);
  return segment != NULL;
}

int fake_memory_find_in_handler(const void *address, fake_segment_t *out_segment) {
  /* The interrupted thread may hold the lock, so this must not wait without a limit. Sections with the lock held take
   * about 100 ns. */
  int held = 0;
  for (int i = 0; i < 1000000 && !held; i++) {
    held = fake_lock_try(&map.lock);
    if (!held) FAKE_RELAX();
  }
  const fake_segment_t *segment = held ? holder(address) : NULL;
  if (segment) *out_segment = *segment;
  if (held) fake_unlock(&map.lock);
  return held ? segment != NULL : -1;
}

/* ---- mappings --------------------------------------------------------------------------------------------------- */

/* Maps a file at an address that is aligned to huge pages, within the `reserved` bytes. */
static char *map_file(size_t bytes, size_t reserved, int file) {
  char *raw = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  char *const base = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
  const size_t head = (size_t)(base - raw), tail = reserved - head - bytes;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(raw, reserved);
    return NULL;
  }
  if (head) munmap(raw, head);
  if (tail) munmap(base + bytes, tail);
  madvise(base, bytes, MADV_HUGEPAGE); /* may fail: kernels without huge pages */
  return base;
}

/* Maps whole pages. From 2 MiB on they are aligned to huge pages, and use them if the system has them: with pages of 4
 * KiB the page faults of a new 64 MiB result take several times as long as computing it. */
static char *map_pages(size_t bytes, int file) {
  const size_t slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
  size_t reserved = 0;
  if (__builtin_add_overflow(bytes, slack, &reserved)) return NULL;
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  if (file >= 0 && slack) return map_file(bytes, reserved, file);
  char *raw = mmap(NULL, reserved, PROT_READ | PROT_WRITE, kind, file, 0);
  if (raw == MAP_FAILED) return NULL;
  if (!slack) return raw;
  const size_t head = (HUGE_PAGE - ((uintptr_t)raw & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
  if (head) munmap(raw, head);
  if (slack - head) munmap(raw + head + bytes, slack - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE); /* may fail: kernels without huge pages */
  return raw + head;
}

size_t fake_whole_pages(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t rounded = 0;
  return __builtin_add_overflow(size, page - 1, &rounded) ? 0 : rounded & ~(page - 1);
}

void fake_memory_map(fake_segment_t *segment, int file) {
  if (segment->device != HAL_HOST && fake.settings.protect) {
    fake_protect_map(segment, file);
    return;
  }
  segment->base = segment->work = segment->reserved = map_pages(segment->mapped, file);
  segment->reserved_size = segment->mapped;
}

static hal_status_t map_segment(int32_t device, size_t size, size_t mapped, void **out_ptr) {
  fake_segment_t segment = {.size = size, .mapped = mapped, .device = device, .file = -1};
  fake_memory_map(&segment, -1);
  if (!segment.base)
    return fake_error(HAL_RESOURCE_EXHAUSTED, errno,
                      "fake: the system returned no mapping of %zu bytes (%s); free some tensors", mapped,
                      strerror(errno));
  fake_lock(&map.lock);
  const hal_status_t status = insert(segment);
  fake_unlock(&map.lock);
  if (status) {
    munmap(segment.reserved, segment.reserved_size);
    return fake_error(status, 0, "fake: no host memory for the table of segments; free some memory");
  }
  *out_ptr = segment.base;
  return HAL_OK;
}

static hal_status_t unmap_segment(int32_t device, void *ptr, const char *what, size_t *out_mapped) {
  fake_segment_t segment;
  fake_lock(&map.lock);
  const int found = take_out(device, ptr, &segment);
  const int is_other = found && (segment.is_virtual || segment.is_opened || segment.is_registered);
  if (is_other) insert(segment); /* cannot fail: the entry was removed before */
  fake_unlock(&map.lock);
  if (!found || is_other)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: %s(%d, %p): this is not the start of such an allocation; free each "
                      "allocation once, on its own device",
                      what, (int)device, ptr);
  munmap(segment.reserved, segment.reserved_size);
  if (segment.file >= 0) close(segment.file);
  *out_mapped = segment.mapped;
  return HAL_OK;
}

static hal_status_t add(const fake_segment_t *segment) {
  fake_lock(&map.lock);
  const hal_status_t status = insert(*segment);
  fake_unlock(&map.lock);
  if (!status) return HAL_OK;
  return fake_error(status, 0, "fake: no host memory for the table of segments; free some memory");
}

hal_status_t fake_memory_add(int32_t device, char *base, size_t size) {
  const fake_segment_t segment = {.base = base,
                                  .work = base,
                                  .reserved = base,
                                  .reserved_size = size,
                                  .size = size,
                                  .mapped = size,
                                  .device = device,
                                  .is_virtual = 1,
                                  .file = -1};
  return add(&segment);
}

hal_status_t fake_memory_add_segment(const fake_segment_t *segment) { return add(segment); }

hal_status_t fake_memory_remove_opened(int32_t device, void *base, fake_segment_t *out_segment) {
  fake_lock(&map.lock);
  const int found = take_out(device, base, out_segment);
  const int right = found && out_segment->is_opened;
  if (found && !right) insert(*out_segment);
  fake_unlock(&map.lock);
  if (right) return HAL_OK;
  return fake_error(
      HAL_INVALID_ARGUMENT, 0,
      "fake: ipc_close(%d, %p): this is not open memory of another process; close what ipc_open returned, "
      "once, on its own device",
      (int)device, base);
}

hal_status_t fake_memory_mark_shared(int32_t device, const void *base, fake_segment_t *out_segment) {
  fake_segment_t *found = NULL;
  fake_lock(&map.lock);
  const size_t end = upper_bound(base);
  if (end && map.segments[end - 1].base == base && map.segments[end - 1].device == device)
    found = &map.segments[end - 1];
  if (found && (found->is_virtual || found->is_opened)) found = NULL;
  if (found) {
    found->is_shared = 1;
    *out_segment = *found;
  }
  fake_unlock(&map.lock);
  if (found) return HAL_OK;
  return fake_error(HAL_INVALID_ARGUMENT, 0,
                    "fake: ipc_export(%d, %p): this is not the start of an allocation of this process; pass an address "
                    "of memory_alloc, and its device",
                    (int)device, base);
}

void fake_memory_set_file(const void *base, int file, const hal_shared_handle_t *handle) {
  fake_lock(&map.lock);
  const size_t end = upper_bound(base);
  if (end && map.segments[end - 1].base == base)
    map.segments[end - 1].file = file, map.segments[end - 1].handle = *handle;
  fake_unlock(&map.lock);
}

hal_status_t fake_memory_remove(int32_t device, char *base, size_t size) {
  fake_segment_t segment = {.size = 0};
  fake_lock(&map.lock);
  const int found = take_out(device, base, &segment);
  const int right = found && segment.is_virtual && segment.size == size;
  if (found && !right) insert(segment);
  fake_unlock(&map.lock);
  if (right) return HAL_OK;
  return fake_error(HAL_INVALID_ARGUMENT, 0,
                    "fake: nothing of %zu bytes is mapped at %p on device %d; pass a whole range of virtual_map", size,
                    (void *)base, (int)device);
}

/* ---- device memory ---------------------------------------------------------------------------------------------- */

int fake_memory_charge(int32_t ordinal, uint64_t bytes) {
  fake_device_t *const device = &fake.devices[ordinal];
  uint64_t allocated = atomic_load_explicit(&device->allocated, memory_order_relaxed);
  do {
    if (bytes > fake.settings.memory || allocated > fake.settings.memory - bytes) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&device->allocated, &allocated, allocated + bytes,
                                                  memory_order_relaxed, memory_order_relaxed));
  return 1;
}

void fake_memory_refund(int32_t device, uint64_t bytes) {
  atomic_fetch_sub_explicit(&fake.devices[device].allocated, bytes, memory_order_relaxed);
}

static hal_status_t allocate(int32_t device, size_t size, uint32_t flags, int is_program, void **out_ptr) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: memory_alloc", flags, 0);
  if (!status) status = fake_captures_check("memory_alloc");
  if (status) return status;
  if (!size)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: memory_alloc of 0 bytes on device %d; request at least one",
                      (int)device);
  fake_device_t *owner = &fake.devices[device];
  const size_t mapped = fake_whole_pages(size);
  if (!mapped || !fake_memory_charge(device, mapped)) {
    const uint64_t used = atomic_load_explicit(&owner->allocated, memory_order_relaxed);
    return fake_error(
        HAL_RESOURCE_EXHAUSTED, 0,
        "fake: out of memory: tried to allocate %zu bytes on device %d, of whose %llu bytes %llu are free; "
        "free some tensors or raise HAL_FAKE_MEMORY",
        size, (int)device, (unsigned long long)fake.settings.memory,
        (unsigned long long)(used < fake.settings.memory ? fake.settings.memory - used : 0));
  }
  status = fake.settings.sanitize ? fake_arena_alloc(device, size, is_program, out_ptr)
                                  : map_segment(device, size, mapped, out_ptr);
  if (status) fake_memory_refund(device, mapped);
  return status;
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  return allocate(device, size, flags, 0, out_ptr);
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) {
  size_t mapped = 0;
  if (!ptr) return HAL_OK;
  hal_status_t status = fake_check_device(device);
  if (!status) status = fake_captures_check("memory_free");
  if (!status && fake.settings.sanitize) return fake_arena_free(device, NULL, ptr);
  if (!status) status = unmap_segment(device, ptr, "memory_free", &mapped);
  if (!status) fake_memory_refund(device, mapped);
  return status;
}

/* Only with HAL_FAKE_SANITIZE the host uses these two (HAL_DEVICE_POOLED), so that each of its allocations is one of
 * the plugin's. */
hal_status_t hal_plugin_memory_alloc_async(int32_t device, hal_plugin_stream_t *stream, size_t size, uint32_t flags,
                                           void **out_ptr) {
  if (!fake.settings.sanitize) return hal_base_memory_alloc_async(device, stream, size, flags, out_ptr);
  return allocate(device, size, flags, 1, out_ptr);
}

/* A free that waits for the work of a stream. */
typedef struct later_s {
  int32_t device;
  void *ptr;
} later_t;

static void free_later(void *data) {
  const later_t later = *(const later_t *)data;
  size_t mapped = 0;
  hal_host->mem_free(data);
  if (!unmap_segment(later.device, later.ptr, "memory_free_async", &mapped)) fake_memory_refund(later.device, mapped);
}

/* Returns whether an address is the start of such an allocation. */
static int is_allocation(int32_t device, const void *ptr) {
  fake_segment_t segment;
  return fake_memory_find(ptr, &segment) && segment.base == ptr && segment.device == device && !segment.is_virtual &&
         !segment.is_opened;
}

hal_status_t hal_plugin_memory_free_async(int32_t device, hal_plugin_stream_t *stream, void *ptr) {
  const hal_status_t status = fake_check_device(device);
  if (status || !ptr) return status;
  if (fake.settings.sanitize) return fake_arena_free(device, stream, ptr);
  later_t *const later = fake_queues(stream) && !fake_is_captured(stream) && is_allocation(device, ptr)
                             ? hal_host->mem_alloc(sizeof *later, alignof(later_t))
                             : NULL;
  if (!later) return hal_base_memory_free_async(device, stream, ptr);
  *later = (later_t){device, ptr};
  const hal_status_t queued = hal_plugin_stream_host_call(stream, free_later, later);
  if (queued) hal_host->mem_free(later);
  return queued;
}

hal_status_t hal_plugin_memory_info(int32_t device, size_t *out_free, size_t *out_total) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  const uint64_t used = atomic_load_explicit(&fake.devices[device].allocated, memory_order_relaxed);
  *out_free = used < fake.settings.memory ? fake.settings.memory - used : 0;
  *out_total = fake.settings.memory;
  return HAL_OK;
}

hal_status_t hal_plugin_memory_pointer_info(const void *ptr, hal_pointer_info_t *out_info) {
  fake_segment_t segment = {0};
  fake_block_t block;
  if (fake.settings.sanitize && fake_arena_find(ptr, &block) && !block.is_released)
    segment = (fake_segment_t){.base = block.base, .size = block.size, .device = block.device};
  else if (fake.settings.sanitize && fake_arena_has(ptr))
    segment.base = (char *)(uintptr_t)ptr + 1; /* of no allocation */
  if ((!segment.base && !fake_memory_find(ptr, &segment)) || (size_t)((const char *)ptr - segment.base) >= segment.size)
    return fake_error(HAL_NOT_FOUND, 0, "fake: %p is not in an allocation of this plugin", ptr);
  hal_pointer_info_t info = {.struct_size = out_info->struct_size,
                             .base = segment.base,
                             .size = segment.size,
                             .device = segment.device,
                             .kind = segment.device == HAL_HOST ? HAL_POINTER_PINNED : HAL_POINTER_DEVICE};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* ---- host memory: all pages of the host are equivalent to pinned ones here -------------------------------------- */

hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: host_alloc", flags, 0);
  if (status) return status;
  const size_t mapped = fake_whole_pages(size);
  if (!mapped)
    return fake_error(size ? HAL_RESOURCE_EXHAUSTED : HAL_INVALID_ARGUMENT, 0,
                      "fake: host_alloc of %zu bytes; request at "
                      "least one, and for less than the machine has",
                      size);
  return map_segment(HAL_HOST, size, mapped, out_ptr);
}

hal_status_t hal_plugin_host_free(int32_t device, void *ptr) {
  (void)device;
  size_t mapped = 0;
  return ptr ? unmap_segment(HAL_HOST, ptr, "host_free", &mapped) : HAL_OK;
}

hal_status_t hal_plugin_host_register(int32_t device, void *ptr, size_t size, uint32_t flags) {
  fake_segment_t segment;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: host_register", flags, 0);
  if (status) return status;
  if (fake_memory_find(ptr, &segment) || fake_memory_find((char *)ptr + size - 1, &segment))
    return fake_error(
        HAL_INVALID_ARGUMENT, 0,
        "fake: host_register of %zu bytes at %p: they overlap an allocation, or memory that is registered", size, ptr);
  segment = (fake_segment_t){.base = ptr,
                             .work = ptr,
                             .reserved = ptr,
                             .reserved_size = size,
                             .size = size,
                             .device = HAL_HOST,
                             .is_registered = 1,
                             .file = -1};
  return add(&segment);
}

hal_status_t hal_plugin_host_unregister(int32_t device, void *ptr) {
  fake_segment_t segment;
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  fake_lock(&map.lock);
  const int found = take_out(HAL_HOST, ptr, &segment);
  const int is_other = found && !segment.is_registered;
  if (is_other) insert(segment); /* cannot fail: the entry was removed before */
  fake_unlock(&map.lock);
  if (found && !is_other) return HAL_OK;
  return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: %p is not the start of memory of host_register", ptr);
}

/* Kernels run in the host's address space. */
hal_status_t hal_plugin_host_device_pointer(int32_t device, void *ptr, void **out_ptr) {
  const hal_status_t status = fake_check_device(device);
  fake_segment_t segment = {.device = 0};
  if (status) return status;
  if (!fake_memory_find(ptr, &segment) || segment.device != HAL_HOST ||
      (size_t)((const char *)ptr - segment.base) >= segment.size)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: %p is not in page-locked memory; allocate it with host_alloc",
                      ptr);
  *out_ptr = ptr;
  return HAL_OK;
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

void fake_memory_fork_prepare(void) { fake_lock(&map.lock); }
void fake_memory_fork_parent(void) { fake_unlock(&map.lock); }
void fake_memory_fork_child(void) { fake_lock_reset(&map.lock); }
