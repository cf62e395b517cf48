/* reset.c: a device that was reset works again, also one that was lost, and other devices are not affected. */
#include <stdio.h>

#include "cts.h"
#include "hal/status.h"
#include "kernel.h"

enum { ROOM = 1 << 16, LAUNCHES = 100, TURNS = 3 };

/* Uses the device, and releases its objects. */
static void use(cts_t *t, int32_t device, uint64_t seed) {
  uint8_t *const expected = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  hal_plugin_stream_t *stream = NULL;
  hal_plugin_event_t *event = NULL;
  void *memory = NULL;
  CTS_OK(t, memory_alloc, device, ROOM, 0, &memory);
  CTS_OK(t, stream_create, device, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream);
  CTS_OK(t, event_create, device, 0, &event);
  cts_noise(expected, ROOM, seed);
  CTS_OK(t, memory_copy, stream, memory, device, expected, HAL_HOST, ROOM);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, event_synchronize, event);
  CTS_OK(t, memory_copy, NULL, got, HAL_HOST, memory, device, ROOM);
  cts_same(t, got, expected, ROOM, "memory of a device that is reset again and again");
  CTS_OK(t, stream_synchronize, stream);
  CTS_OK(t, event_destroy, event);
  CTS_OK(t, stream_destroy, stream);
  CTS_OK(t, memory_free, device, memory);
  free(expected);
  free(got);
}

static void use_kernel(cts_t *t) {
  if (!CTS_PROVIDES(t, kernel_launch) || !cts_has_kernels(t)) return;
  hal_plugin_module_t *const module = cts_kernels_load(t);
  void *const memory = cts_alloc(t, CTS_RAMP * 4);
  cts_ramp_launch(t, cts_kernel_find(t, module, "cts_ramp"), NULL, memory, 5, CTS_RAMP);
  cts_ramp_check(t, memory, 5, 1, 0, "the result of a kernel on a device that was reset");
  cts_free(t, memory);
  CTS_OK(t, module_unload, module);
}

void cts_case_device_reset(cts_t *t) {
  for (int i = 0; i < TURNS; i++) {
    use(t, t->device, 51 + (uint64_t)i);
    use_kernel(t);
    CTS_OK(t, device_reset, t->device, 0);
    if (i == 1) CTS_OK(t, device_reset, t->device, 0); /* unused since the last reset */
  }
  CTS_JUDGE(t, device_reset, "the next call initializes the device again");
  use(t, t->device, 50);
}

void cts_case_device_reset_others(cts_t *t) {
  const int32_t other = t->device ? 0 : 1;
  uint8_t *const expected = cts_host(t, ROOM), *const got = cts_host(t, ROOM);
  void *memory = NULL;
  hal_plugin_stream_t *stream = NULL;
  CTS_OK(t, memory_alloc, other, ROOM, 0, &memory);
  CTS_OK(t, stream_create, other, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream);
  cts_noise(expected, ROOM, 61);
  CTS_OK(t, memory_copy, stream, memory, other, expected, HAL_HOST, ROOM);
  CTS_OK(t, stream_synchronize, stream);
  use(t, t->device, 62);
  CTS_OK(t, device_reset, t->device, 0);
  CTS_JUDGE(t, device_reset, "Other devices are not affected");
  CTS_OK(t, memory_copy, stream, got, HAL_HOST, memory, other, ROOM);
  CTS_OK(t, stream_synchronize, stream);
  cts_same(t, got, expected, ROOM, "memory of a device next to one that was reset");
}

static hal_status_t reset_with(cts_t *t, uint32_t flags) { return cts_device_reset(t, t->device, flags); }

void cts_case_flags_device_reset(cts_t *t) { cts_refuses_flags(t, 0, reset_with); }

/* Launches until the device is lost; a failure that does not lose it ends the case. */
static void lose(cts_t *t) {
  hal_plugin_module_t *const module = cts_kernels_load(t);
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, module, "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const memory = cts_alloc(t, CTS_RAMP * 4);
  hal_status_t failure = HAL_OK;
  for (int i = 0; i < LAUNCHES && !failure; i++) {
    cts_ramp_launch(t, kernel, stream, memory, i, CTS_RAMP);
    failure = cts_stream_synchronize(t, stream);
  }
  CTS_CHECK(t, failure, "none of %d launches failed, of which %s makes one fail", LAUNCHES, t->fault);
  if (failure != HAL_UNAVAILABLE)
    cts_skip(t, "the failure that %s makes is %s, and the device is not lost by it", t->fault,
             hal_status_name(failure));
  CTS_OK(t, stream_destroy, stream);
  CTS_OK(t, module_unload, module);
  cts_free(t, memory);
}

void cts_case_fault_reset(cts_t *t) {
  if (!t->fault)
    cts_skip(t, "no setting was given, with --fault NAME=VALUE, that makes the plugin fail one of its launches");
  cts_fault_set(t);
  cts_start(t);
  if (!CTS_PROVIDES(t, device_reset)) cts_skip(t, "the plugin does not provide device_reset");
  if (!CTS_PROVIDES(t, kernel_launch)) cts_skip(t, "the plugin does not provide kernel_launch");
  lose(t);
  const hal_status_t status = cts_device_reset(t, t->device, 0);
  if (status == HAL_UNAVAILABLE) return; /* the driver does not initialize it again */
  cts_expect_ok(t, HAL_SLOT_device_reset, status);
  CTS_JUDGE(t, device_reset, "also one that was lost");
  use(t, t->device, 71);
  use_kernel(t);
}
