/* device.c: what devices say of themselves. */
#include "cts.h"
#include "hal/status.h"
#include "plugin/loader.h"

enum { TIMES = 50 };

void cts_case_device_count(cts_t *t) {
  int32_t first = -1, next = -1;
  cts_enter(t, HAL_SLOT_info);
  CTS_CHECK(t, !cts_leave(t, HAL_SLOT_info, hal_plugin_load(t->path, t->plugin)), "%s", hal_error_message());
  const hal_status_t status = cts_device_count(t, &first);
  if (status == HAL_UNAVAILABLE || (!status && first == 0)) cts_skip(t, "the plugin counts no device here");
  cts_expect_ok(t, HAL_SLOT_device_count, status);
  CTS_CHECK(t, first >= 1 && first <= 4096, "device_count gave %d", first);
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, device_count, &next);
    CTS_CHECK(t, next == first, "device_count gave %d, and then %d", first, next);
  }
  CTS_OK(t, init, "");
  CTS_OK(t, device_count, &next);
  CTS_CHECK(t, next == first, "device_count gave %d before init and %d after it", first, next);
}

void cts_case_device_info(cts_t *t) {
  for (int32_t device = 0; device < t->page->device_count; device++) {
    hal_device_info_t info = {.struct_size = t->info.struct_size}, again = info;
    CTS_OK(t, device_info, device, &info);
    CTS_OK(t, device_info, device, &again);
    CTS_CHECK(t, memchr(info.name, 0, sizeof info.name) && info.name[0], "the name of device %d is empty or has no end",
              device);
    CTS_CHECK(t, memchr(info.dialects, 0, sizeof info.dialects), "the dialects of device %d have no end", device);
    CTS_CHECK(t, info.struct_size == t->info.struct_size, "device_info has changed struct_size, which is the host's");
    CTS_CHECK(t, memcmp(&info, &again, sizeof info) == 0, "device_info described device %d in two ways", device);
    const uint32_t alignment = info.base_alignment;
    CTS_CHECK(t, (alignment & (alignment - 1)) == 0, "base_alignment of device %d is %u, no power of two", device,
              alignment);
    const int dialects = info.dialects[0] != 0;
    CTS_CHECK(t, dialects == CTS_PROVIDES(t, module_load),
              "device %d lists the dialects \"%s\", and the plugin %s module_load", device, info.dialects,
              dialects ? "does not provide" : "provides");
  }
}

/* An older host has a shorter struct: behind it is other memory. */
void cts_case_device_info_size(cts_t *t) {
  static const size_t sizes[] = {sizeof(size_t),
                                 offsetof(hal_device_info_t, dialects),
                                 offsetof(hal_device_info_t, uuid),
                                 offsetof(hal_device_info_t, flags),
                                 offsetof(hal_device_info_t, total_memory),
                                 offsetof(hal_device_info_t, base_alignment)};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    union {
      hal_device_info_t info;
      uint8_t bytes[sizeof(hal_device_info_t) + 64];
    } room;
    memset(&room, 0, sizes[i]);
    memset(room.bytes + sizes[i], 0xa5, sizeof room - sizes[i]);
    room.info.struct_size = sizes[i];
    CTS_OK(t, device_info, t->device, &room.info);
    for (size_t at = sizes[i]; at < sizeof room; at++)
      CTS_CHECK(t, room.bytes[at] == 0xa5, "device_info wrote at byte %zu of a struct of %zu bytes", at, sizes[i]);
  }
}

/* Copies between the devices, once access was given. */
static void check_peer(cts_t *t, int32_t peer) {
  enum { SIZE = 5000 };
  void *theirs = NULL;
  uint8_t *const own = cts_alloc(t, SIZE), *const bytes = cts_host(t, SIZE), *const got = cts_host(t, SIZE);
  CTS_OK(t, memory_alloc, peer, SIZE, 0, &theirs);
  cts_noise(bytes, SIZE, 11);
  CTS_OK(t, memory_copy, NULL, theirs, peer, bytes, HAL_HOST, SIZE);
  CTS_OK(t, memory_copy, NULL, own, t->device, theirs, peer, SIZE);
  cts_get(t, NULL, got, own, SIZE);
  cts_same(t, got, bytes, SIZE, "memory of a peer, copied once device_peer_enable was called");
  CTS_OK(t, memory_free, peer, theirs);
  cts_free(t, own);
}

void cts_case_device_peers(cts_t *t) {
  for (int32_t peer = 0; peer < t->page->device_count; peer++) {
    int32_t accessible = -7;
    CTS_OK(t, device_peer_query, t->device, peer, &accessible);
    CTS_CHECK(t, accessible == 0 || accessible == 1, "device_peer_query gave %d for devices %d and %d", accessible,
              t->device, peer);
    if (!accessible || peer == t->device || !CTS_PROVIDES(t, device_peer_enable)) continue;
    CTS_JUDGE(t, device_peer_enable, "a second call is HAL_OK");
    CTS_OK(t, device_peer_enable, t->device, peer);
    CTS_OK(t, device_peer_enable, t->device, peer);
    CTS_JUDGE(t, device_peer_enable, "Lets `device` access");
    check_peer(t, peer);
    CTS_JUDGE(t, device_peer_query, "can read and write");
  }
}
