/* compiler.h: whole programs for a vendor's compiler.
 *
 * A device's compiler gets operators of lazy work (lazy.h) that it accepts: when the work is flushed, consecutive
 * accepted operators are passed to it as a graph. The compiled program is cached, and executed in their place each time
 * the same operators are recorded. Graphs that it declines, and all other work, run as without a compiler, so a
 * compiler can begin with one operator. The operators have the same effects as the device's kernels: their memory is
 * allocated, and results that are not dead are in it after the program has run.
 *
 * A plugin provides its compiler by the slot program_compiler; the application can set another one here.
 * plugin_program.h has the types. */
#ifndef HAL_COMPILER_H_
#define HAL_COMPILER_H_

#include "hal/plugin_program.h"
#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the compiler of a device in place of its plugin's. `compiler` is copied; NULL = no compiler from now on. The
 * programs of the previous compiler are destroyed after the device has done what is queued. Default: the plugin's, if
 * it has one. Any thread. Errors: HAL_FAILED_PRECONDITION = a stream of the device is lazy now; HAL_OUT_OF_RANGE =
 * invalid device; HAL_INVALID_ARGUMENT = a function is missing; HAL_UNIMPLEMENTED = flags of a later version;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_compiler_set(int32_t device, const hal_compiler_t *compiler);

/* Statistics of a device's compiler. */
typedef struct hal_compiler_info_s {
  size_t struct_size;
  uint64_t compiled; /* graphs, and of these */
  uint64_t refused;
  uint64_t executed; /* programs, and the operators in them */
  uint64_t operators;
  uint64_t again; /* second compilations of programs, by the compiler itself. Since 0.5 */
} hal_compiler_info_t;

/* Returns the counts of a device's compiler since it was set; zeros without a compiler. The caller sets
 * `out_info->struct_size`. Any thread. Errors: HAL_OUT_OF_RANGE = invalid device. Since 0.2. */
HAL_API hal_status_t hal_compiler_info(int32_t device, hal_compiler_info_t *out_info);

#ifdef __cplusplus
}
#endif
#endif /* HAL_COMPILER_H_ */
