/* virtual.c: virtual memory: reserved ranges are mappings without any permission, and memory is a part of an unnamed
 * file that is mapped into them. A file descriptor shares memory with other processes. With HAL_FAKE_PROTECT=1 a range
 * has a second mapping (protect.c), at which the memory is mapped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protect.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* Memory that is not shared is in one file without a limit, because the system limits the number of files. Its parts
 * are used once; a released part has no memory. */
#define STORE_BYTES ((uint64_t)1 << 46)
static _Atomic int store_file = -1;
static atomic_uint_fast64_t store_end;

struct hal_plugin_physical_s {
  size_t size;
  uint64_t offset; /* in the file */
  int file;
  int is_stored; /* the file is that of the store */
  int32_t device;
  int charged; /* imported memory is counted where it was created */
};

static hal_status_t check(int32_t device, size_t size) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  if (fake.settings.sanitize) return HAL_UNIMPLEMENTED;
  if (size && size == fake_whole_pages(size)) return HAL_OK;
  return fake_error(HAL_INVALID_ARGUMENT, 0,
                    "fake: virtual memory of %zu bytes; request a multiple of the page size, %ld (virtual_granularity)",
                    size, sysconf(_SC_PAGESIZE));
}

static hal_status_t failed(const char *what, size_t size) {
  const int cause = errno;
  return fake_error(cause == ENOMEM || cause == EMFILE || cause == ENFILE ? HAL_RESOURCE_EXHAUSTED : HAL_INTERNAL,
                    cause, "fake: %s of %zu bytes: %s; free some memory", what, size, strerror(cause));
}

/* Makes a range inaccessible, whatever was mapped there. */
static int clear(void *ptr, size_t size) {
  return mmap(ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED;
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

/* Returns the address at which memory is mapped for a device address: another one if memory is protected. */
static char *work_of(char *ptr) {
  fake_segment_t segment;
  if (!fake.settings.protect || !fake_memory_find(ptr, &segment)) return ptr;
  return segment.work + (ptr - segment.base);
}

/* Reserves addresses that are aligned to huge pages. */
static char *reserve(size_t size) {
  const size_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
  size_t total = 0;
  errno = ENOMEM;
  if (__builtin_add_overflow(size, slack, &total)) return NULL;
  char *const raw = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  const size_t head = slack ? (HUGE_PAGE - ((uintptr_t)raw & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1) : 0;
  if (head) munmap(raw, head);
  if (slack - head) munmap(raw + head + size, slack - head);
  return raw + head;
}

static hal_status_t reserve_protected(int32_t device, size_t size, void **out_ptr) {
  fake_segment_t segment = {.size = size, .mapped = size, .device = device, .is_virtual = 1, .file = -1};
  fake_protect_reserve(&segment);
  if (!segment.base) return failed("virtual_reserve", size);
  const hal_status_t status = fake_memory_add_segment(&segment);
  if (status)
    munmap(segment.reserved, segment.reserved_size);
  else
    *out_ptr = segment.base;
  return status;
}

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  const hal_status_t status = check(device, size);
  if (status) return status;
  if (fake.settings.protect) return reserve_protected(device, size, out_ptr);
  char *const range = reserve(size);
  if (!range) return failed("virtual_reserve", size);
  *out_ptr = range;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  fake_segment_t segment = {.reserved = ptr, .reserved_size = size};
  hal_status_t status = check(device, size);
  if (!status && fake.settings.protect) {
    fake_memory_find(ptr, &segment);
    status = fake_memory_remove(device, ptr, size);
  }
  if (status) return status;
  return munmap(segment.reserved, segment.reserved_size) ? failed("virtual_unreserve", size) : HAL_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static hal_status_t make(const hal_plugin_physical_t *value, hal_plugin_physical_t **out_memory) {
  hal_plugin_physical_t *const memory = hal_host->mem_alloc(sizeof *memory, alignof(hal_plugin_physical_t));
  if (!memory) return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a handle; free some memory");
  *memory = *value;
  *out_memory = memory;
  return HAL_OK;
}

/* Returns the store's file, which the first call creates; -1 after a failure. */
static int open_store(void) {
  int file = atomic_load(&store_file);
  if (file >= 0) return file;
  const int created = memfd_create("hal-fake", MFD_CLOEXEC);
  if (created < 0 || ftruncate(created, (off_t)STORE_BYTES)) {
    if (created >= 0) close(created);
    return -1;
  }
  if (atomic_compare_exchange_strong(&store_file, &file, created)) return created;
  close(created);
  return file;
}

void fake_virtual_close(void) {
  const int file = atomic_exchange(&store_file, -1);
  if (file >= 0) close(file);
}

/* Finds a place in the store, or creates a file. Returns whether that failed, with errno. */
static int find_place(hal_plugin_physical_t *memory, uint32_t handle_kinds) {
  const int file = handle_kinds ? -1 : open_store();
  const uint64_t offset = file >= 0 ? atomic_fetch_add(&store_end, memory->size) : 0;
  memory->is_stored = file >= 0 && offset <= STORE_BYTES - memory->size;
  memory->offset = memory->is_stored ? offset : 0;
  memory->file = memory->is_stored ? file : memfd_create("hal-fake", MFD_CLOEXEC);
  return memory->file < 0 || (!memory->is_stored && ftruncate(memory->file, (off_t)memory->size));
}

/* Frees the memory of a place. */
static void leave_place(const hal_plugin_physical_t *memory) {
  if (!memory->is_stored) {
    if (memory->file >= 0) close(memory->file);
    return;
  }
  /* May fail only if the file is closed. */
  if (fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)memory->offset, (off_t)memory->size))
    errno = 0;
}

hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t handle_kinds,
                                       hal_plugin_physical_t **out_memory) {
  hal_plugin_physical_t memory = {.size = size, .file = -1, .device = device, .charged = 1};
  hal_status_t status = check(device, size);
  if (!status) status = fake_captures_check("virtual_create");
  if (status) return status;
  if (handle_kinds & ~(uint32_t)HAL_HANDLE_FILE) return HAL_UNIMPLEMENTED;
  if (!fake_memory_charge(device, size))
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0,
                      "fake: out of memory: tried to create %zu bytes on device %d of %llu; free some tensors or raise "
                      "HAL_FAKE_MEMORY",
                      size, (int)device, (unsigned long long)fake.settings.memory);
  status = find_place(&memory, handle_kinds) ? failed("virtual_create", size) : make(&memory, out_memory);
  if (!status) return HAL_OK;
  leave_place(&memory);
  fake_memory_refund(device, size);
  return status;
}

hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  if (memory->charged) fake_memory_refund(device, memory->size);
  leave_place(memory);
  hal_host->mem_free(memory);
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  hal_status_t status = check(device, size);
  if (status) return status;
  if (size != memory->size || device != memory->device)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: virtual_map of %zu bytes on device %d; the memory has %zu bytes of device %d and can only "
                      "be mapped as a whole",
                      size, (int)device, memory->size, (int)memory->device);
  char *const work = work_of(ptr);
  if (mmap(work, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, (off_t)memory->offset) ==
      MAP_FAILED)
    return failed("virtual_map", size);
  if (!fake.settings.protect) status = fake_memory_add(device, ptr, size);
  if (status) clear(work, size);
  return status;
}

hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  hal_status_t status = check(device, size);
  if (!status && !fake.settings.protect) status = fake_memory_remove(device, ptr, size);
  if (status) return status;
  return clear(work_of(ptr), size) ? failed("virtual_unmap", size) : HAL_OK;
}

/* All devices share the host's address space, so a device's peers have the same access. */
hal_status_t hal_plugin_virtual_access(int32_t device, void *ptr, size_t size, int32_t peer, uint32_t access) {
  hal_status_t status = check(device, size);
  if (!status) status = fake_check_device(peer);
  if (status || peer != device) return status;
  const int write = access == HAL_ACCESS_READ_WRITE ? PROT_WRITE : 0;
  return mprotect(work_of(ptr), size, access ? PROT_READ | write : PROT_NONE) ? failed("virtual_access", size) : HAL_OK;
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_virtual_export(int32_t device, hal_plugin_physical_t *memory, uint32_t kind,
                                       hal_memory_handle_t *out_handle) {
  (void)device;
  if (kind != HAL_HANDLE_FILE) return HAL_UNIMPLEMENTED;
  const int file = fcntl(memory->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return failed("virtual_export", memory->size);
  *out_handle = (hal_memory_handle_t){.kind = HAL_HANDLE_FILE, .file = file};
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_import(int32_t device, const hal_memory_handle_t *handle, size_t size,
                                       hal_plugin_physical_t **out_memory) {
  hal_status_t status = check(device, size);
  if (status) return status;
  if (handle->kind != HAL_HANDLE_FILE) return HAL_UNIMPLEMENTED;
  struct stat about;
  if (fstat(handle->file, &about) || (uint64_t)about.st_size < size)
    return fake_error(HAL_INVALID_ARGUMENT, errno,
                      "fake: virtual_import of %zu bytes from file %d, which has no such memory; pass a handle of "
                      "virtual_export and the size of its memory",
                      size, (int)handle->file);
  const int file = fcntl(handle->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return failed("virtual_import", size);
  status = make(&(hal_plugin_physical_t){.size = size, .file = file, .device = device}, out_memory);
  if (status) close(file);
  return status;
}
