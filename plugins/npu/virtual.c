/* virtual.c: virtual memory, and memory that is shared between processes. */
#define _GNU_SOURCE /* syscall, MFD_CLOEXEC's file */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hal/plugin_flags.h>

#include "npu.h"

struct hal_plugin_physical_s {
  ze_physical_mem_handle_t handle;
  size_t size;
  int32_t device;
};

/* ---- addresses -------------------------------------------------------------------------------------------------- */

/* Returns a size of which all other page sizes are divisors: drivers use larger pages for larger memory. */
size_t npu_virtual_granularity(const npu_device_t *device) {
  static const size_t sizes[] = {1, (size_t)2 << 20, (size_t)1 << 30};
  size_t largest = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t page = 0;
    if (ze.zeVirtualMemQueryPageSize(npu.context, device->handle, sizes[i], &page)) return 0;
    if (!page || page & (page - 1)) return 0;
    if (page > largest) largest = page;
  }
  return largest;
}

static hal_status_t check(int32_t ordinal, size_t size) {
  const hal_status_t status = npu_check_alive(ordinal);
  if (status) return status;
  const npu_device_t *const device = &npu.devices[ordinal];
  if (!device->granularity)
    return npu_error(HAL_UNIMPLEMENTED, 0, "npu: the driver of '%s' has no virtual memory", device->facts.name);
  if (size && size % device->granularity == 0) return HAL_OK;
  return npu_error(HAL_INVALID_ARGUMENT, 0,
                   "npu: virtual memory of %zu bytes on '%s'; request a multiple of %zu (virtual_granularity)", size,
                   device->facts.name, device->granularity);
}

static hal_status_t finish(int32_t device, ze_result_t code, const char *what, size_t size) {
  npu_device_noticed(device, code);
  return code ? npu_driver_error(code, "npu: %s of %zu bytes on device %d failed", what, size, (int)device) : HAL_OK;
}

hal_status_t hal_plugin_virtual_reserve(int32_t device, size_t size, void **out_ptr) {
  void *ptr = NULL;
  hal_status_t status = check(device, size);
  if (status) return status;
  ze_result_t code = ze.zeVirtualMemReserve(npu.context, NULL, size, &ptr);
  if (code ==
      /* The validation layer of loader 1.8 requires a preferred address, which the driver may ignore */
      ZE_RESULT_ERROR_INVALID_NULL_POINTER)
    code = ze.zeVirtualMemReserve(npu.context, (void *)npu.devices[device].granularity, size, &ptr);
  if (!code && !ptr) code = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  status = finish(device, code, "virtual_reserve", size);
  if (!status) *out_ptr = ptr;
  return status;
}

hal_status_t hal_plugin_virtual_unreserve(int32_t device, void *ptr, size_t size) {
  const hal_status_t status = check(device, size);
  return status ? status : finish(device, ze.zeVirtualMemFree(npu.context, ptr, size), "virtual_unreserve", size);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

hal_status_t hal_plugin_virtual_create(int32_t device, size_t size, uint32_t handle_kinds,
                                       hal_plugin_physical_t **out_memory) {
  ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
  ze_physical_mem_handle_t handle = NULL;
  hal_status_t status = check(device, size);
  if (status) return status;
  if (handle_kinds)
    return npu_error(HAL_UNIMPLEMENTED, 0,
                     "npu: memory without an address that is shared in the ways 0x%x; Level Zero shares whole "
                     "allocations only (ipc_export)",
                     (unsigned)handle_kinds);
  hal_plugin_physical_t *const memory = hal_host->mem_alloc(sizeof *memory, alignof(hal_plugin_physical_t));
  if (!memory) return npu_error(HAL_RESOURCE_EXHAUSTED, 0, "npu: no host memory for a handle; free some memory");
  ze_result_t code = ze.zePhysicalMemCreate(npu.context, npu.devices[device].handle, &desc, &handle);
  if (!code && !handle) code = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  status = finish(device, code, "virtual_create", size);
  if (status) {
    hal_host->mem_free(memory);
    return status;
  }
  *memory = (hal_plugin_physical_t){handle, size, device};
  *out_memory = memory;
  return HAL_OK;
}

hal_status_t hal_plugin_virtual_release(int32_t device, hal_plugin_physical_t *memory) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  const ze_result_t code = ze.zePhysicalMemDestroy(npu.context, memory->handle);
  const size_t size = memory->size;
  hal_host->mem_free(memory);
  return finish(device, code, "virtual_release", size);
}

