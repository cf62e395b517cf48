/* compile.h: modules in the dialect "c": source that the host's C compiler compiles. Private. */
#ifndef HAL_FAKE_COMPILE_H_
#define HAL_FAKE_COMPILE_H_

#include "hal/plugin.h"
#include "hal/plugin_kernels.h"

/* Returns whether source is accepted, according to HAL_FAKE_CC. The compiler is looked up when a module is compiled. */
int fake_compile_accepts(void);

/* Compiles a module and loads it into the process. Any thread may call. Errors: HAL_UNIMPLEMENTED = there is no
 * compiler, HAL_INVALID_ARGUMENT with the compiler's log, HAL_FAILED_PRECONDITION = there is no folder for its files,
 * or none that may contain code, HAL_INTERNAL = it was killed, HAL_RESOURCE_EXHAUSTED. */
hal_status_t fake_compile(const hal_module_desc_t *desc, void **out_library);

/* Returns the kernel of that name which the library defines. Errors: HAL_NOT_FOUND, HAL_RESOURCE_EXHAUSTED. */
hal_status_t fake_library_kernel(void *library, const char *name, const hal_host_kernel_t **out_kernel);

#endif /* HAL_FAKE_COMPILE_H_ */
