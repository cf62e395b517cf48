/* ipc.c: memory and events between two processes, and host memory that is registered. */
#include <stdio.h>

#include "hal/status.h"
#include "peer.h"

enum { SIZE = (1 << 18) + 4096, PART = 70001, AT = 4099, TIMES = 64 };

/* The message to the other process. */
typedef struct handle_s {
  size_t size;
  uint8_t bytes[256];
} handle_t;

typedef hal_status_t (*export_t)(cts_t *t, void *of, uint32_t flags, void *handle, size_t room, size_t *out_size);
static hal_status_t export_segment(cts_t *t, void *ptr, uint32_t flags, void *handle, size_t room, size_t *out_size) {
  return cts_ipc_export(t, t->device, ptr, flags, handle, room, out_size);
}
static hal_status_t export_event(cts_t *t, void *event, uint32_t flags, void *handle, size_t room, size_t *out_size) {
  return cts_event_ipc_export(t, event, flags, handle, room, out_size);
}

/* The size is returned without a buffer, and a buffer that is too small is not changed. */
static void check_room(cts_t *t, const handle_t *handle, export_t again, void *of) {
  uint8_t bytes[sizeof handle->bytes];
  memset(bytes, 0xA5, sizeof bytes);
  CTS_CHECK(t, handle->size && handle->size <= sizeof handle->bytes, "a handle has %zu bytes", handle->size);
  for (size_t room = 0; room <= handle->size;
       room += room + 1 < handle->size || room == handle->size ? handle->size - 1 : 1) {
    size_t size = 0, written = 0;
    const hal_status_t status = again(t, of, 0, room ? bytes : NULL, room, &size);
    CTS_CHECK(t, status == HAL_OK && size == handle->size,
              "a handle of %zu bytes: a buffer of %zu bytes returned status %d, %zu bytes", handle->size, room,
              (int)status, size);
    for (size_t i = room < size ? 0 : size; i < sizeof bytes; i++) written += bytes[i] != 0xA5;
    CTS_CHECK(t, !written, "a handle of %zu bytes was written to a buffer of %zu", handle->size, room);
    if (room == handle->size) break;
  }
}

static uint8_t *noise(cts_t *t, uint64_t seed) {
  uint8_t *const bytes = cts_pinned(t, SIZE);
  cts_noise(bytes, SIZE, seed);
  return bytes;
}

/* ---- memory ---- */

static uint8_t *open_memory(cts_peer_t *peer) {
  handle_t handle;
  void *ptr = NULL;
  cts_peer_hear(peer, &handle, sizeof handle);
  CTS_JUDGE(peer->t, ipc_open, "Maps a segment of another process");
  CTS_OK(peer->t, ipc_open, peer->t->device, handle.bytes, handle.size, 0, &ptr);
  CTS_CHECK(peer->t, ptr, "ipc_open returned HAL_OK and no address");
  return ptr;
}

/* Returns the size of the process's address space, from /proc/self/statm. */
static size_t address_space(void) {
  size_t pages = 0;
  FILE *const file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%zu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages * 4096;
}