hal_status_t hal_plugin_virtual_map(int32_t device, void *ptr, size_t size, hal_plugin_physical_t *memory) {
  if (size != memory->size || device != memory->device)
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: virtual_map of %zu bytes on device %d; the memory has %zu bytes of device %d and can only "
                     "be mapped as a whole",
                     size, (int)device, memory->size, (int)memory->device);
  const hal_status_t status = check(device, size);
  if (status) return status;
  return finish(device,
                ze.zeVirtualMemMap(npu.context, ptr, size, memory->handle, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE),
                "virtual_map", size);
}

hal_status_t hal_plugin_virtual_unmap(int32_t device, void *ptr, size_t size) {
  const hal_status_t status = check(device, size);
  return status ? status : finish(device, ze.zeVirtualMemUnmap(npu.context, ptr, size), "virtual_unmap", size);
}

/* Access is a property of the range, for all devices: a peer has the same access as its device. */
hal_status_t hal_plugin_virtual_access(int32_t device, void *ptr, size_t size, int32_t peer, uint32_t access) {
  static const ze_memory_access_attribute_t attributes[] = {
      [HAL_ACCESS_NONE] = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE,
      [HAL_ACCESS_READ] = ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
      [HAL_ACCESS_READ_WRITE] = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE};
  int32_t can = 0;
  hal_status_t status = check(device, size);
  if (!status) status = hal_plugin_device_peer_query(peer, device, &can);
  if (status) return status;
  if (access >= sizeof attributes / sizeof *attributes || (peer != device && access != HAL_ACCESS_READ_WRITE) || !can)
    return npu_error(HAL_UNIMPLEMENTED, 0,
                     "npu: access %u of device %d to memory of device %d; Level Zero has one access for all devices, "
                     "and %s",
                     (unsigned)access, (int)peer, (int)device,
                     can ? "a peer can only have read and write access" : "neither of them can access the other");
  return finish(device, ze.zeVirtualMemSetAccessAttribute(npu.context, ptr, size, attributes[access]), "virtual_access",
                size);
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

/* A driver's handle contains data that is valid in other processes, or the number of a file of this process, which is
 * not. In the second case the number is at the beginning, and the end of the handle is unused. Such a handle is
 * detected by the kind of the file, and is sent with the process id. */
typedef struct parcel_s {
  int32_t file;
  char driver[sizeof(ze_ipc_mem_handle_t) - sizeof(int32_t) - 2 * sizeof(uint32_t)];
  uint32_t mark;
  int32_t process;
} parcel_t;
enum { MARK = 0x6c6c616d };

_Static_assert(sizeof(parcel_t) == sizeof(ze_ipc_mem_handle_t), "a parcel is the driver's handle");

/* Returns whether a number is a file in which drivers store device memory. The kernel names such files; a path of the
 * file system never begins like this. */
static int holds_memory(int file) {
  static const char *const names[] = {"/dmabuf:", "anon_inode:dmabuf", "/memfd:dmabuf"};
  char link[64], what[128];
  if (file <= 2) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, what, sizeof what - 1);
  if (length < 0) return 0;
  what[length] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(what, names[i], strlen(names[i])) == 0) return 1;
  return 0;
}

static hal_status_t check_shares(int32_t ordinal) {
  ze_driver_ipc_properties_t facts = {.stype = ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES};
  const hal_status_t status = npu_check_alive(ordinal);
  if (status) return status;
  if (!ze.zeDriverGetIpcProperties(npu.driver, &facts) && facts.flags & ZE_IPC_PROPERTY_FLAG_MEMORY) return HAL_OK;
  return npu_error(HAL_UNIMPLEMENTED, 0, "npu: the driver of '%s' does not share memory between processes",
                   npu.devices[ordinal].facts.name);
}

