/* segment.c: the memory file of a communicator. It has no name: other processes open it through /proc, and no
   file remains after use. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl_mock.h"

enum { MAGIC = 0x6e63636c };

int segment_make(address_t *out) {
  const int file = memfd_create("nccl_mock", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (ftruncate(file, sizeof(segment_t))) {
    close(file);
    return -1;
  }
  *out = (address_t){(int)getpid(), file, MAGIC};
  return 0;
}

segment_t *segment_map(const address_t *address) {
  char path[64];
  if (address->magic != MAGIC) return NULL;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", address->pid, address->file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return NULL;
  void *const base = mmap(NULL, sizeof(segment_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return base == MAP_FAILED ? NULL : base;
}

void segment_unmap(segment_t *segment) {
  if (segment) munmap(segment, sizeof *segment);
}

/* Also detects a process that its parent has not waited for. */
static int has_ended(int process) {
  const int file = (int)syscall(SYS_pidfd_open, process, 0);
  if (file < 0) return 1;
  struct pollfd watch = {.fd = file, .events = POLLIN};
  const int ended = poll(&watch, 1, 0) == 1;
  close(file);
  return ended;
}

int segment_find_ended(const segment_t *segment, int size) {
  for (int i = 0; i < size; i++)
    if (!atomic_load(&segment->left[i]) && has_ended(atomic_load(&segment->joined[i]))) return i;
  return -1;
}
