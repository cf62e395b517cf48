/* plugin_clang.h: for plugins whose driver accepts SPIR-V: compiles OpenCL C to SPIR-V by clang and llvm-spirv of one
 * version, if they are on PATH. Linked from libhal_plugin_spirv.a (target hal_plugin_spirv) into plugins that use it;
 * hal-pack creates packs of SPIR-V with it. */
#ifndef HAL_PLUGIN_CLANG_H_
#define HAL_PLUGIN_CLANG_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAL_CLANG_LOG = 3000 };

/* The result of a compilation. Since 0.2. */
typedef struct hal_clang_result_s {
  /* a file in memory with the module, with its offset at the beginning; the caller closes it */
  int file;
  size_t size;             /* of it, in bytes */
  int code;                /* the exit code of the program that failed, or errno */
  char log[HAL_CLANG_LOG]; /* the compiler's output from its first error on */
} hal_clang_result_t;

/* Returns the path of clang; NULL if PATH does not have both programs in one version. PATH is read once. Thread-safe.
 * Since 0.2. */
const char *hal_clang_path(void);

/* Compiles `size` bytes of OpenCL C 1.2 to SPIR-V of at most version 1.2, without files on disk. `options` are
 * separated by spaces; `fp64`: 1 if the device has double precision. Sets no error of the host: the log is for the
 * caller's message. Thread-safe. Errors: HAL_UNAVAILABLE = there is no compiler, with what to install in the log;
 * HAL_INVALID_ARGUMENT = the compilation failed; HAL_RESOURCE_EXHAUSTED. Since 0.2. */
hal_status_t hal_clang_spirv(const char *source, size_t size, const char *options, int fp64,
                             hal_clang_result_t *out_result);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_CLANG_H_ */
