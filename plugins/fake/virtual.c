/* virtual.c: virtual memory: reserved ranges are mappings without any permission, and memory is an unnamed file that is
 * mapped into them. A file descriptor shares it with other processes. Not available with HAL_FAKE_PROTECT=1, whose two
 * mappings need more addresses than a reservation has. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

struct hal_plugin_physical_s {
  size_t size;
  int file;
  int32_t device;
  int charged; /* imported memory is counted where it was created */
};

static hal_status_t check(int32_t device, size_t size) {
  const hal_status_t status = fake_check_device(device);
  if (status) return status;
  if (fake.settings.protect) return HAL_UNIMPLEMENTED;
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

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  const hal_status_t status = check(device, size);
  if (status) return status;
  void *const range = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return failed("virtual_reserve", size);
  *out_ptr = range;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  const hal_status_t status = check(device, size);
  if (status) return status;
  return munmap(ptr, size) ? failed("virtual_unreserve", size) : HAL_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static hal_status_t make(int32_t device, size_t size, int file, int charged, hal_plugin_physical_t **out_memory) {
  hal_plugin_physical_t *const memory = hal_host->mem_alloc(sizeof *memory, alignof(hal_plugin_physical_t));
  if (!memory) return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a handle; free some memory");
  *memory = (hal_plugin_physical_t){.size = size, .file = file, .device = device, .charged = charged};
  *out_memory = memory;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t handle_kinds,
                                       hal_plugin_physical_t **out_memory) {
  hal_status_t status = check(device, size);
  if (!status) status = fake_captures_check("virtual_create");
  if (status) return status;
  if (handle_kinds & ~(uint32_t)HAL_HANDLE_FILE) return HAL_UNIMPLEMENTED;
  if (!fake_memory_charge(device, size))
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0,
                      "fake: out of memory: tried to create %zu bytes on device %d of %llu; free some tensors or raise "
                      "HAL_FAKE_MEMORY",
                      size, (int)device, (unsigned long long)fake.settings.memory);
  const int file = memfd_create("hal-fake", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)size))
    status = failed("virtual_create", size);
  else
    status = make(device, size, file, 1, out_memory);
  if (!status) return HAL_OK;
  if (file >= 0) close(file);
  fake_memory_refund(device, size);
  return status;
}

hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  if (memory->charged) fake_memory_refund(device, memory->size);
  close(memory->file);
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
  if (mmap(ptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED)
    return failed("virtual_map", size);
  status = fake_memory_add(device, ptr, size);
  if (status) clear(ptr, size);
  return status;
}

hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  hal_status_t status = check(device, size);
  if (!status) status = fake_memory_remove(device, ptr, size);
  if (status) return status;
  return clear(ptr, size) ? failed("virtual_unmap", size) : HAL_OK;
}

/* All devices share the host's address space, so a device's peers have the same access. */
hal_status_t hal_plugin_virtual_access(int32_t device, void *ptr, size_t size, int32_t peer, uint32_t access) {
  hal_status_t status = check(device, size);
  if (!status) status = fake_check_device(peer);
  if (status || peer != device) return status;
  const int write = access == HAL_ACCESS_READ_WRITE ? PROT_WRITE : 0;
  return mprotect(ptr, size, access ? PROT_READ | write : PROT_NONE) ? failed("virtual_access", size) : HAL_OK;
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
  status = make(device, size, file, 0, out_memory);
  if (status) close(file);
  return status;
}
