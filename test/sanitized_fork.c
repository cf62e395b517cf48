/* sanitized_fork.c: fork() of Criterion's programs under the address sanitizer. The allocator of GCC 12's sanitizer is
 * not prepared for a fork: if another thread is in it, its lock stays taken in the child, which then waits forever at
 * its first allocation. Criterion forks for each test while its own thread may still close the connection of the
 * previous one. So this fork waits until all other threads sleep. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Without allocations, which the thread that is waited for could delay. */
static int sleeps(const char *thread) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (size <= 0) return 1; /* it has ended */
  text[size] = '\0';
  const char *const name_end = strrchr(text, ')');
  return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

static int others_sleep(DIR *threads, int own) {
  const struct dirent *entry;
  rewinddir(threads);
  while ((entry = readdir(threads)))
    if (*entry->d_name != '.' && atoi(entry->d_name) != own && !sleeps(entry->d_name)) return 0;
  return 1;
}

/* At most two seconds: a test may have a thread that never sleeps. */
static void await_others(void) {
  enum { TRIES = 2000, PAUSE_NS = 1000000 };
  const int own = gettid();
  DIR *const threads = opendir("/proc/self/task");
  if (!threads) return;
  for (int i = 0, quiet = 0; i < TRIES && quiet < 2; i++) {
    quiet = others_sleep(threads, own) ? quiet + 1 : 0;
    if (quiet < 2) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  }
  closedir(threads);
}

pid_t fork(void) {
  pid_t (*next)(void) = NULL;
  void *const symbol = dlsym(RTLD_NEXT, "fork");
  memcpy(&next, &symbol, sizeof next); /* ISO C has no cast to a function pointer */
  await_others();
  return next();
}
