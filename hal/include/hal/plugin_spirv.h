/* plugin_spirv.h: for plugins that pass SPIR-V to a driver: the signatures of a module's kernels. A driver of Level
 * Zero gets only an argument's size, and would accept a number as an address. In modules for Vulkan, which clspv
 * compiles from OpenCL C, a reflection describes where a kernel finds its arguments. Linked from libhal_plugin_spirv.a
 * (target hal_plugin_spirv) into plugins that use it. */
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

/* ---- modules of clspv ------------------------------------------------------------------------------------------- */

/* Where a kernel finds an argument. */
enum {
  HAL_CLSPV_UNUSED = 0,     /* the kernel does not read it */
  HAL_CLSPV_BUFFER = 1,     /* a storage buffer, at `binding` */
  HAL_CLSPV_POD_BUFFER = 2, /* `size` bytes at `offset` in the storage buffer for numbers */
  HAL_CLSPV_POD_PUSH = 3    /* `size` bytes at `offset` in the push constants */
};

typedef struct hal_clspv_argument_s { /* where a kernel of clspv reads an argument */
  uint32_t place;                     /* HAL_CLSPV_* */
  uint32_t binding, offset, size;
} hal_clspv_argument_t;

/* The arguments of a kernel, all in descriptor set 0. Since 0.5. */
typedef struct hal_clspv_kernel_s {
  uint32_t count;                 /* number of arguments, at most HAL_SPIRV_ARGS */
  uint32_t bindings;              /* the largest binding plus 1 */
  uint32_t pod_binding, pod_size; /* the storage buffer for numbers, in bytes; 0 bytes = there is none */
  uint32_t push_size;             /* bytes of push constants */
  uint32_t block_ids[3];          /* ids of the specialization constants with the size of a block */
  uint32_t block[3];              /* the size that the kernel requires; 0 = any */
  hal_clspv_argument_t arguments[HAL_SPIRV_ARGS];
} hal_clspv_kernel_t;

/* Reads the reflection of a kernel in a module of `count` words. Sets no message. Thread-safe. Errors: HAL_NOT_FOUND =
 * no such kernel, or words that are not SPIR-V with a reflection; HAL_UNIMPLEMENTED = the kernel needs what is not
 * described here: local memory as an argument, images, uniform buffers, constant data. Since 0.5. */
hal_status_t hal_clspv_kernel(const uint32_t *words, size_t count, const char *name, hal_clspv_kernel_t *out_kernel);

/* Returns string number `index` (OpString) of a module, borrowed from the words; NULL past the last one. Thread-safe.
 * Since 0.5. */
const char *hal_spirv_string(const uint32_t *words, size_t count, uint32_t index);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_SPIRV_H_ */
