/* memory.c: unified shared memory: host memory, with the owner of each range. Memory of devices is in unnamed files,
 * which other processes can open. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

typedef struct range_s {
  char *base;
  size_t size;
  int kind; /* RANGE_* */
  int file; /* of a device's memory, -1 = none: private to the process */
  ze_memory_type_t type;
  device_t *device;
  uint64_t id;
  struct range_s *next;
} range_t;

static range_t *ranges;
static uint64_t last_id;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

unsigned long long memory_limit(void) {
  const char *const text = getenv("ZE_CPU_MEMORY");
  const unsigned long long bytes = text ? strtoull(text, NULL, 10) : 0;
  return bytes ? bytes : 8ull << 30;
}

int memory_take_bytes(device_t *device, size_t size) {
  if (atomic_fetch_add(&device->used, size) + size <= memory_limit()) return 1;
  atomic_fetch_sub(&device->used, size);
  return 0;
}

void memory_return_bytes(device_t *device, size_t size) { atomic_fetch_sub(&device->used, size); }

static ze_result_t note(range_t what) {
  range_t *const range = malloc(sizeof *range);
  if (!range) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  *range = what;
  pthread_mutex_lock(&lock);
  range->id = ++last_id;
  range->next = ranges;
  ranges = range;
  pthread_mutex_unlock(&lock);
  return ZE_RESULT_SUCCESS;
}

ze_result_t memory_note(void *base, size_t size, int kind, device_t *device) {
  return note(
      (range_t){.base = base, .size = size, .kind = kind, .file = -1, .type = ZE_MEMORY_TYPE_DEVICE, .device = device});
}

/* Removes the range of a kind that begins there from the list; NULL = there is none. */
static range_t *unlist(const void *base, int kind) {
  pthread_mutex_lock(&lock);
  range_t **at = &ranges;
  while (*at && ((*at)->base != base || (*at)->kind != kind)) at = &(*at)->next;
  range_t *const range = *at;
  if (range) *at = range->next;
  pthread_mutex_unlock(&lock);
  return range;
}

ze_result_t memory_forget(const void *base, int kind, size_t *out_size) {
  range_t *const range = unlist(base, kind);
  if (!range) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  *out_size = range->size;
  free(range);
  return ZE_RESULT_SUCCESS;
}

/* Memory in a separate file; private to the process if there are no more files. */
static void *map_memory(size_t size, int *out_file) {
  *out_file = memfd_create("dmabuf", MFD_CLOEXEC); /* the name of files in which drivers keep devices' memory */
  if (*out_file >= 0 && ftruncate(*out_file, (off_t)size) == 0) {
    void *const base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *out_file, 0);
    if (base != MAP_FAILED) return base;
  }
  if (*out_file >= 0) close(*out_file);
  *out_file = -1;
  void *const base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return base == MAP_FAILED ? NULL : base;
}

