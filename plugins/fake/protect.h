/* protect.h: protected memory: memory that the host cannot access, HAL_FAKE_PROTECT=1 (protect.c). Private. */
#ifndef FAKE_PROTECT_H_
#define FAKE_PROTECT_H_

#include "fake.h"

/* Guard pages use only addresses; 2 MiB keep both mappings aligned to huge pages, and detect large strides beyond the
 * end. */
#define FAKE_GUARD_BYTES ((size_t)2 << 20)

/* Maps `mapped` bytes, of a file or (-1) of new memory: inaccessible at `base`, usable at `work`, with guard pages
 * around both. `base` is NULL after a failure. */
void fake_protect_map(fake_segment_t *inout_segment, int file);
/* The same without any usable memory: virtual.c maps it at `work`. */
void fake_protect_reserve(fake_segment_t *inout_segment);
/* Returns copies of a launch's arguments in which pointers are those of the workers' mappings; `pointers` contains
 * them. */
hal_status_t fake_protect_args(const hal_host_kernel_t *kernel, const hal_arg_t *args, uint32_t arg_count,
                               hal_arg_t *out_args, void **pointers);
/* Returns the worker's address of `size` bytes that a copy or fill uses on a device or, HAL_HOST, in host memory. */
hal_status_t fake_protect_range(const char *call, int32_t device, const void *address, size_t size, void **out_address);
/* Stores for the report that this thread runs a kernel, and that it runs none. */
void fake_protect_enter(const hal_host_kernel_t *kernel);
void fake_protect_leave(void);
const char *fake_protect_running(void);

#endif /* FAKE_PROTECT_H_ */
