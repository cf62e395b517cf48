/* tables.c: a plugin whose structs, numbers and results are the fuzzer's (hostile/hostile.c): the host refuses it, or
 * works with it. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "hostile/child.h"

enum { MOST_BLOCKS = 4 };

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return run_input(HOSTILE "/libhal_hostile.so", data, size, use_device);
}