static ze_result_t take(size_t size, size_t alignment, ze_memory_type_t type, device_t *device, void **out) {
  enum { LEAST_ALIGNMENT = 256, PAGE = 4096 };
  void *base = NULL;
  int file = -1;
  if (alignment & (alignment - 1) || alignment > PAGE) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  if (!size || size > memory_limit()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  if (device && atomic_load(&device->lost)) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (fault_takes(device ? FAULT_ALLOC : FAULT_HOST))
    return device ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (device && !memory_take_bytes(device, size)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  if (device)
    base = map_memory(size, &file);
  else if (posix_memalign(&base, alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT, size))
    base = NULL;
  const ze_result_t code =
      base ? note((range_t){.base = base, .size = size, .file = file, .type = type, .device = device})
           : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (!code) {
    *out = base;
    return code;
  }
  if (device) memory_return_bytes(device, size);
  if (device && base) munmap(base, size);
  if (file >= 0) close(file);
  if (!device) free(base);
  return code;
}

static ze_result_t alloc_shared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *device_desc,
                                const ze_host_mem_alloc_desc_t *host_desc, size_t size, size_t alignment,
                                ze_device_handle_t device, void **out) {
  (void)context, (void)device_desc, (void)host_desc;
  return take(size, alignment, ZE_MEMORY_TYPE_SHARED, (device_t *)device, out);
}

static ze_result_t alloc_device(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                size_t alignment, ze_device_handle_t device, void **out) {
  (void)context, (void)desc;
  return take(size, alignment, ZE_MEMORY_TYPE_DEVICE, (device_t *)device, out);
}

static ze_result_t alloc_host(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                              size_t alignment, void **out) {
  (void)context, (void)desc;
  return take(size, alignment, ZE_MEMORY_TYPE_HOST, NULL, out);
}

static ze_result_t give_back(ze_context_handle_t context, void *ptr) {
  (void)context;
  range_t *const range = unlist(ptr, RANGE_ALLOCATED);
  if (!range) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (range->device) {
    memory_return_bytes(range->device, range->size);
    munmap(range->base, range->size);
    if (range->file >= 0) close(range->file);
  } else {
    free(range->base);
  }
  free(range);
  return ZE_RESULT_SUCCESS;
}

/* Copies the properties of the range that contains an address. Returns 0 if there is none. */
static int find(const void *ptr, range_t *out_range) {
  pthread_mutex_lock(&lock);
  const range_t *range = ranges;
  while (range && (uintptr_t)ptr - (uintptr_t)range->base >= range->size) range = range->next;
  if (range) *out_range = *range;
  pthread_mutex_unlock(&lock);
  return range != NULL;
}

ze_result_t memory_check(const void *ptr, size_t size) {
  range_t range;
  if (!ptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (!find(ptr, &range)) return ZE_RESULT_SUCCESS; /* the host's own */
  const size_t offset = (size_t)((const char *)ptr - range.base);
  return size <= range.size - offset ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_SIZE;
}

static ze_result_t properties(ze_context_handle_t context, const void *ptr, ze_memory_allocation_properties_t *out,
                              ze_device_handle_t *out_device) {
  (void)context;
  range_t range = {.type = ZE_MEMORY_TYPE_UNKNOWN};
  find(ptr, &range);
  out->type = range.type;
  out->id = range.id;
  out->pageSize = 4096;
  if (out_device) *out_device = (ze_device_handle_t)range.device;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t address_range(ze_context_handle_t context, const void *ptr, void **out_base, size_t *out_size) {
  (void)context;
  range_t range;
  if (!find(ptr, &range)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (out_base) *out_base = range.base;
  if (out_size) *out_size = range.size;
  return ZE_RESULT_SUCCESS;
}

/* ---- other processes ---- */

/* The contents of a handle: the number of a file of this process, like drivers on Linux. With ZE_CPU_IPC=process, it
 * is a process and its file, so that the handle works without a file transfer. */
typedef struct shared_s {
  int32_t place, file; /* a file and -1, or a process and its file */
  uint64_t size, mark;
} shared_t;
#define SHARED_MARK UINT64_C(0x7a655f6370755f31)

static ze_result_t get_handle(ze_context_handle_t context, const void *ptr, ze_ipc_mem_handle_t *out) {
  (void)context;
  const char *const kind = getenv("ZE_CPU_IPC");
  range_t range;
  if (!find(ptr, &range) || range.base != ptr || range.file < 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const int whole = kind && strcmp(kind, "process") == 0;
  const shared_t shared = {.place = whole ? (int32_t)getpid() : range.file,
                           .file = whole ? range.file : -1,
                           .size = range.size,
                           .mark = SHARED_MARK};
  memset(out, 0, sizeof *out);
  memcpy(out, &shared, sizeof shared);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t open_handle(ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                               ze_ipc_memory_flags_t flags, void **out) {
  (void)context, (void)flags;
  char path[64];
  struct stat facts;
  shared_t shared;
  memcpy(&shared, &handle, sizeof shared);
  if (shared.mark != SHARED_MARK) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (shared.file < 0)
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)shared.place);
  else
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)shared.place, (int)shared.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void *base = MAP_FAILED;
  if (file >= 0 && fstat(file, &facts) == 0 && (uint64_t)facts.st_size == shared.size)
    base = mmap(NULL, (size_t)shared.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (base == MAP_FAILED) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const ze_result_t code = memory_note(base, (size_t)shared.size, RANGE_OPENED, (device_t *)device);
  if (code) munmap(base, (size_t)shared.size);
  if (!code) *out = base;
  return code;
}

static ze_result_t close_handle(ze_context_handle_t context, const void *ptr) {
  (void)context;
  size_t size = 0;
  const ze_result_t code = memory_forget(ptr, RANGE_OPENED, &size);
  if (!code) munmap((void *)(uintptr_t)ptr, size);
  return code;
}

void memory_fill_table(ze_mem_dditable_t *table) {
  table->pfnAllocShared = alloc_shared;
  table->pfnAllocDevice = alloc_device;
  table->pfnAllocHost = alloc_host;
  table->pfnFree = give_back;
  table->pfnGetAllocProperties = properties;
  table->pfnGetAddressRange = address_range;
  table->pfnGetIpcHandle = get_handle;
  table->pfnOpenIpcHandle = open_handle;
  table->pfnCloseIpcHandle = close_handle;
}
