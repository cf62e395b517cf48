/* structs.c: structs of the other side: a plugin writes only within their size. An older host has shorter ones, with
 * other memory after them. The structs of info and op_find never had a shorter form. */
#include <stdio.h>

#include "hal/status.h"
#include "kernel.h"

enum { ROOM = 1024, MARK = 0xa5 };

/* Returns a struct of `size` bytes, zeroed except for its size, at the beginning of memory that is marked. */
static void *make(uint8_t room[ROOM], size_t size) {
  memset(room, 0, size);
  memset(room + size, MARK, ROOM - size);
  memcpy(room, &size, sizeof size);
  return room;
}

static void look(cts_t *t, const uint8_t room[ROOM], size_t size, const char *function) {
  for (size_t at = size; at < ROOM; at++)
    CTS_CHECK(t, room[at] == MARK, "%s wrote at byte %zu of a struct of %zu bytes", function, at, size);
  size_t now;
  memcpy(&now, room, sizeof now);
  CTS_CHECK(t, now == size, "%s has changed struct_size, which is the host's, from %zu to %zu", function, size, now);
}

void cts_case_device_struct_sizes(cts_t *t) {
  static const size_t infos[] = {sizeof(size_t), offsetof(hal_pointer_info_t, size),
                                 offsetof(hal_pointer_info_t, device)};
  static const size_t errors[] = {sizeof(size_t), offsetof(hal_stream_error_t, op),
                                  offsetof(hal_stream_error_t, message)};
  _Alignas(16) uint8_t room[ROOM];
  void *const device = cts_alloc(t, 64);
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_GENERAL(t, "only if it is within");
  for (int i = 0; i < 3; i++) {
    (void)cts_memory_pointer_info(t, device, make(room, infos[i]));
    look(t, room, infos[i], "memory_pointer_info");
    (void)cts_stream_error(t, stream, make(room, errors[i]));
    look(t, room, errors[i], "stream_error");
  }
}

void cts_case_module_info(cts_t *t) {
  static const size_t sizes[] = {sizeof(size_t), offsetof(hal_kernel_info_t, registers),
                                 offsetof(hal_kernel_info_t, blocks_per_unit)};
  _Alignas(16) uint8_t room[ROOM];
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_kernel_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_kernel_info_t, blocks_per_unit)}, none = info;
  CTS_OK(t, kernel_info, kernel, 1, 0, &info);
  CTS_CHECK(t, info.blocks_per_unit > 0,
            "kernel_info reports that no block of one thread fits a compute unit, for a kernel that runs");
  CTS_CHECK(
      t, !info.max_block_threads || !t->info.max_block_threads || info.max_block_threads <= t->info.max_block_threads,
      "kernel_info reports %u threads of a block, device_info %u", info.max_block_threads, t->info.max_block_threads);
  if (t->info.max_block_threads && t->info.max_block_threads < UINT32_MAX &&
      !cts_kernel_info(t, kernel, t->info.max_block_threads + 1, 0, &none))
    CTS_CHECK(
        t, none.blocks_per_unit == 0,
        "kernel_info reports that %u blocks of %u threads run on a compute unit, and device_info %u threads at most",
        none.blocks_per_unit, t->info.max_block_threads + 1, t->info.max_block_threads);
  CTS_GENERAL(t, "only if it is within");
  for (int i = 0; i < 3; i++) {
    CTS_OK(t, kernel_info, kernel, 1, 0, make(room, sizes[i]));
    look(t, room, sizes[i], "kernel_info");
  }
}