hal_status_t hal_plugin_ipc_export(int32_t device, void *ptr, uint32_t flags, void *out_handle, size_t room,
                                   size_t *out_size) {
  ze_ipc_mem_handle_t handle;
  parcel_t parcel;
  hal_status_t status = check_shares(device);
  if (!status) status = hal_flags_check("npu: ipc_export", flags, 0);
  if (status) return status;
  memset(&handle, 0, sizeof handle);
  const ze_result_t code = ze.zeMemGetIpcHandle(npu.context, ptr, &handle);
  npu_device_noticed(device, code);
  if (code)
    return npu_driver_error(code, "npu: memory at %p of device %d cannot be shared with other processes", ptr,
                            (int)device);
  memcpy(&parcel, &handle, sizeof parcel);
  if (!parcel.mark && !parcel.process && holds_memory(parcel.file)) {
    parcel.mark = MARK;
    parcel.process = (int32_t)getpid();
  }
  hal_handle_write(&parcel, sizeof parcel, out_handle, room, out_size);
  return HAL_OK;
}

/* Duplicates another process's file. Returns the copy, or -1 with errno. */
static int take_file(int32_t process, int file) {
#if defined SYS_pidfd_open && defined SYS_pidfd_getfd
  const int other = (int)syscall(SYS_pidfd_open, process, 0);
  if (other < 0) return -1;
  const int copy = (int)syscall(SYS_pidfd_getfd, other, file, 0);
  const int code = errno;
  close(other);
  errno = code;
  return copy;
#else
  (void)process, (void)file;
  errno = ENOSYS;
  return -1;
#endif
}

/* Replaces the other process's file by a copy, which the caller closes (-1: there is none). The bytes are untrusted
 * input: a file without device memory is not passed to the driver, nor is a file of this process that the bytes name
 * without a mark. */
static hal_status_t unpack(parcel_t *parcel, int *out_taken) {
  *out_taken = -1;
  if (parcel->mark != MARK) {
    if (parcel->mark || parcel->process || !holds_memory(parcel->file)) return HAL_OK;
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: invalid IPC handle: file descriptor %d without a process; pass a handle of ipc_export",
                     (int)parcel->file);
  }
  const int taken = take_file(parcel->process, parcel->file);
  if (taken < 0)
    return npu_error(
        HAL_UNAVAILABLE, errno,
        "npu: cannot duplicate the file of memory of process %d: %s; check that the process is alive, belongs to this "
        "user, and may be traced (kernel.yama.ptrace_scope)",
        (int)parcel->process, strerror(errno));
  if (!holds_memory(taken)) {
    close(taken);
    return npu_error(HAL_INVALID_ARGUMENT, 0,
                     "npu: invalid IPC handle: file descriptor %d of process %d is not device memory; pass a handle of "
                     "ipc_export, while its memory is allocated",
                     (int)parcel->file, (int)parcel->process);
  }
  *out_taken = parcel->file = taken;
  parcel->mark = 0;
  parcel->process = 0;
  return HAL_OK;
}

hal_status_t hal_plugin_ipc_open(int32_t device, const void *given, size_t given_size, uint32_t flags, void **out_ptr) {
  ze_ipc_mem_handle_t handle;
  parcel_t parcel;
  void *ptr = NULL;
  int taken = -1;
  hal_status_t status = check_shares(device);
  if (!status) status = hal_flags_check("npu: ipc_open", flags, 0);
  if (!status) status = hal_handle_read("npu: ipc_open", given, given_size, &parcel, sizeof parcel);
  if (!status) status = unpack(&parcel, &taken);
  if (status) return status;
  memcpy(&handle, &parcel, sizeof handle);
  ze_result_t code = ze.zeMemOpenIpcHandle(npu.context, npu.devices[device].handle, handle, 0, &ptr);
  if (taken >= 0) close(taken);
  if (!code && !ptr) code = ZE_RESULT_ERROR_INVALID_ARGUMENT;
  npu_device_noticed(device, code);
  if (code)
    return npu_driver_error(
        code, "npu: memory of another process cannot be opened on device %d; check that the process is alive",
        (int)device);
  *out_ptr = ptr;
  return HAL_OK;
}

hal_status_t hal_plugin_ipc_close(int32_t device, void *ptr) {
  const hal_status_t status = npu_check_device(device);
  if (status) return status;
  const ze_result_t code = ze.zeMemCloseIpcHandle(npu.context, ptr);
  npu_device_noticed(device, code);
  return code ? npu_driver_error(code, "npu: %p is not open memory of another process", ptr) : HAL_OK;
}
