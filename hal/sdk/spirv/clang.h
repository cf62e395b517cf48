/* clang.h: compilations that a flag ends, for hal-pack. Private to the repository. */
#ifndef HAL_SDK_SPIRV_CLANG_H_
#define HAL_SDK_SPIRV_CLANG_H_

#include "hal/plugin_clang.h"

/* Compiles as hal_clang_spirv. If *cancelled becomes nonzero, ends the compiler and returns HAL_INVALID_ARGUMENT.
 * `cancelled` may be NULL. Thread-safe. */
hal_status_t hal_clang_spirv_until(const char *source, size_t size, const char *options, int fp64,
                                   const int32_t *cancelled, hal_clang_result_t *out_result);

#endif /* HAL_SDK_SPIRV_CLANG_H_ */
