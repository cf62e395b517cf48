/* tables.c: a plugin whose structs, numbers and results are the fuzzer's (hostile/hostile.c): the host refuses it, or
 * works with it. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
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

#include "hal/hal.h"
#include "hostile/counters.h"

enum { MOST_DEVICES = 3, MOST_BLOCKS = 4 };

static void require(int holds) {
  if (!holds) abort();
}

static void use_memory(int32_t device) {
  hal_block_t *blocks[MOST_BLOCKS] = {NULL};
  char text[64] = "0123456789";
  for (int i = 0; i < MOST_BLOCKS; i++) {
    const size_t size = (size_t)1 << (7 * i);
    if (hal_memory_allocate(device, NULL, size, &blocks[i]) != HAL_OK) continue;
    void *const address = hal_memory_block_address(blocks[i]);
    require(address != NULL && hal_memory_block_size(blocks[i]) == size);
    const size_t count = size < sizeof text ? size : sizeof text;
    (void)!hal_memory_copy(NULL, address, device, text, HAL_HOST, count);
    (void)!hal_memory_copy(NULL, text, HAL_HOST, address, device, count);
    int32_t found = -7;
    (void)!hal_memory_find(address, &found);
  }
  for (int i = 0; i < MOST_BLOCKS; i++) hal_memory_release(blocks[i]);
  (void)!hal_memory_empty_cache(device);
}

static void use_device(int32_t device) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  size_t available = 0, total = 0;
  if (hal_device_info(device, &info) == HAL_OK) {
    require(memchr(info.name, '\0', sizeof info.name) != NULL);
    require(memchr(info.dialects, '\0', sizeof info.dialects) != NULL);
    require(memchr(info.architecture, '\0', sizeof info.architecture) != NULL);
    require(memchr(info.driver_version, '\0', sizeof info.driver_version) != NULL);
    require(memchr(info.firmware_version, '\0', sizeof info.firmware_version) != NULL);
  }
  (void)!hal_memory_info(device, &available, &total);
  use_memory(device);
  (void)!hal_memory_stats(device, &stats);
  (void)!hal_device_synchronize(device);
}

/* A process opens plugins once, so each input has a process. It copies its counters of coverage for the fuzzer. */
enum { COUNTERS = 1 << 17 };
__attribute__((section("__libfuzzer_extra_counters"), used)) uint8_t fuzz_extra_counters[COUNTERS];
static uint8_t *shared;

/* Called by the input's process. */
static void copy_counters(void) {
  size_t size;
  const uint8_t *const own = fuzz_counters(&size);
  memcpy(shared, own, size < COUNTERS ? size : COUNTERS);
}

static void run(const uint8_t *data, size_t size) {
  char where[64];
  snprintf(where, sizeof where, "%llx %zu", (unsigned long long)(uintptr_t)data, size);
  setenv("FUZZ_BYTES", where, 1);
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  setenv("HAL_LOG", "error", 1);
  if (hal_registry_open(HOSTILE) == HAL_OK)
    for (int32_t i = 0; i < hal_device_count() && i < MOST_DEVICES; i++) use_device(i);
  hal_registry_close();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int status = 0;
  if (!shared) shared = mmap(NULL, COUNTERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(shared != MAP_FAILED);
  const pid_t child = fork();
  require(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(data, size);
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
