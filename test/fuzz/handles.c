/* handles.c: handles of shared memory and of events whose bytes another process has changed. Three bytes of the input
 * are a change: offset, mask. The handle of memory that is not changed can be opened once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hal/hal.h"

static void require(int holds) {
  if (!holds) abort();
}

static void released(void *data) { ++*(int *)data; }

static void start(void) {
  static int is_open;
  if (is_open) return;
  setenv("HAL_LOG", "error", 1);
  require(hal_registry_open(PLUGIN_DIR "/libhal_fake.so") == HAL_OK);
  is_open = 1;
}

/* Opens a handle, in this process, and writes to the memory if that succeeds. */
static void open_handle(const void *handle, size_t size) {
  hal_block_t *block = NULL;
  if (hal_memory_open(0, NULL, handle, size, &block) != HAL_OK) return;
  const size_t bytes = hal_memory_block_size(block);
  (void)!hal_memory_fill(NULL, 0, hal_memory_block_address(block), "x", 1, bytes < 64 ? bytes : 64);
  require(hal_stream_synchronize(NULL) == HAL_OK);
  hal_memory_release(block);
}

static void change(uint8_t *handle, size_t length, const uint8_t *data, size_t size) {
  for (; size >= 3; data += 3, size -= 3) handle[(data[0] | (size_t)data[1] << 8) % length] ^= data[2];
}

/* Opens a handle of an event, in this process, and uses the event if that succeeds. */
static void share_event(const uint8_t *data, size_t size) {
  uint8_t handle[HAL_MEMORY_SHARE_BYTES];
  size_t length = 0;
  hal_event_t *event = NULL, *opened = NULL;
  require(hal_event_create(0, HAL_EVENT_INTERPROCESS, &event) == HAL_OK);
  require(hal_event_record(event, NULL) == HAL_OK);
  require(hal_event_ipc_export(event, handle, sizeof handle, &length) == HAL_OK && length <= sizeof handle);
  change(handle, length, data, size);
  if (hal_event_ipc_open(0, handle, size ? length - data[0] % length : length, &opened) == HAL_OK) {
    (void)!hal_stream_wait_event(NULL, opened);
    (void)!hal_event_query(opened);
    (void)!hal_event_record(opened, NULL);
    (void)!hal_event_synchronize(opened);
  }
  hal_event_destroy(opened);
  hal_event_destroy(event);
  (void)!hal_stream_synchronize(NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t handle[HAL_MEMORY_SHARE_BYTES], changed[HAL_MEMORY_SHARE_BYTES];
  size_t length = 0;
  int count = 0;
  hal_block_t *block = NULL;
  start();
  require(hal_memory_allocate(0, NULL, 4096, &block) == HAL_OK);
  require(hal_memory_share(block, NULL, released, &count, handle, sizeof handle, &length) == HAL_OK);
  memcpy(changed, handle, length);
  change(changed, length, data, size);
  open_handle(changed, size ? length - data[0] % length : length);
  if (hal_memory_decline(changed, length) != HAL_OK) (void)!hal_memory_decline(handle, length);
  (void)!hal_memory_decline(handle, length);
  hal_memory_collect_shared();
  require(count <= 1);
  hal_memory_release(block);
  share_event(data, size);
  return 0;
}
