/* protect.c: HAL_FAKE_PROTECT=1: memory like that of a device with separate memory. The address that the program has is
 * inaccessible. The memory itself is at another address, which only launches use, because they translate their pointer
 * arguments. So every host access faults at its instruction, and fault.c reports the accessed memory.
 *
 *   reserved | guard | base: inaccessible | guard | work: the memory | guard |
 *
 * All parts except `work` are mapped without any permission. `work` is private memory, not a file, until other
 * processes open it (ipc.c): a forked child gets a copy, as without protection. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protect.h"
#include "sanitize/sanitize.h"

/* Makes `bytes` at `work` usable: new memory, or a file's. Returns whether that failed, with errno. */
static int make_usable(char *work, size_t bytes, int file) {
  if (file < 0) return mprotect(work, bytes, PROT_READ | PROT_WRITE);
  return mmap(work, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED;
}

void fake_protect_reserve(fake_segment_t *inout_segment) {
  const size_t room = (inout_segment->mapped + FAKE_GUARD_BYTES - 1) & ~(FAKE_GUARD_BYTES - 1);
  size_t total = 0;
  inout_segment->base = NULL;
  errno = ENOMEM;
  /* Adds one more guard, to align the first one. */
  if (room < inout_segment->mapped || __builtin_add_overflow(room, room, &total) ||
      __builtin_add_overflow(total, 4 * FAKE_GUARD_BYTES, &total))
    return;
  char *reserved = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  char *base = (char *)(((uintptr_t)reserved + 2 * FAKE_GUARD_BYTES - 1) & ~(uintptr_t)(FAKE_GUARD_BYTES - 1));
  inout_segment->base = base;
  inout_segment->work = base + room + FAKE_GUARD_BYTES;
  inout_segment->reserved = reserved;
  inout_segment->reserved_size = total;
}

void fake_protect_map(fake_segment_t *inout_segment, int file) {
  fake_protect_reserve(inout_segment);
  if (!inout_segment->base) return;
  if (make_usable(inout_segment->work, inout_segment->mapped, file)) {
    const int cause = errno;
    munmap(inout_segment->reserved, inout_segment->reserved_size);
    inout_segment->base = NULL;
    errno = cause;
    return;
  }
  madvise(inout_segment->work, inout_segment->mapped, MADV_HUGEPAGE); /* may fail: kernels without huge pages */
}

/* ---- addresses of a call ---------------------------------------------------------------------------------------- */

/* Returns whether `size` bytes at `address` are in the segment. The end address is valid for a size of 0. */
static int covers(const fake_segment_t *segment, const void *address, size_t size) {
  const size_t offset = (size_t)((const char *)address - segment->base);
  return (const char *)address >= segment->base && offset <= segment->size && size <= segment->size - offset;
}

hal_status_t fake_protect_args(const hal_host_kernel_t *kernel, const hal_arg_t *args, uint32_t arg_count,
                               hal_arg_t *out_args, void **pointers) {
  for (uint32_t i = 0; i < arg_count; i++) {
    out_args[i] = args[i];
    if (args[i].kind != HAL_ARG_POINTER) continue;
    char *const address = *(char *const *)args[i].value;
    fake_segment_t segment;
    pointers[i] = address;
    out_args[i].value = &pointers[i];
    if (!address) continue;
    if (!fake_memory_find(address, &segment) || !covers(&segment, address, 0))
      return fake_error(HAL_INVALID_ARGUMENT, 0,
                        "fake: argument %u of '%s' is the address %p, which is not in device memory or pinned memory; "
                        "pass an address of a live allocation",
                        (unsigned)i, kernel->name, (void *)address);
    pointers[i] = segment.work + (address - segment.base);
    if (segment.device >= 0)
      atomic_store_explicit(&fake.devices[segment.device].last, kernel->name, memory_order_relaxed);
  }
  return HAL_OK;
}

hal_status_t fake_protect_range(const char *call, int32_t device, const void *address, size_t size,
                                void **out_address) {
  fake_segment_t segment = {.device = HAL_HOST};
  const int found = fake_memory_find(address, &segment);
  if (device == HAL_HOST && segment.device != HAL_HOST)
    return fake_error(
        HAL_INVALID_ARGUMENT, 0,
        "fake: %s: %zu bytes at %p were passed as host memory, but they are memory of device %d; pass that "
        "device",
        call, size, address, (int)segment.device);
  *out_address = (void *)(uintptr_t)address;
  if (device == HAL_HOST) return HAL_OK;
  if (!found || segment.device != device || !covers(&segment, address, size))
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: %s: %zu bytes at %p are not within one allocation of device %d; pass a range of a live "
                      "allocation, and its device",
                      call, size, address, (int)device);
  *out_address = segment.work + ((const char *)address - segment.base);
  atomic_store_explicit(&fake.devices[device].last, call, memory_order_relaxed);
  return HAL_OK;
}

/* ---- the kernel that a thread runs: for the report of a kernel that accesses memory out of bounds --------------- */

/* By thread, without thread-local state (the leak checker of gcc 12 crashes on that of a library opened with dlopen).
 * Two threads may share an entry; then the report of one lacks its kernel. */
enum { PLACES = 1024 };
static struct {
  atomic_long thread;
  _Atomic(const char *) kernel;
} running[PLACES];

static long thread_id(void) { return syscall(SYS_gettid); }

void fake_protect_enter(const hal_host_kernel_t *kernel) {
  const long thread = thread_id();
  atomic_store_explicit(&running[thread % PLACES].thread, thread, memory_order_relaxed);
  atomic_store_explicit(&running[thread % PLACES].kernel, kernel->name, memory_order_relaxed);
}

void fake_protect_leave(void) {
  atomic_store_explicit(&running[thread_id() % PLACES].kernel, NULL, memory_order_relaxed);
}

void fake_compute_watched(hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                          void *const *args) {
  if (fake.settings.sanitize) {
    fake_sanitize_compute(owner, owner ? owner->trace : NULL, kernel, range, args);
    return;
  }
  fake_protect_enter(kernel);
  kernel->fn(range, args);
  fake_protect_leave();
}

const char *fake_protect_running(void) {
  const long thread = thread_id();
  if (atomic_load_explicit(&running[thread % PLACES].thread, memory_order_relaxed) != thread) return NULL;
  return atomic_load_explicit(&running[thread % PLACES].kernel, memory_order_relaxed);
}