static void read_and_write(cts_peer_t *peer) {
  cts_t *const t = peer->t;
  uint8_t *const first = open_memory(peer), *const second = open_memory(peer), *const got = cts_pinned(t, SIZE);
  cts_get(t, NULL, got, second, SIZE);
  cts_same(t, got, noise(t, 2), SIZE, "a segment of another process that ipc_open returned, the second of two");
  cts_get(t, NULL, got, first, SIZE);
  cts_same(t, got, noise(t, 1), SIZE, "a segment of another process that ipc_open returned, the first of two");
  cts_get(t, NULL, got, first + AT, PART);
  cts_same(t, got, noise(t, 1) + AT, PART, "a part of a segment that ipc_open returned");
  cts_put(t, NULL, first + AT, noise(t, 3), PART);
  CTS_OK(t, memory_copy, NULL, first + AT + PART, t->device, second, t->device, 1000);
  cts_peer_meet(peer); /* written */
  cts_peer_meet(peer); /* and written there */
  cts_get(t, NULL, got, second, SIZE);
  cts_same(t, got, noise(t, 4), SIZE, "what another process wrote to its segment once this one had opened it");
  CTS_JUDGE(t, ipc_close, "Unmaps a segment of ipc_open");
  CTS_OK(t, ipc_close, t->device, first);
  cts_get(t, NULL, got, second, SIZE);
  cts_same(t, got, noise(t, 4), SIZE, "a segment, after ipc_close of another one");
  CTS_OK(t, ipc_close, t->device, second);
  handle_t handle;
  cts_peer_hear(peer, &handle, sizeof handle);
  size_t before = 0;
  for (int i = 0; i < TIMES + 2; i++) {
    void *ptr = NULL;
    if (i == 2) before = address_space();
    CTS_OK(t, ipc_open, t->device, handle.bytes, handle.size, 0, &ptr);
    CTS_OK(t, ipc_close, t->device, ptr);
  }
  const size_t after = address_space();
  CTS_CHECK(t, after < before + (size_t)TIMES / 2 * SIZE,
            "a segment of %d bytes was opened and closed %d times, and the process has grown by %zu bytes", SIZE, TIMES,
            after - before);
}

static void export_memory(cts_peer_t *peer, void *ptr) {
  handle_t handle = {.size = 0};
  CTS_JUDGE(peer->t, ipc_export, "Creates a handle for a segment");
  CTS_OK(peer->t, ipc_export, peer->t->device, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size);
  CTS_JUDGE(peer->t, ipc_export, "`*out_size` is its number of bytes");
  check_room(peer->t, &handle, export_segment, ptr);
  cts_peer_say(peer, &handle, sizeof handle);
}

void cts_case_ipc_memory(cts_t *t) {
  static cts_peer_t peer;
  cts_peer_both(t, &peer, read_and_write, HAL_SLOT_ipc_open);
  uint8_t *const first = cts_alloc(t, SIZE), *const second = cts_alloc(t, SIZE), *const got = cts_pinned(t, SIZE),
                 *const expected = noise(t, 1);
  cts_put(t, NULL, first, expected, SIZE);
  cts_put(t, NULL, second, noise(t, 2), SIZE);
  export_memory(&peer, first);
  export_memory(&peer, second);
  cts_peer_meet(&peer);
  memcpy(expected + AT, noise(t, 3), PART);
  memcpy(expected + AT + PART, noise(t, 2), 1000);
  CTS_JUDGE(t, ipc_open, "Maps a segment of another process");
  cts_get(t, NULL, got, first, SIZE);
  cts_same(t, got, expected, SIZE, "memory that another process opened by ipc_open and wrote to");
  cts_put(t, NULL, second, noise(t, 4), SIZE);
  cts_peer_meet(&peer);
  export_memory(&peer, first);
  cts_peer_end(&peer);
  CTS_JUDGE(t, ipc_close, "Unmaps a segment of ipc_open");
  cts_get(t, NULL, got, first, SIZE);
  cts_same(t, got, expected, SIZE, "memory that another process has closed by ipc_close");
  cts_free(t, first);
  cts_free(t, second);
}

/* ---- events ---- */

