/* hint.c: memory_prefetch and memory_advise. The memory of all devices is host memory and does not move. A prefetch
 * populates the pages of new memory, so that later work does not wait for page faults. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "protect.h"

#if !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14 */
#endif

/* Preserves the contents. If the system does not support it, the pages are populated at their first use. */
static void populate_range(const hal_host_range_t *range, void *const *args) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = *(const uintptr_t *)args[0];
  const uintptr_t begin = (first + range->begin) & ~(page - 1), end = (first + range->end + page - 1) & ~(page - 1);
  (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE); /* NOLINT(performance-no-int-to-ptr) */
}

static const hal_host_kernel_t populate_kernel = {"memory_prefetch", populate_range,  1,
                                                  HAL_HOST_ITEMS,    FAKE_COPY_GRAIN, 0};

/* Checks the devices, and returns the workers' address of the range. */
static hal_status_t check(const char *call, int32_t device, const void *ptr, size_t size, int32_t place,
                          void **out_address) {
  *out_address = (void *)(uintptr_t)ptr;
  hal_status_t status = fake_check_device(device);
  if (!status && place != HAL_HOST) status = fake_check_device(place);
  if (!status && size && FAKE_UNLIKELY(fake.settings.protect))
    status = fake_protect_range(call, device, ptr, size, out_address);
  return status;
}

hal_status_t hal_plugin_memory_prefetch(hal_plugin_stream_t *stream, int32_t device, const void *ptr, size_t size,
                                        int32_t dst_device, uint32_t flags) {
  void *address = NULL;
  hal_status_t status = hal_flags_check("fake: memory_prefetch", flags, 0);
  if (!status) status = check("memory_prefetch", device, ptr, size, dst_device, &address);
  if (status || !size || dst_device == HAL_HOST || (stream && fake_is_captured(stream))) return status;
  const uintptr_t first = (uintptr_t)address;
  const hal_arg_t args[] = {{&first, sizeof first, HAL_ARG_VALUE}};
  return fake_submit(stream, &populate_kernel, size, args, 1, NULL);
}

hal_status_t hal_plugin_memory_advise(int32_t device, const void *ptr, size_t size, uint32_t advice, int32_t peer) {
  void *address = NULL;
  const hal_status_t status = hal_advice_check("fake: memory_advise", advice);
  return status ? status : check("memory_advise", device, ptr, size, peer, &address);
}
