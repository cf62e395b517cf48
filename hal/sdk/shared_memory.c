/* shared_memory.c: files without a name that processes share (hal/plugin_shared_event.h). Such a file ends with a
 * separate page that identifies it. Linked into plugins and into the host. */
#define _GNU_SOURCE /* memfd_create, getrandom, O_PATH, seals */
#include "hal/plugin_shared_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "hal-shared"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* At the beginning of the last page. */
typedef struct trailer_s {
  char kind[HAL_SHARED_KIND];
  unsigned char nonce[HAL_SHARED_NONCE];
  uint64_t size;
} trailer_t;

_Static_assert(sizeof(hal_shared_handle_t) == 32, "the bytes of a handle, without gaps");

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Closes the file and preserves errno. */
static void close_quietly(int file) {
  const int cause = errno;
  close(file);
  errno = cause;
}

size_t hal_shared_file_pages(size_t size) {
  const size_t page = page_bytes();
  return size > SIZE_MAX - 2 * page ? 0 : (size + page - 1) / page * page;
}

static void set_kind(char *kind, const char *text) {
  memset(kind, 0, HAL_SHARED_KIND);
  memcpy(kind, text, strnlen(text, HAL_SHARED_KIND));
}

/* ---- create ---- */

static int prepare(int file, const trailer_t *trailer) {
  const size_t pages = hal_shared_file_pages(trailer->size);
  if (!pages) {
    errno = EOVERFLOW;
    return 0;
  }
  return !ftruncate(file, (off_t)(pages + page_bytes())) &&
         pwrite(file, trailer, sizeof *trailer, (off_t)pages) == (ssize_t)sizeof *trailer &&
         !fcntl(file, F_ADD_SEALS, SEALS);
}

hal_status_t hal_shared_file_create(const char *kind, size_t size, int *out_file, hal_shared_handle_t *out_handle) {
  trailer_t trailer = {.size = size};
  set_kind(trailer.kind, kind);
  if (getrandom(trailer.nonce, sizeof trailer.nonce, GRND_NONBLOCK) != (ssize_t)sizeof trailer.nonce)
    return HAL_RESOURCE_EXHAUSTED;
  const int file = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return HAL_RESOURCE_EXHAUSTED;
  if (!prepare(file, &trailer)) {
    close_quietly(file);
    return HAL_RESOURCE_EXHAUSTED;
  }
  *out_handle = (hal_shared_handle_t){.process = (int32_t)getpid(), .file = file};
  memcpy(out_handle->kind, trailer.kind, sizeof trailer.kind);
  memcpy(out_handle->nonce, trailer.nonce, sizeof trailer.nonce);
  *out_file = file;
  return HAL_OK;
}

/* ---- open ---- */

int hal_shared_handle_is(const char *kind, const hal_shared_handle_t *handle) {
  char expected[HAL_SHARED_KIND];
  set_kind(expected, kind);
  return memcmp(handle->kind, expected, sizeof expected) == 0 && handle->process > 0 && handle->file >= 0;
}

/* Returns whether the system's name of a file is the one that hal_shared_file_create has set. */
static int has_name(int place) {
  static const char name[] = "/memfd:" NAME " (deleted)";
  char path[48], target[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", place);
  const ssize_t length = readlink(path, target, sizeof target);
  return length == (ssize_t)sizeof name - 1 && memcmp(target, name, sizeof name - 1) == 0;
}

/* Opens the file of a handle. It is first checked through a descriptor that only refers to it (O_PATH), because opening
 * a pipe, a terminal or a device may have effects. Returns -1 with errno; errno 0 = a file of another kind. */
static int open_file(const hal_shared_handle_t *handle) {
  char path[64];
  struct stat facts;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->process, (int)handle->file);
  const int place = open(path, O_PATH | O_CLOEXEC);
  if (place < 0) return -1;
  int file = -1;
  errno = 0;
  if (has_name(place) && !fstat(place, &facts) && S_ISREG(facts.st_mode) && facts.st_uid == geteuid()) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", place);
    file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  }
  close_quietly(place);
  if (file < 0) return -1;
  const int seals = fcntl(file, F_GET_SEALS); /* -1: a file without seals */
  if (seals >= 0 && (seals & SEALS) == SEALS) return file;
  close(file);
  errno = 0;
  return -1;
}

/* Reads the last page. Returns whether it matches the handle. */
static int read_trailer(int file, const hal_shared_handle_t *handle, size_t *out_size) {
  const size_t page = page_bytes();
  struct stat facts;
  trailer_t trailer;
  if (fstat(file, &facts) || facts.st_size <= (off_t)page) return 0;
  const size_t pages = (size_t)facts.st_size - page;
  if (pread(file, &trailer, sizeof trailer, (off_t)pages) != (ssize_t)sizeof trailer) return 0;
  if (memcmp(trailer.kind, handle->kind, sizeof trailer.kind) != 0 ||
      memcmp(trailer.nonce, handle->nonce, sizeof trailer.nonce) != 0)
    return 0;
  *out_size = (size_t)trailer.size;
  return trailer.size && hal_shared_file_pages(trailer.size) == pages;
}

hal_status_t hal_shared_file_open(const char *kind, const hal_shared_handle_t *handle, int *out_file,
                                  size_t *out_size) {
  errno = 0;
  if (!hal_shared_handle_is(kind, handle)) return HAL_INVALID_ARGUMENT;
  const int file = open_file(handle);
  if (file < 0) return HAL_NOT_FOUND;
  if (read_trailer(file, handle, out_size)) {
    *out_file = file;
    return HAL_OK;
  }
  close(file);
  errno = 0;
  return HAL_NOT_FOUND;
}

/* ---- map ---- */

void *hal_shared_file_map(int file, size_t size) {
  void *const memory = mmap(NULL, hal_shared_file_pages(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void hal_shared_file_unmap(void *memory, size_t size) {
  if (memory) munmap(memory, hal_shared_file_pages(size));
}
