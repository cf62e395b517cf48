/* device.c: the descriptions of devices. */
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
  CTS_CHECK(t, first >= 1 && first <= 4096, "device_count returned %d", first);
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, device_count, &next);
    CTS_CHECK(t, next == first, "device_count returned %d, and then %d", first, next);
  }
  CTS_OK(t, init, "");
  CTS_OK(t, device_count, &next);
  CTS_CHECK(t, next == first, "device_count returned %d before init and %d after it", first, next);
}

/* Fields whose value may be 0 have a bit in `known`. */
static void check_known(cts_t *t, int32_t device, const hal_device_info_t *info) {
  const uint32_t bits = HAL_DEVICE_KNOWS_NUMA_NODE | HAL_DEVICE_KNOWS_PARTITION;
  CTS_CHECK(t, !(info->known & ~bits) && !info->reserved,
            "device %d sets known to 0x%x and reserved to %u; bits without a name and reserved fields are zero", device,
            info->known, info->reserved);
  CTS_CHECK(t, (info->known & HAL_DEVICE_KNOWS_NUMA_NODE) ? info->numa_node >= 0 : info->numa_node == 0,
            "device %d reports NUMA node %d with known 0x%x; set HAL_DEVICE_KNOWS_NUMA_NODE with a node from 0 on",
            device, info->numa_node, info->known);
  CTS_CHECK(t, (info->known & HAL_DEVICE_KNOWS_PARTITION) || !info->partition_index,
            "device %d reports partition %u without HAL_DEVICE_KNOWS_PARTITION", device, info->partition_index);
}

static void check_limits(cts_t *t, int32_t device, const hal_device_info_t *info) {
  const uint32_t alignment = info->binding_alignment;
  CTS_CHECK(t, (alignment & (alignment - 1)) == 0 && (!info->base_alignment || alignment <= info->base_alignment),
            "device %d reports binding_alignment %u; it is a power of two, at most base_alignment, %u", device,
            alignment, info->base_alignment);
}

/* The host that initializes a device does not read the fields that are slow; it reads the same limits. */
static void check_brief(cts_t *t, int32_t device, const hal_device_info_t *whole) {
  hal_device_info_t brief = {.struct_size = whole->struct_size, .known = HAL_DEVICE_INFO_BRIEF};
  const size_t size = HAL_STRUCT_SIZE(hal_device_info_t, architecture), first = offsetof(hal_device_info_t, max_grid);
  CTS_OK(t, device_info, device, &brief);
  CTS_CHECK(t,
            memcmp(&brief, whole, size) == 0 &&
                memcmp((char *)&brief + first, (const char *)whole + first, whole->struct_size - first) == 0,
            "device_info described device %d in two ways, with and without HAL_DEVICE_INFO_BRIEF", device);
}

/* The host reads a part of the fields when it initializes the device, and all of them later. */
static void check_short(cts_t *t, int32_t device, const hal_device_info_t *whole) {
  const size_t size = HAL_STRUCT_SIZE(hal_device_info_t, architecture);
  hal_device_info_t part = {.struct_size = size};
  CTS_OK(t, device_info, device, &part);
  part.struct_size = whole->struct_size;
  CTS_CHECK(t, memcmp(&part, whole, size) == 0,
            "device_info returned device %d other values in a struct of %zu bytes than in one of %zu", device, size,
            whole->struct_size);
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
    CTS_CHECK(t, memchr(info.architecture, 0, sizeof info.architecture), "the architecture of device %d has no end",
              device);
    CTS_CHECK(t, memchr(info.driver_version, 0, sizeof info.driver_version),
              "the driver_version of device %d has no end", device);
    CTS_CHECK(t, memchr(info.firmware_version, 0, sizeof info.firmware_version),
              "the firmware_version of device %d has no end", device);
    check_known(t, device, &info);
    CTS_JUDGE(t, device_info, "same value in every call");
    CTS_CHECK(t, memcmp(&info, &again, sizeof info) == 0, "device_info described device %d in two ways", device);
    check_short(t, device, &info);
    check_brief(t, device, &info);
    CTS_JUDGE(t, device_info, "Describes a device");
    check_limits(t, device, &info);
    const uint32_t alignment = info.base_alignment;
    CTS_CHECK(t, (alignment & (alignment - 1)) == 0, "base_alignment of device %d is %u, no power of two", device,
              alignment);
    const int dialects = info.dialects[0] != 0;
    CTS_CHECK(t, dialects == CTS_PROVIDES(t, module_load),
              "device %d lists the dialects \"%s\", and the plugin %s module_load", device, info.dialects,
              dialects ? "does not provide" : "provides");
  }
}