static void wait_for_event(cts_peer_t *peer) {
  cts_t *const t = peer->t;
  handle_t handle;
  hal_plugin_event_t *event = NULL;
  const int held = cts_is_async(t);
  uint8_t *const memory = open_memory(peer), *const got = cts_pinned(t, SIZE);
  cts_peer_hear(peer, &handle, sizeof handle);
  CTS_JUDGE(t, event_ipc_open, "Opens an event of another process");
  CTS_OK(t, event_ipc_open, t->device, handle.bytes, handle.size, 0, &event);
  CTS_CHECK(t, event, "event_ipc_open returned HAL_OK and no event");
  for (uint64_t round = 0; round < 3; round++) {
    hal_plugin_stream_t *const stream = cts_stream(t);
    cts_peer_meet(peer); /* recorded */
    CTS_JUDGE(t, event_ipc_open, "Opens an event of another process");
    if (held) CTS_STATUS(t, HAL_NOT_READY, event_query, event);
    CTS_OK(t, stream_wait_event, stream, event);
    cts_get(t, stream, got, memory, SIZE);
    if (held) CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
    cts_peer_meet(peer); /* waited for */
    cts_sync(t, stream);
    cts_same(t, got, noise(t, round), SIZE,
             "what a stream read after an event of another process, which wrote it before");
    CTS_STATUS(t, HAL_OK, event_query, event);
    CTS_STATUS(t, HAL_OK, event_synchronize, event);
    cts_peer_meet(peer); /* read */
  }
  CTS_OK(t, event_destroy, event);
  CTS_OK(t, ipc_close, t->device, memory);
}

void cts_case_ipc_event(cts_t *t) {
  static cts_peer_t peer;
  cts_peer_both(t, &peer, wait_for_event, HAL_SLOT_event_ipc_open);
  static cts_gate_t gate;
  handle_t handle = {.size = 0};
  const int held = cts_is_async(t);
  uint8_t *const memory = cts_alloc(t, SIZE);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_INTERPROCESS);
  CTS_OK(t, event_record, event, stream);
  cts_sync(t, stream);
  export_memory(&peer, memory);
  CTS_JUDGE(t, event_ipc_export, "Creates a handle for an event");
  CTS_OK(t, event_ipc_export, event, 0, handle.bytes, sizeof handle.bytes, &handle.size);
  CTS_JUDGE(t, event_ipc_export, "written to `handle` if they fit");
  check_room(t, &handle, export_event, event);
  cts_peer_say(&peer, &handle, sizeof handle);
  for (uint64_t round = 0; round < 3; round++) {
    uint8_t *const bytes = noise(t, round);
    if (held) cts_gate_close(t, &gate, stream);
    cts_put(t, stream, memory, bytes, SIZE);
    CTS_OK(t, event_record, event, stream);
    cts_peer_meet(&peer);
    cts_peer_meet(&peer);
    if (held) cts_gate_open(&gate);
    cts_peer_meet(&peer);
    CTS_STATUS(t, HAL_OK, event_query, event);
  }
  cts_sync(t, stream);
  cts_peer_end(&peer);
  CTS_OK(t, event_destroy, event);
  cts_free(t, memory);
}

/* ---- flags and sizes ---- */

static void *exported;      /* a segment, or an event */
static handle_t the_handle; /* of it */

static hal_status_t export_with(cts_t *t, uint32_t flags) {
  return export_segment(t, exported, flags, the_handle.bytes, sizeof the_handle.bytes, &the_handle.size);
}
static hal_status_t export_event_with(cts_t *t, uint32_t flags) {
  return export_event(t, exported, flags, the_handle.bytes, sizeof the_handle.bytes, &the_handle.size);
}
static hal_status_t open_sized(cts_t *t, size_t size, uint32_t flags) {
  void *ptr = NULL;
  const hal_status_t status = cts_ipc_open(t, t->device, the_handle.bytes, size, flags, &ptr);
  return ptr ? HAL_OK : status;
}
static hal_status_t open_with(cts_t *t, uint32_t flags) { return open_sized(t, the_handle.size, flags); }
static hal_status_t open_event_sized(cts_t *t, size_t size, uint32_t flags) {
  hal_plugin_event_t *event = NULL;
  const hal_status_t status = cts_event_ipc_open(t, t->device, the_handle.bytes, size, flags, &event);
  return event ? HAL_OK : status;
}
static hal_status_t open_event_with(cts_t *t, uint32_t flags) { return open_event_sized(t, the_handle.size, flags); }

