/* library.c: libfake_checked_kernels.so: the portable kernels, instrumented (access.c). The plugin opens it when
 * HAL_FAKE_SANITIZE is set. */
#include "access.h"

__attribute__((visibility("default"))) const hal_host_kernel_t *fake_checked_kernel(const char *name);
const hal_host_kernel_t *fake_checked_kernel(const char *name) { return hal_host_kernel_find(name); }
