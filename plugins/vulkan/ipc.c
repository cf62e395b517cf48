/* ipc.c: memory that other processes open, by VK_KHR_external_memory_fd. The driver's file of the memory and a page
 * that describes the segment exist from the first export until the memory is freed. A handle names the page, which can
 * only be opened with the handle's nonce (hal/plugin_shared_event.h). The page names the file of the memory, so bytes
 * of unknown origin make no other file known to the driver. */
#define _GNU_SOURCE /* O_PATH, syscall */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vulkan_plugin.h"

#define KIND "vk.mem"

/* How a process finds the driver's file of another one, and that the number is still that file's. */
typedef struct place_s {
  int32_t process, file;
  uint64_t disk, inode;
} place_t;

typedef struct page_s {
  vulkan_foreign_t segment;
  place_t place;
  unsigned char sharing_id[2 * VK_UUID_SIZE];
} page_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- export ----------------------------------------------------------------------------------------------------- */

static hal_status_t check_shares(const vulkan_device_t *device) {
  if (device->memory_file) return HAL_OK;
  return vulkan_error(
      HAL_UNIMPLEMENTED, 0, "vulkan: memory of '%s' is not shared between processes: %s; copy it through the host",
      device->facts.deviceName,
      device->most_shareable ? "its driver has no VK_KHR_external_memory_fd for buffers" : "HAL_VULKAN_SHARE is 0");
}

static hal_status_t no_files(const vulkan_segment_t *segment, int code) {
  return vulkan_error(HAL_RESOURCE_EXHAUSTED, code,
                      "vulkan: %zu bytes of device %d cannot be shared with other processes: %s; close some files, or "
                      "free some memory",
                      segment->size, (int)segment->device, strerror(code));
}

/* Gets the driver's file of the memory. */
static hal_status_t get_file(const vulkan_segment_t *segment, int *out_file, place_t *out_place) {
  vulkan_device_t *const device = &vulkan.devices[segment->device];
  const VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                     .memory = segment->memory,
                                     .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  struct stat facts;
  int file = -1;
  const VkResult code = device->memory_file(device->handle, &info, &file);
  vulkan_noticed(device, code);
  if (code)
    return vulkan_driver_error(code, "vulkan: %zu bytes of device %d cannot be shared with other processes",
                               segment->size, (int)segment->device);
  if (fcntl(file, F_SETFD, FD_CLOEXEC) || fstat(file, &facts)) {
    const hal_status_t status = no_files(segment, errno);
    close(file);
    return status;
  }
  *out_file = file;
  *out_place = (place_t){(int32_t)getpid(), file, (uint64_t)facts.st_dev, (uint64_t)facts.st_ino};
  return HAL_OK;
}

/* Creates the page, which `exported` owns. Returns 0, or an errno. */
static int write_page(const page_t *content, vulkan_export_t *exported) {
  if (hal_shared_file_create(KIND, sizeof *content, &exported->page, &exported->handle)) return errno;
  page_t *const page = hal_shared_file_map(exported->page, sizeof *page);
  if (!page) return errno;
  *page = *content;
  hal_shared_file_unmap(page, sizeof *page);
  return 0;
}

void vulkan_export_close(vulkan_export_t *exported) {
  if (!exported) return;
  if (exported->page >= 0) close(exported->page);
  if (exported->memory >= 0) close(exported->memory);
  hal_host->mem_free(exported);
}

/* Creates the files of a segment. The caller holds the lock. */
static hal_status_t export(vulkan_segment_t *segment) {
  const vulkan_device_t *const device = &vulkan.devices[segment->device];
  page_t page = {.segment = {segment->size, segment->shift, segment->bytes, segment->type}};
  vulkan_export_t *const exported = hal_host->mem_alloc(sizeof *exported, alignof(vulkan_export_t));
  if (!exported) return no_files(segment, ENOMEM);
  *exported = (vulkan_export_t){.page = -1, .memory = -1};
  memcpy(page.sharing_id, device->sharing_id, sizeof page.sharing_id);
  hal_status_t status = get_file(segment, &exported->memory, &page.place);
  const int code = status ? 0 : write_page(&page, exported);
  if (code) status = no_files(segment, code);
  if (status)
    vulkan_export_close(exported);
  else
    segment->exported = exported;
  return status;
}

