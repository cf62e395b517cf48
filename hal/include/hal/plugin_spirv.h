/* plugin_spirv.h: for plugins that pass SPIR-V to a driver: the signatures of a module's kernels. A driver of Level
 * Zero gets only an argument's size, and would accept a number as an address. Linked from libhal_plugin_spirv.a (target
 * hal_plugin_spirv) into plugins that use it. */
#ifndef HAL_PLUGIN_SPIRV_H_
#define HAL_PLUGIN_SPIRV_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAL_SPIRV_ARGS = 64 };

/* A kernel's parameters. Since 0.2. */
typedef struct hal_spirv_signature_s {
  uint32_t count;                 /* may be more than are described */
  uint32_t kinds[HAL_SPIRV_ARGS]; /* HAL_ARG_* */
  uint32_t sizes[HAL_SPIRV_ARGS]; /* bytes of a number or an address; 0 = unknown: structs, local memory */
} hal_spirv_signature_t;

/* Looks up a kernel of a module of `count` words. Returns whether the module has it; words that are not SPIR-V have
 * none. Thread-safe. Since 0.2. */
int hal_spirv_signature(const uint32_t *words, size_t count, const char *name, hal_spirv_signature_t *out_signature);

/* Returns the name of kernel number `index`, borrowed from the words; NULL past the last one. Thread-safe. Since
 * 0.2. */
const char *hal_spirv_kernel_name(const uint32_t *words, size_t count, uint32_t index);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_SPIRV_H_ */
