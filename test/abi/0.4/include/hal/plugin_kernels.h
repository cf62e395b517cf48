/* plugin_kernels.h: the portable kernels compiled ahead of time as host C, for plugins whose device is the host's CPU. A
 * plugin that links libhal_kernels.a serves them through module_load with the dialect "native". */
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

/* Computes a part of a launch. `args[i]` is the address of argument i's value, as in hal_arg_t. Calls for disjoint ranges
 * may run at the same time, in any order, and give the same bits however a launch is divided. */
typedef void (*hal_host_kernel_fn_t)(const hal_host_range_t *range, void *const *args);

enum {
  HAL_HOST_ITEMS = 0, /* a launch is grid * block items, divisible anywhere */
  HAL_HOST_GROUPS = 1 /* a launch is grid groups */
};

typedef struct hal_host_kernel_s {
  const char *name;
  hal_host_kernel_fn_t fn;
  uint32_t arg_count;
  uint32_t unit;  /* HAL_HOST_ITEMS or HAL_HOST_GROUPS */
  uint32_t grain; /* fewest units worth a thread of their own */
  uint32_t reserved;
} hal_host_kernel_t;

/* Finds a kernel by name, NULL when there is none. Lives as long as the process. Thread-safe. Since 0.1. */
const hal_host_kernel_t *hal_host_kernel_find(const char *name);

/* Counts the kernels. Since 0.1. */
size_t hal_host_kernel_count(void);

/* Gives a kernel by its number in the order of names, NULL past the end. Since 0.1. */
const hal_host_kernel_t *hal_host_kernel_at(size_t index);

/* Gives a line that a device which serves these kernels should log, once each, else NULL: which instructions products of bfloat16 are made
 * of, why AMX is not used where the processor has it, a value of HAL_HOST_ISA that is none. To be asked after hal_host_kernel_find.
 * `out_warns`: 1 = a warning, 0 = for information. Lives as long as the process. Thread-safe. Since 0.1. */
const char *hal_host_kernel_note(int32_t *out_warns);

/* Gives the options, with blanks between them, with which a C compiler makes kernels that compute as these do: what it may do with floating point,
 * and the instruction set in use (HAL_HOST_ISA). Lives as long as the process. Thread-safe. Since 0.2. */
const char *hal_host_kernel_options(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_KERNELS_H_ */