static void check_sizes(cts_t *t, hal_status_t (*sized)(cts_t *t, size_t size, uint32_t flags)) {
  const size_t sizes[] = {0, 1, the_handle.size - 1, the_handle.size + 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const hal_status_t status = sized(t, sizes[i], 0);
    CTS_CHECK(t, status == HAL_INVALID_ARGUMENT,
              "%zu bytes of a handle of %zu returned status %d, not HAL_INVALID_ARGUMENT (3)", sizes[i],
              the_handle.size, (int)status);
  }
}

void cts_case_flags_ipc_export(cts_t *t) {
  exported = cts_alloc(t, SIZE);
  cts_refuses_flags(t, 0, export_with);
  cts_free(t, exported);
}
void cts_case_flags_ipc_open(cts_t *t) {
  exported = cts_alloc(t, SIZE);
  CTS_CHECK(t, export_with(t, 0) == HAL_OK, "ipc_export failed");
  cts_refuses_flags(t, 0, open_with);
  CTS_JUDGE(t, ipc_open, "a handle of another size");
  check_sizes(t, open_sized);
  cts_free(t, exported);
}
void cts_case_flags_event_ipc_export(cts_t *t) {
  hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_INTERPROCESS);
  exported = event;
  cts_refuses_flags(t, 0, export_event_with);
  CTS_OK(t, event_destroy, event);
}
void cts_case_flags_event_ipc_open(cts_t *t) {
  hal_plugin_event_t *const event = cts_event(t, HAL_EVENT_INTERPROCESS);
  exported = event;
  CTS_CHECK(t, export_event_with(t, 0) == HAL_OK, "event_ipc_export failed");
  cts_refuses_flags(t, 0, open_event_with);
  CTS_JUDGE(t, event_ipc_open, "a handle of another size");
  check_sizes(t, open_event_sized);
  CTS_OK(t, event_destroy, event);
}

/* ---- host memory of the caller ---- */

void cts_case_memory_host_register(cts_t *t) {
  static cts_gate_t gate;
  const int held = cts_is_async(t);
  uint8_t *const room = cts_host(t, SIZE + 64), *const host = room + 16, *const expected = noise(t, 1);
  uint8_t *const device = cts_alloc(t, SIZE), *const got = cts_pinned(t, SIZE);
  hal_plugin_stream_t *const stream = cts_stream(t);
  for (int round = 0; round < 3; round++) {
    memcpy(host, expected, SIZE);
    CTS_JUDGE(t, host_register, "Page-locks");
    const hal_status_t status = cts_host_register(t, t->device, host, SIZE, 0);
    if (status == HAL_UNIMPLEMENTED) cts_skip(t, "the device cannot page-lock memory: %s", hal_error_message());
    cts_expect_ok(t, HAL_SLOT_host_register, status);
    cts_same(t, host, expected, SIZE, "host memory, after host_register");
    if (held) cts_gate_close(t, &gate, stream);
    cts_put(t, stream, device, host, SIZE);
    cts_get(t, stream, got, device, SIZE);
    if (held) cts_gate_open(&gate);
    cts_sync(t, stream);
    cts_same(t, got, expected, SIZE, "registered host memory copied to the device and back");
    cts_noise(expected, SIZE, (uint64_t)round + 7);
    cts_put(t, NULL, device, expected, SIZE);
    if (held) cts_gate_close(t, &gate, stream);
    cts_get(t, stream, host, device, SIZE);
    if (held) cts_gate_open(&gate);
    cts_sync(t, stream);
    cts_same(t, host, expected, SIZE, "registered host memory that the device was copied to");
    CTS_JUDGE(t, host_unregister, "Reverses host_register");
    CTS_OK(t, host_unregister, t->device, host);
    cts_same(t, host, expected, SIZE, "host memory, after host_unregister");
    host[0]++, host[SIZE - 1]++; /* it belongs to the caller, and can be written */
    host[0]--, host[SIZE - 1]--;
    for (size_t i = 0; i < 16; i++)
      CTS_CHECK(t, !room[i] && !host[SIZE + i], "memory next to the registered range was written");
  }
}