hal_status_t hal_plugin_ipc_export(int32_t ordinal, void *ptr, uint32_t flags, void *out_handle, size_t room,
                                   size_t *out_size) {
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_flags_check("vulkan: ipc_export", flags, 0);
  if (!status) status = check_shares(&vulkan.devices[ordinal]);
  if (status) return status;
  vulkan_segment_t *const segment = vulkan_map_find(ptr);
  if (!segment || segment->base != ptr || segment->device != ordinal || segment->kind != VULKAN_OWN)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: ipc_export(%d, %p): this is not the start of memory that this process allocated on "
                        "the device",
                        (int)ordinal, ptr);
  if (!segment->is_shareable)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: memory at %p cannot be shared: device %d had %u segments that can when it was "
                        "allocated; raise the limit of open files (ulimit -n)",
                        ptr, (int)ordinal, (unsigned)vulkan.devices[ordinal].most_shareable);
  pthread_mutex_lock(&lock);
  if (!segment->exported) status = export(segment);
  pthread_mutex_unlock(&lock);
  if (!status) hal_handle_write(&segment->exported->handle, sizeof(hal_shared_handle_t), out_handle, room, out_size);
  return status;
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

static int is_at(int file, const place_t *place) {
  struct stat facts;
  return !fstat(file, &facts) && (uint64_t)facts.st_dev == place->disk && (uint64_t)facts.st_ino == place->inode;
}

/* Opens a file of memory of the system, as drivers for CPUs create it, through a descriptor that refers to it. Returns
 * -1 if it is another kind of file. */
static int open_again(int reference) {
  static const char memory[] = "/memfd:";
  char path[64], name[sizeof memory];
  snprintf(path, sizeof path, "/proc/self/fd/%d", reference);
  if (readlink(path, name, sizeof name) < (ssize_t)sizeof memory - 1 || memcmp(name, memory, sizeof memory - 1) != 0)
    return -1;
  return open(path, O_RDWR | O_CLOEXEC);
}

/* Duplicates another process's file of any kind. Returns -1 with errno. */
static int duplicate(const place_t *place) {
#if defined SYS_pidfd_open && defined SYS_pidfd_getfd
  const int other = (int)syscall(SYS_pidfd_open, place->process, 0);
  if (other < 0) return -1;
  const int copy = (int)syscall(SYS_pidfd_getfd, other, place->file, 0);
  const int code = errno;
  close(other);
  errno = code;
  return copy;
#else
  errno = ENOSYS;
  return -1;
#endif
}

/* Opens the driver's file of another process's memory. Returns -1 with errno; errno 0 = it is not there any more. */
static int take_file(const place_t *place) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)place->process, (int)place->file);
  const int reference = open(path, O_PATH | O_CLOEXEC);
  if (reference < 0) return -1;
  int file = -1;
  errno = 0;
  if (is_at(reference, place)) {
    file = open_again(reference);
    if (file < 0) file = duplicate(place);
  }
  const int code = errno;
  close(reference);
  errno = code;
  if (file < 0 || is_at(file, place)) return file;
  close(file);
  errno = 0;
  return -1;
}

static hal_status_t cannot_open(int32_t process, int code) {
  return vulkan_error(code ? HAL_UNAVAILABLE : HAL_NOT_FOUND, code,
                      "vulkan: memory of process %d cannot be opened%s%s; check that the process is alive, belongs to "
                      "this user, may be traced (kernel.yama.ptrace_scope), and has not freed the memory",
                      (int)process, code ? ": " : "", code ? strerror(code) : "");
}

