/* child.h: runs each input in a process of its own, because a process opens plugins once. It copies its counters of
 * coverage for the fuzzer. */
#ifndef TEST_FUZZ_HOSTILE_CHILD_H_
#define TEST_FUZZ_HOSTILE_CHILD_H_

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counters.h"
#include "hal/hal.h"

static void require(int holds) {
  if (!holds) abort();
}

enum { COUNTERS = 1 << 17 };
__attribute__((section("__libfuzzer_extra_counters"), used)) uint8_t fuzz_extra_counters[COUNTERS];
static uint8_t *shared;

/* Called by the input's process. */
static void copy_counters(void) {
  size_t size;
  const uint8_t *const own = fuzz_counters(&size);
  memcpy(shared, own, size < COUNTERS ? size : COUNTERS);
}

/* Opens a plugin, which takes the input's bytes, and uses its first devices. */
static void use_plugin(const char *path, const uint8_t *data, size_t size, void (*use_device)(int32_t device)) {
  enum { MOST_DEVICES = 3 };
  char where[64];
  snprintf(where, sizeof where, "%llx %zu", (unsigned long long)(uintptr_t)data, size);
  setenv("FUZZ_BYTES", where, 1);
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  setenv("HAL_LOG", "error", 1);
  if (hal_registry_open(path) == HAL_OK)
    for (int32_t i = 0; i < hal_device_count() && i < MOST_DEVICES; i++) use_device(i);
  hal_registry_close();
}

static int run_input(const char *path, const uint8_t *data, size_t size, void (*use_device)(int32_t device)) {
  int status = 0;
  if (!shared) shared = mmap(NULL, COUNTERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(shared != MAP_FAILED);
  const pid_t child = fork();
  require(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_plugin(path, data, size, use_device);
    copy_counters();
    _exit(0);
  }
  pid_t ended;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue; /* the fuzzer's timer */
  require(ended == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) abort(); /* the sanitizer's report is above */
  memcpy(fuzz_extra_counters, shared, COUNTERS);
  return 0;
}

#endif /* TEST_FUZZ_HOSTILE_CHILD_H_ */
