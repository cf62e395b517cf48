/* ipc.c: memory that other processes open. Memory becomes an unnamed file when it is first exported, so memory that is
 * not shared remains private memory of huge pages, and a forked child has a copy of it. The addresses do not change.
 *
 * While memory is moved it is read-only. A thread that writes to it meanwhile, a worker or a thread of the program that
 * uses the memory as the host, faults, waits in the handler (fault.c) and repeats its instruction. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

#define KIND "fake.mem"

static struct {
  fake_lock_t
      /* guards all members below, except for the handler's reads; a thread that holds it writes to no device memory */
      lock;
  _Atomic(char *) begin, end;
  atomic_uint busy;
} moved;

/* ---- export ---- */

int fake_ipc_wait_in_handler(const void *address) {
  const struct timespec moment = {.tv_nsec = 20000};
  fake_segment_t segment;
  if (fake_memory_find_in_handler(address, &segment) != 1 || !segment.is_shared) return 0;
  const char *const at = address;
  if (at < segment.work || at >= segment.work + segment.mapped) return 0;
  while (atomic_load(&moved.busy) && at >= atomic_load(&moved.begin) && at < atomic_load(&moved.end))
    nanosleep(&moment, NULL);
  return 1;
}

/* Copies memory to a new file of zeros. */
static void copy_pages(char *to, const char *from, size_t bytes) {
  static const char zeros[4096];
  for (size_t at = 0; at < bytes; at += sizeof zeros)
    if (memcmp(from + at, zeros, sizeof zeros) != 0) memcpy(to + at, from + at, sizeof zeros);
}

/* Replaces a segment's memory by the file, which receives its contents. Returns 0, or the errno of a failure that
 * changed nothing. */
static int move_to_file(const fake_segment_t *segment, int file) {
  char *const copy = mmap(NULL, segment->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (copy == MAP_FAILED) return errno;
  madvise(copy, segment->mapped, MADV_HUGEPAGE); /* may fail: kernels without huge pages */
  int code = 0;
  atomic_store(&moved.begin, segment->work);
  atomic_store(&moved.end, segment->work + segment->mapped);
  atomic_store(&moved.busy, 1);
  if (mprotect(segment->work, segment->mapped, PROT_READ)) code = errno;
  if (!code) copy_pages(copy, segment->work, segment->mapped);
  if (!code &&
      mmap(segment->work, segment->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    code = errno;
  if (code)
    mprotect(segment->work, segment->mapped, PROT_READ | PROT_WRITE);
  else
    madvise(segment->work, segment->mapped, MADV_HUGEPAGE);
  atomic_store(&moved.busy, 0);
  munmap(copy, segment->mapped);
  return code;
}

/* Moves a segment into a file, unless it is in one. The caller holds the lock. */
static hal_status_t share(fake_segment_t *segment) {
  if (segment->file >= 0) return HAL_OK;
  const hal_status_t status = fake_fault_install();
  if (status) return status;
  int file = -1;
  const hal_status_t created = hal_shared_file_create(KIND, segment->size, &file, &segment->handle);
  const int code = created ? errno : move_to_file(segment, file);
  if (!created && !code) {
    segment->file = file;
    fake_memory_set_file(segment->base, file, &segment->handle);
    return HAL_OK;
  }
  if (file >= 0) close(file);
  return fake_error(
      HAL_RESOURCE_EXHAUSTED, code,
      "fake: %zu bytes of device %d cannot be shared with other processes: %s; free some memory, or close "
      "some files",
      segment->size, (int)segment->device, strerror(code));
}

hal_status_t hal_plugin_ipc_export(int32_t device, void *ptr, uint32_t flags, void *out_handle, size_t room,
                                   size_t *out_size) {
  fake_segment_t segment;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: ipc_export", flags, 0);
  if (status) return status;
  fake_lock(&moved.lock);
  status = fake_memory_mark_shared(device, ptr, &segment);
  if (!status) status = share(&segment);
  fake_unlock(&moved.lock);
  if (status) return status;
  segment.handle.process = (int32_t)getpid(); /* a forked child has the file, too */
  hal_handle_write(&segment.handle, sizeof segment.handle, out_handle, room, out_size);
  return HAL_OK;
}

/* ---- open ---- */

static hal_status_t map_opened(int file, fake_segment_t *segment, void **out_ptr) {
  fake_memory_map(segment, file);
  if (!segment->base)
    return fake_error(HAL_RESOURCE_EXHAUSTED, errno, "fake: memory of another process, %zu bytes, cannot be mapped: %s",
                      segment->mapped, strerror(errno));
  const hal_status_t status = fake_memory_add_segment(segment);
  if (status)
    munmap(segment->reserved, segment->reserved_size);
  else
    *out_ptr = segment->base;
  return status;
}

hal_status_t hal_plugin_ipc_open(int32_t device, const void *handle, size_t handle_size, uint32_t flags,
                                 void **out_ptr) {
  hal_shared_handle_t parcel;
  fake_segment_t segment = {.device = device, .is_opened = 1, .file = -1};
  int file = -1;
  hal_status_t status = fake_check_device(device);
  if (!status) status = hal_flags_check("fake: ipc_open", flags, 0);
  if (!status) status = hal_handle_read("fake: ipc_open", handle, handle_size, &parcel, sizeof parcel);
  if (status) return status;
  status = hal_shared_file_open(KIND, &parcel, &file, &segment.size);
  if (status == HAL_INVALID_ARGUMENT)
    return fake_error(status, 0, "fake: invalid IPC handle; pass a handle of ipc_export");
  if (status) {
    const int code = errno;
    return fake_error(status, code,
                      "fake: memory of process %d cannot be opened%s%s; check that the process is alive, belongs to "
                      "this user, and has "
                      "not freed the memory",
                      (int)parcel.process, code ? ": " : "", code ? strerror(code) : "");
  }
  segment.mapped = hal_shared_file_pages(segment.size);
  status = map_opened(file, &segment, out_ptr);
  close(file);
  return status;
}

hal_status_t hal_plugin_ipc_close(int32_t device, void *ptr) {
  fake_segment_t segment;
  hal_status_t status = fake_check_device(device);
  if (!status) status = fake_memory_remove_opened(device, ptr, &segment);
  if (!status) munmap(segment.reserved, segment.reserved_size);
  return status;
}

/* ---- fork ---- */

void fake_ipc_fork_prepare(void) { fake_lock(&moved.lock); }
void fake_ipc_fork_parent(void) { fake_unlock(&moved.lock); }
void fake_ipc_fork_child(void) { fake_lock_reset(&moved.lock); }
