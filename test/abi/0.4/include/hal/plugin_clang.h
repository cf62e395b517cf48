/* plugin_clang.h: for plugins whose driver takes SPIR-V: OpenCL C to SPIR-V by clang and llvm-spirv of one version,
 * where they are on PATH. Linked from libhal_plugin_spirv.a (target hal_plugin_spirv) into plugins that use it;
 * hal-pack makes packs of SPIR-V by it. */
#ifndef HAL_PLUGIN_CLANG_H_
#define HAL_PLUGIN_CLANG_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAL_CLANG_LOG = 3000 };

/* What came of a compilation. Since 0.2. */
typedef struct hal_clang_result_s {
  int file;                /* a file in memory with the module, its offset at the begin; the caller closes it */
  size_t size;             /* of it, in bytes */
  int code;                /* the exit code of the program that failed, or errno */
  char log[HAL_CLANG_LOG]; /* what went wrong, from the compiler's first error on */
} hal_clang_result_t;

/* Gives the path of clang; NULL when there are not both programs of one version on PATH. PATH is read once. Thread-safe. Since 0.2. */
const char *hal_clang_path(void);

/* Compiles `size` bytes of OpenCL C 1.2 to SPIR-V of at most version 1.2, as it is and without files on disk. `options` are parted by spaces;
 * `fp64` tells whether the device has double precision. Sets no error of the host: the log is for the caller's message. Thread-safe.
 * Errors: HAL_UNAVAILABLE = there is no compiler, the log says what to install; HAL_INVALID_ARGUMENT = it failed;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2. */
hal_status_t hal_clang_spirv(const char *source, size_t size, const char *options, int fp64,
                             hal_clang_result_t *out_result);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_CLANG_H_ */
