/* plugin_kernels.h: the portable kernels compiled ahead of time as host C, for plugins whose device is the host's CPU.
 * A plugin that links libhal_kernels.a serves them through module_load with the dialect "native". */
#ifndef HAL_PLUGIN_KERNELS_H_
#define HAL_PLUGIN_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a launch that one call computes: items (global thread numbers) or groups (block numbers). */
typedef struct hal_host_range_s {
  uint64_t begin, end;
} hal_host_range_t;

/* Computes a part of a launch. `args[i]` is the address of argument i's value, as in hal_arg_t. Calls for disjoint
 * ranges may run at the same time, in any order; the results do not depend on how a launch is divided, bit for bit. */
typedef void (*hal_host_kernel_fn_t)(const hal_host_range_t *range, void *const *args);

enum {
  HAL_HOST_ITEMS = 0, /* a launch is grid * block items, divisible anywhere */
  HAL_HOST_GROUPS = 1 /* a launch is grid groups */
};

typedef struct hal_host_kernel_s { /* a portable kernel that is compiled as host code */
  const char *name;
  hal_host_kernel_fn_t fn;
  uint32_t arg_count;
  uint32_t unit;  /* HAL_HOST_ITEMS or HAL_HOST_GROUPS */
  uint32_t grain; /* smallest number of units for which another thread is worthwhile */
  uint32_t reserved;
} hal_host_kernel_t;

/* Finds a kernel by name; NULL if there is none. Valid until the process ends. Thread-safe. Since 0.1. */
const hal_host_kernel_t *hal_host_kernel_find(const char *name);

/* Returns the number of kernels. Since 0.1. */
size_t hal_host_kernel_count(void);

/* Returns a kernel by its number in the order of names; NULL past the last one. Since 0.1. */
const hal_host_kernel_t *hal_host_kernel_at(size_t index);

/* Returns a line that a device with these kernels should log, or NULL; each line is returned once. The lines report
 * which instructions compute products of bfloat16, why AMX is not used on a processor that has it, and an invalid value
 * of HAL_HOST_ISA. Call it after hal_host_kernel_find. `out_warns`: 1 = a warning, 0 = for information. Valid until the
 * process ends. Thread-safe. Since 0.1. */
const char *hal_host_kernel_note(int32_t *out_warns);

/* Returns the options, separated by spaces, with which a C compiler makes kernels that compute the same results: the
 * floating-point options, and the instruction set in use (HAL_HOST_ISA). Valid until the process ends. Thread-safe.
 * Since 0.2. */
const char *hal_host_kernel_options(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_KERNELS_H_ */
