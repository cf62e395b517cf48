/* host_pointer.c: kernels access page-locked host memory. */
#include <stdio.h>

#include "kernel.h"

void cts_case_module_host_pointer(cts_t *t) {
  enum { BYTES = CTS_RAMP * 4, BEFORE = 64, GUARD = 64 };
  uint8_t *const host = cts_pinned(t, BEFORE + BYTES + GUARD), *const other = cts_host(t, 64);
  void *const on_device = cts_alloc(t, 64);
  void *there = NULL, *none = other;
  if (!CTS_PROVIDES(t, host_alloc)) cts_skip(t, "the plugin does not provide host_alloc");
  hal_plugin_kernel_t *const kernel = cts_kernel_find(t, cts_kernels_load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  memset(host, 0x5a, BEFORE + BYTES + GUARD);
  CTS_OK(t, host_device_pointer, t->device, host + BEFORE, &there);
  CTS_CHECK(t, there, "host_device_pointer returned HAL_OK and no address");
  for (int32_t value = 0; value < 3; value++) {
    cts_ramp_launch(t, kernel, stream, there, value, CTS_RAMP);
    cts_sync(t, stream);
    for (int32_t i = 0; i < CTS_RAMP; i++) {
      int32_t got;
      memcpy(&got, host + BEFORE + 4 * i, sizeof got);
      CTS_CHECK(t, got == value + 3 * i, "element %d of host memory that a kernel wrote is %d instead of %d", i, got,
                value + 3 * i);
    }
  }
  for (int i = 0; i < BEFORE + GUARD; i++) {
    const int at = i < BEFORE ? i : BYTES + i;
    CTS_CHECK(t, host[at] == 0x5a, "a kernel that was given host memory changed byte %d, outside of what it writes",
              at);
  }
  CTS_JUDGE(t, host_device_pointer, "HAL_INVALID_ARGUMENT");
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, host_device_pointer, t->device, other, &none);
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, host_device_pointer, t->device, on_device, &none);
  CTS_CHECK(t, none == other, "host_device_pointer failed and wrote to out_ptr");
}