/* Reads the page of a handle. */
static hal_status_t read_page(const void *handle, size_t handle_size, page_t *out_page, int32_t *out_process) {
  hal_shared_handle_t parcel;
  size_t size = 0;
  int file = -1;
  hal_status_t status = hal_handle_read("vulkan: ipc_open", handle, handle_size, &parcel, sizeof parcel);
  if (status) return status;
  *out_process = parcel.process;
  status = hal_shared_file_open(KIND, &parcel, &file, &size);
  if (status == HAL_INVALID_ARGUMENT)
    return vulkan_error(status, 0, "vulkan: invalid IPC handle; pass a handle of ipc_export");
  if (status) return cannot_open(parcel.process, 0);
  page_t *const page = size == sizeof *page ? hal_shared_file_map(file, sizeof *page) : NULL;
  const int code = page ? 0 : size == sizeof *page ? errno : EINVAL;
  if (page) *out_page = *page;
  hal_shared_file_unmap(page, sizeof *page);
  close(file);
  return code ? cannot_open(parcel.process, code) : HAL_OK;
}

/* The page is of a process with this plugin, perhaps of another version or with another driver. */
static hal_status_t check_page(const vulkan_device_t *device, const page_t *page) {
  const vulkan_foreign_t *const segment = &page->segment;
  if (memcmp(page->sharing_id, device->sharing_id, sizeof page->sharing_id) != 0)
    return vulkan_error(HAL_INCOMPATIBLE, 0,
                        "vulkan: memory of process %d is of another device or driver than '%s'; open it on the same "
                        "device, or copy it through the host",
                        (int)page->place.process, device->facts.deviceName);
  if (segment->size && segment->bytes <= device->largest_allocation && segment->shift < VULKAN_ALIGNMENT &&
      segment->size <= segment->bytes && segment->bytes - segment->size >= segment->shift)
    return HAL_OK;
  return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: process %d shares %llu bytes at %llu of an allocation of %llu",
                      (int)page->place.process, (unsigned long long)segment->size, (unsigned long long)segment->shift,
                      (unsigned long long)segment->bytes);
}

/* Opens the segment of a page. Some drivers close the file although they do not open the memory, so that the number may
 * be another file's then. */
static hal_status_t open_segment(vulkan_device_t *device, const page_t *page, vulkan_segment_t **out_segment) {
  const int file = take_file(&page->place);
  if (file < 0) return cannot_open(page->place.process, errno);
  const hal_status_t status = vulkan_segment_open(device, &page->segment, file, out_segment);
  if (status && is_at(file, &page->place)) close(file);
  return status;
}

hal_status_t hal_plugin_ipc_open(int32_t ordinal, const void *handle, size_t handle_size, uint32_t flags,
                                 void **out_ptr) {
  vulkan_segment_t *segment = NULL;
  page_t page;
  int32_t process = 0;
  hal_status_t status = vulkan_check_alive(ordinal);
  if (!status) status = hal_flags_check("vulkan: ipc_open", flags, 0);
  if (!status) status = check_shares(&vulkan.devices[ordinal]);
  if (!status) status = read_page(handle, handle_size, &page, &process);
  if (!status) status = check_page(&vulkan.devices[ordinal], &page);
  if (!status) status = open_segment(&vulkan.devices[ordinal], &page, &segment);
  if (!status) status = vulkan_map_add(segment);
  if (!status)
    *out_ptr = segment->base;
  else if (segment)
    vulkan_segment_destroy(segment);
  return status;
}

hal_status_t hal_plugin_ipc_close(int32_t ordinal, void *ptr) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  vulkan_segment_t *const segment = vulkan_map_take(ordinal, VULKAN_OPENED, ptr);
  if (!segment) return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: %p is not the start of memory of ipc_open", ptr);
  vulkan_segment_destroy(segment);
  return HAL_OK;
}
