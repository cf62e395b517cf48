/* virtual.c: separate addresses and memory. */
#include <stdio.h>
#include <unistd.h>

#include "cts.h"
#include "hal/status.h"

static size_t granule(cts_t *t) {
  const uint64_t size = t->info.virtual_granularity;
  if (!size)
    cts_skip(t, "device_info reports no virtual_granularity: the device has no virtual memory in this setting");
  return (size_t)size;
}

static void round_trip(cts_t *t, void *device, size_t size, uint64_t seed, const char *what) {
  uint8_t *const bytes = cts_host(t, size), *const got = cts_host(t, size);
  cts_noise(bytes, size, seed);
  cts_put(t, NULL, device, bytes, size);
  cts_get(t, NULL, got, device, size);
  cts_same(t, got, bytes, size, what);
}

void cts_case_virtual_maps(cts_t *t) {
  const size_t size = granule(t);
  hal_plugin_physical_t *first = NULL, *second = NULL;
  void *base = NULL;
  CTS_OK(t, virtual_reserve, t->device, 4 * size, &base);
  CTS_OK(t, virtual_create, t->device, size, HAL_HANDLE_NONE, &first);
  CTS_OK(t, virtual_create, t->device, 2 * size, HAL_HANDLE_NONE, &second);
  CTS_OK(t, virtual_map, t->device, base, size, first);
  CTS_OK(t, virtual_map, t->device, (uint8_t *)base + size, 2 * size, second);
  round_trip(t, base, 3 * size, 1, "bytes in two pieces of memory mapped one after the other");
  uint8_t *const before = cts_host(t, size), *const after = cts_host(t, size);
  cts_get(t, NULL, before, base, size);
  CTS_JUDGE(t, virtual_unmap, "Unmaps a range");
  CTS_OK(t, virtual_unmap, t->device, base, size);
  CTS_OK(t, virtual_map, t->device, (uint8_t *)base + 3 * size, size, first);
  cts_get(t, NULL, after, (uint8_t *)base + 3 * size, size);
  cts_same(t, after, before, size, "memory that was unmapped and mapped at another address");
  CTS_OK(t, virtual_unmap, t->device, (uint8_t *)base + 3 * size, size);
  CTS_OK(t, virtual_unmap, t->device, (uint8_t *)base + size, 2 * size);
  CTS_JUDGE(t, virtual_release, "Releases memory");
  CTS_OK(t, virtual_release, t->device, first);
  CTS_OK(t, virtual_release, t->device, second);
  CTS_JUDGE(t, virtual_unreserve, "Releases reserved addresses");
  CTS_OK(t, virtual_unreserve, t->device, base, 4 * size);
}

void cts_case_virtual_share(cts_t *t) {
  const size_t size = granule(t);
  hal_plugin_physical_t *memory = NULL, *same = NULL;
  hal_memory_handle_t handle = {.file = -1};
  void *first = NULL, *second = NULL;
  const hal_status_t status = cts_virtual_create(t, t->device, size, HAL_HANDLE_FILE, &memory);
  if (status == HAL_UNIMPLEMENTED) cts_skip(t, "virtual_create makes no memory that is shared as a file descriptor");
  cts_expect_ok(t, HAL_SLOT_virtual_create, status);
  CTS_JUDGE(t, virtual_export, "Creates a handle of one kind");
  CTS_OK(t, virtual_export, t->device, memory, HAL_HANDLE_FILE, &handle);
  CTS_CHECK(t, handle.kind == HAL_HANDLE_FILE && handle.file >= 0,
            "virtual_export returned a handle of kind %u with the descriptor %d", handle.kind, handle.file);
  CTS_JUDGE(t, virtual_export, "belongs to the caller");
  hal_memory_handle_t other = {.file = -1};
  CTS_OK(t, virtual_export, t->device, memory, HAL_HANDLE_FILE, &other);
  CTS_CHECK(t, other.file != handle.file,
            "virtual_export returned the descriptor %d twice: it cannot belong to its caller", other.file);
  CTS_CHECK(t, close(other.file) == 0, "virtual_export returned the descriptor %d, which is not open", other.file);
  CTS_JUDGE(t, virtual_import, "Returns the memory of a handle");
  CTS_OK(t, virtual_import, t->device, &handle, size, &same);
  CTS_JUDGE(t, virtual_import, "stays the caller's");
  CTS_CHECK(t, close(handle.file) == 0, "virtual_import closed the caller's file descriptor");
  CTS_JUDGE(t, virtual_create, "which can be exported");
  CTS_OK(t, virtual_reserve, t->device, size, &first);
  CTS_OK(t, virtual_reserve, t->device, size, &second);
  CTS_OK(t, virtual_map, t->device, first, size, memory);
  CTS_OK(t, virtual_map, t->device, second, size, same);
  uint8_t *const bytes = cts_host(t, size), *const got = cts_host(t, size);
  cts_noise(bytes, size, 9);
  cts_put(t, NULL, first, bytes, size);
  cts_get(t, NULL, got, second, size);
  cts_same(t, got, bytes, size, "memory written at one address and read where its handle was opened");
  CTS_JUDGE(t, virtual_create, "Released by virtual_release");
  CTS_OK(t, virtual_unmap, t->device, first, size);
  CTS_OK(t, virtual_release, t->device, memory);
  CTS_JUDGE(t, virtual_import, "released by virtual_release");
  memset(got, 0, size);
  cts_get(t, NULL, got, second, size);
  cts_same(t, got, bytes, size, "memory of a handle, after its exporter has released it");
  CTS_OK(t, virtual_unmap, t->device, second, size);
  CTS_OK(t, virtual_release, t->device, same);
}