/* An older host has a shorter struct: other memory follows it. */
void cts_case_device_info_size(cts_t *t) {
  static const size_t sizes[] = {sizeof(size_t),
                                 offsetof(hal_device_info_t, dialects),
                                 offsetof(hal_device_info_t, uuid),
                                 offsetof(hal_device_info_t, flags),
                                 offsetof(hal_device_info_t, total_memory),
                                 offsetof(hal_device_info_t, base_alignment),
                                 offsetof(hal_device_info_t, l2_bytes),
                                 offsetof(hal_device_info_t, numa_node),
                                 offsetof(hal_device_info_t, known),
                                 offsetof(hal_device_info_t, driver_version),
                                 offsetof(hal_device_info_t, max_grid),
                                 offsetof(hal_device_info_t, max_threads)};
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

/* Copies between the devices, after access was enabled. */
static void check_peer(cts_t *t, int32_t peer) {
  enum { SIZE = 5000 };
  void *theirs = NULL;
  uint8_t *const own = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
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
    CTS_CHECK(t, accessible == 0 || accessible == 1, "device_peer_query returned %d for devices %d and %d", accessible,
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

/* Runs checks of one device on the others. */
static void on_others(cts_t *t, void (*const *cases)(cts_t *t)) {
  const int32_t own = t->device;
  for (int32_t device = 0; device < t->page->device_count; device++) {
    if (device == own) continue;
    t->device = device;
    CTS_OK(t, device_info, device, &t->info);
    for (int i = 0; cases[i]; i++) {
      for (uint32_t j = 0; j < cts_case_count; j++)
        if (cts_cases[j].run == cases[i]) cts_judge(t, cts_cases[j].slot, cts_cases[j].phrase);
      cases[i](t);
    }
  }
  t->device = own;
}

void cts_case_device_others(cts_t *t) {
  static void (*const cases[])(cts_t * t) = {cts_case_memory_alloc,
                                             cts_case_copy_round_trip,
                                             cts_case_copy_offsets,
                                             cts_case_copy_within,
                                             cts_case_memory_fill,
                                             cts_case_copy_streams,
                                             cts_case_stream_order,
                                             cts_case_memory_fill_streams,
                                             cts_case_event_lifetime,
                                             cts_case_memory_exhausted,
                                             NULL};
  static void (*const known[])(cts_t * t) = {cts_case_memory_pointer_info, NULL};
  static void (*const events[])(cts_t * t) = {cts_case_event_synchronize, cts_case_event_wait, NULL};
  on_others(t, cases);
  if (CTS_PROVIDES(t, memory_pointer_info)) on_others(t, known);
  if (cts_is_async(t) && CTS_PROVIDES(t, event_create) && CTS_PROVIDES(t, stream_wait_event)) on_others(t, events);
}

void cts_case_module_others(cts_t *t) {
  static void (*const cases[])(cts_t * t) = {cts_case_module_launch, cts_case_module_order, cts_case_module_values,
                                             NULL};
  on_others(t, cases);
}

/* A stream of one device waits for an event of another. */
void cts_case_event_between_devices(cts_t *t) {
  enum { SIZE = 50000 };
  const int32_t peer = t->device ? 0 : 1;
  const int held = cts_is_async(t);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_stream_t *theirs = NULL;
  hal_plugin_event_t *const written = cts_event(t, 0);
  void *there = NULL;
  uint8_t *const here = cts_alloc(t, SIZE), *const bytes = cts_pinned(t, SIZE), *const got = cts_pinned(t, SIZE);
  CTS_OK(t, stream_create, peer, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &theirs);
  CTS_OK(t, memory_alloc, peer, SIZE, 0, &there);
  for (uint64_t round = 0; round < 5; round++) {
    static cts_gate_t gate;
    cts_noise(bytes, SIZE, round);
    if (held) cts_gate_close(t, &gate, stream);
    cts_put(t, stream, here, bytes, SIZE);
    CTS_OK(t, event_record, written, stream);
    CTS_OK(t, stream_wait_event, theirs, written);
    CTS_OK(t, memory_copy, theirs, there, peer, here, t->device, SIZE);
    CTS_OK(t, memory_copy, theirs, got, HAL_HOST, there, peer, SIZE);
    if (held) CTS_STATUS(t, HAL_NOT_READY, stream_query, theirs);
    if (held) cts_gate_open(&gate);
    cts_sync(t, theirs);
    cts_same(t, got, bytes, SIZE, "what a stream of one device read after an event of another device");
  }
}
