/* system.c: the system calls of shared-memory collectives. */
#define _GNU_SOURCE /* memfd_create, sched_getaffinity */
#include "comm/shm/system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/likely.h"
#include "base/process.h"
#include "base/status_internal.h"

/* Calls until one fails; 0 = none fails. */
static atomic_long countdown;

int hal_shm_fail_after(long calls) { return atomic_exchange(&countdown, calls) > 0; }

static int fails_now(void) {
  if (HAL_LIKELY(atomic_load_explicit(&countdown, memory_order_relaxed) <= 0)) return 0;
  if (atomic_fetch_sub(&countdown, 1) != 1) return 0;
  errno = EIO;
  return 1;
}

int hal_shm_file_create(size_t bytes) {
  const int file = fails_now() ? -1 : memfd_create("hal_comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  /* If another process shortened the file, a signal would end this process. */
  if (!fails_now() && ftruncate(file, (off_t)bytes) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return file;
  }
  const int code = errno;
  close(file);
  errno = code;
  return -1;
}

int hal_shm_file_open(int32_t pid, int32_t file, size_t bytes) {
  char path[64];
  struct stat facts;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)file);
  const int opened = fails_now() ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) return -1;
  /* The number may belong to another file now; only memory files have seals. */
  const int seals = fcntl(opened, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(opened, &facts) == 0 && facts.st_size >= (off_t)bytes)
    return opened;
  close(opened);
  errno = ESTALE;
  return -1;
}

void *hal_shm_map(int file, size_t bytes) {
  void *const start = fails_now() ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return start == MAP_FAILED ? NULL : start;
}

int hal_shm_random(void *out, size_t bytes) {
  if (!fails_now() && getrandom(out, bytes, GRND_NONBLOCK) == (ssize_t)bytes) return 0;
  if (!errno) errno = EAGAIN;
  return -1;
}

int32_t hal_shm_own_pid(void) {
  char text[32];
  const ssize_t length = fails_now() ? -1 : readlink("/proc/self", text, sizeof text - 1);
  if (length <= 0) return -1;
  text[length] = '\0';
  return (int32_t)strtol(text, NULL, 10);
}

uint64_t hal_shm_pid_namespace(void) {
  struct stat facts;
  return fails_now() || stat("/proc/self/ns/pid", &facts) ? 0 : (uint64_t)facts.st_ino;
}

int64_t hal_shm_process_start(int32_t pid) { return pid > 0 && fails_now() ? -1 : hal_process_start(pid); }

int hal_shm_processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

void hal_shm_sleep(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns) {
  const struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
  if (timeout_ns > 0 && !fails_now()) syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void hal_shm_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

hal_status_t hal_shm_store_set(const hal_comm_store_t *store, const char *key, const void *value, size_t size) {
  if (fails_now()) return hal_error_set(HAL_UNAVAILABLE, "storing the key '%s' failed on purpose", key);
  const uint64_t mark = hal_error_mark();
  return hal_error_since(mark, store->set(store->context, key, value, size));
}

hal_status_t hal_shm_store_get(const hal_comm_store_t *store, const char *key, int64_t timeout_ns, void *out,
                               size_t capacity, size_t *out_size) {
  if (fails_now()) return hal_error_set(HAL_UNAVAILABLE, "reading the key '%s' failed on purpose", key);
  const uint64_t mark = hal_error_mark();
  *out_size = 0;
  return hal_error_since(mark, store->get(store->context, key, timeout_ns, out, capacity, out_size));
}