void cts_case_virtual_access(cts_t *t) {
  const size_t size = granule(t);
  hal_plugin_physical_t *memory = NULL;
  void *base = NULL;
  CTS_OK(t, virtual_reserve, t->device, size, &base);
  CTS_OK(t, virtual_create, t->device, size, HAL_HANDLE_NONE, &memory);
  CTS_OK(t, virtual_map, t->device, base, size, memory);
  CTS_JUDGE(t, virtual_access, "virtual_map lets `device` read and write");
  round_trip(t, base, size, 1, "memory that was mapped, and given no further access");
  CTS_JUDGE(t, virtual_access, "Lets `peer`");
  for (int32_t peer = 0; peer < t->page->device_count; peer++)
    CTS_OK(t, virtual_access, t->device, base, size, peer, HAL_ACCESS_READ_WRITE);
  round_trip(t, base, size, 2, "memory that its device was given reading and writing of");
  uint8_t *const got = cts_host(t, size), *const bytes = cts_host(t, size);
  CTS_OK(t, virtual_access, t->device, base, size, t->device, HAL_ACCESS_READ);
  cts_noise(bytes, size, 2);
  cts_get(t, NULL, got, base, size);
  cts_same(t, got, bytes, size, "memory that its device may only read");
  CTS_OK(t, virtual_unmap, t->device, base, size);
  CTS_OK(t, virtual_release, t->device, memory);
  CTS_OK(t, virtual_unreserve, t->device, base, size);
}

/* Reserved addresses use no memory: far more than a device has. */
void cts_case_virtual_reserves(cts_t *t) {
  enum { TIMES = 200 };
  const size_t size = granule(t), many = ((size_t)64 << 30) / size * size;
  hal_plugin_physical_t *mark = (hal_plugin_physical_t *)(void *)t, *memory = mark;
  void *first = NULL, *second = NULL;
  for (int i = 0; i < TIMES; i++) {
    CTS_OK(t, virtual_reserve, t->device, many, &first);
    CTS_OK(t, virtual_reserve, t->device, size, &second);
    CTS_CHECK(t, (uint8_t *)second + size <= (uint8_t *)first || (uint8_t *)first + many <= (uint8_t *)second,
              "virtual_reserve returned %zu bytes at %p, within %zu bytes at %p that are reserved", size, second, many,
              first);
    CTS_OK(t, virtual_unreserve, t->device, second, size);
    CTS_OK(t, virtual_unreserve, t->device, first, many);
  }
  CTS_JUDGE(t, virtual_create, "HAL_UNIMPLEMENTED for a kind of handle");
  CTS_STATUS(t, HAL_UNIMPLEMENTED, virtual_create, t->device, size, 1u << 20, &memory);
  CTS_GENERAL(t, "are unchanged after a failure");
  CTS_CHECK(t, memory == mark, "virtual_create failed and wrote to its out-parameter");
}
