/* access.h: what the plugin passes to instrumented kernels (access.c). Private. */
#ifndef FAKE_ACCESS_H_
#define FAKE_ACCESS_H_

#include <stddef.h>
#include <stdint.h>

#include "hal/plugin_kernels.h"

typedef struct fake_access_s {
  uintptr_t base; /* the addresses of device memory */
  size_t size;
  unsigned char *shadow;
  uint64_t needs;         /* the bits that a load requires, for eight bytes */
  uint32_t marks, traced; /* stores mark their bytes as written; `trace` is called */
  void (*report)(uintptr_t address, size_t size, int is_store);
  void (*trace)(uintptr_t address, size_t size, int is_store);
} fake_access_t;

/* Symbols of the library of checked kernels and of modules. */
#define FAKE_ACCESS_SYMBOL "fake_access"
#define FAKE_CHECKED_KERNEL_SYMBOL "fake_checked_kernel"
typedef const hal_host_kernel_t *(*fake_checked_kernel_fn_t)(const char *name);

#endif /* FAKE_ACCESS_H_ */
