/* host_malloc.c: host memory of the HAL and of the host API, which fails on request (HAL_FAULT=host_malloc:N). */
#define _POSIX_C_SOURCE 200809L
#include "base/host_malloc.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/likely.h"

/* Number of calls until one fails; 0 = none will. */
static atomic_long countdown;

void hal_malloc_fail_after(long calls) { atomic_store(&countdown, calls); }

static int fails_now(void) {
  if (HAL_LIKELY(atomic_load_explicit(&countdown, memory_order_relaxed) <= 0)) return 0;
  return atomic_fetch_sub(&countdown, 1) == 1;
}

void *hal_malloc(size_t size) { return fails_now() ? NULL : malloc(size ? size : 1); }

void *hal_calloc(size_t count, size_t size) { return fails_now() ? NULL : calloc(count ? count : 1, size ? size : 1); }

void hal_free(void *ptr) { free(ptr); }

void *hal_malloc_aligned(size_t size, size_t alignment) {
  void *ptr = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *); /* the minimum of posix_memalign */
  if (fails_now() || posix_memalign(&ptr, alignment, size ? size : 1)) return NULL;
  return ptr;
}
