/* kernel.h: modules and kernels of one device, for programs that bring their own kernels. The HAL loads and caches the
 * operators' portable kernels (op.h). */
#ifndef HAL_KERNEL_H_
#define HAL_KERNEL_H_

#include "hal/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_module_s hal_module_t;
typedef struct hal_kernel_s hal_kernel_t;

/* Loads or compiles a module for a device; `desc` is borrowed. Unloaded by hal_module_unload. Errors: HAL_UNIMPLEMENTED
 * (the plugin accepts no modules, or not this dialect), HAL_INVALID_ARGUMENT with the compiler's log. Since 0.1. */
HAL_API hal_status_t hal_module_load(int32_t device, const hal_module_desc_t *desc, hal_module_t **out_module);

/* Waits for the device, then unloads the module; NULL is allowed. Since 0.1. */
HAL_API void hal_module_unload(hal_module_t *module);

/* Sets the name of a module; otherwise as hal_stream_set_name. Since 0.4. */
HAL_API hal_status_t hal_module_set_name(hal_module_t *module, const char *name);

/* Finds a kernel of a module; it is valid until the module is unloaded. Errors: HAL_NOT_FOUND, with the name. Since
 * 0.1. */
HAL_API hal_status_t hal_kernel_get(hal_module_t *module, const char *name, hal_kernel_t **out_kernel);

/* Returns the kernel `name` of `text`, which is written in the portable dialect: one text for all devices that compile
 * source. The HAL prepends the dialect itself (hal/kernels/pk.h and the headers that it includes: mathematics,
 * conversions, random numbers, errors). The text contains one PK_KERNEL(name, ARGS), whose code begins with
 * PK_PROLOGUE(ARGS). The same name and text return the same kernel. It is compiled once in a process, unless the disk
 * cache has it, and counted in hal_kernel_stats. Both texts are borrowed; the kernel is valid until its device is
 * closed. Any thread; others that need a new kernel of the device wait. A device that has its own kernels in "native"
 * accepts "c" for this: the host's C compiler compiles the kernel, again in each process. Errors: HAL_UNIMPLEMENTED
 * (the device accepts none of "opencl-c", "cuda-c" and "c", or there is no C compiler), HAL_INVALID_ARGUMENT with the
 * compiler's log, HAL_NOT_FOUND (the text does not contain the kernel). Since 0.2. */
HAL_API hal_status_t hal_kernel_compile(int32_t device, const char *name, const char *text, hal_kernel_t **out_kernel);

/* Returns the record, in device memory, in which a kernel on this stream (NULL: current) reports an invalid value, such
 * as an index out of range (PK_REPORT of hal/kernels/pk_error.h, an argument PK_GLOBAL pk_error_t *). It is valid until
 * the device is closed. Errors: HAL_RESOURCE_EXHAUSTED. Since 0.2. */
HAL_API hal_status_t hal_kernel_report_address(int32_t device, hal_stream_t *stream, void **out_address);

/* Checks the record after the launch of a kernel that uses it. The stream's next synchronization reads the record and
 * returns HAL_OUT_OF_RANGE or HAL_INVALID_ARGUMENT with its message, once. If streams are not asynchronous, this call
 * reads it and returns the error. Since 0.2. */
HAL_API hal_status_t hal_kernel_report_launched(int32_t device, hal_stream_t *stream);

/* Returns the compiled module as bytes that hal_module_load accepts in the dialect "binary", on the same kind of device
 * with the same driver. `*out_size` is their number; they are written to `data` only if `capacity` is at least that.
 * Errors: HAL_UNIMPLEMENTED = the plugin does not export modules. Since 0.2. */
HAL_API hal_status_t hal_module_export(hal_module_t *module, void *data, size_t capacity, size_t *out_size);

/* Returns the resources of a kernel, and how many of its blocks fit on a compute unit if they have `block_threads`
 * threads and `shared_bytes` at launch. If the plugin does not report them, the limits are those of the device, and a
 * block that fits runs alone on its unit. The caller sets `out_info->struct_size`. Errors: HAL_INVALID_ARGUMENT = no
 * threads. Since 0.2. */
HAL_API hal_status_t hal_kernel_info(hal_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                     hal_kernel_info_t *out_info);

/* Queues a kernel on a stream of its device (NULL: current). Arguments are copied before the call returns. Errors:
 * HAL_INVALID_ARGUMENT (geometry; an invalid argument; a stream of another device); HAL_INCOMPATIBLE = struct_size is
 * too small; the plugin's own. Since 0.1. */
HAL_API hal_status_t hal_kernel_launch(hal_kernel_t *kernel, hal_stream_t *stream, const hal_launch_t *launch);

/* Queues a kernel of the portable dialect over `items` items (PK_ITEM). 0 items: returns HAL_OK without a launch.
 * Errors: HAL_OUT_OF_RANGE = more items than fit in 2^31 - 1 blocks. Since 0.1. */
HAL_API hal_status_t hal_kernel_launch_items(hal_kernel_t *kernel, hal_stream_t *stream, uint64_t items,
                                             const hal_arg_t *args, uint32_t arg_count);

/* Queues a kernel of the portable dialect over `groups` groups (PK_GROUP); otherwise as hal_kernel_launch_items.
 * Errors: HAL_OUT_OF_RANGE = more than 2^31 - 1 groups. Since 0.1. */
HAL_API hal_status_t hal_kernel_launch_groups(hal_kernel_t *kernel, hal_stream_t *stream, uint64_t groups,
                                              const hal_arg_t *args, uint32_t arg_count);

/* Statistics of the portable kernels of a device in this process, over all threads. */
typedef struct hal_kernel_stats_s {
  size_t struct_size;
  uint64_t compiled; /* kernels compiled from source */
  uint64_t loaded;   /* kernels found compiled in the disk cache */
  /* kernels that the device's compiler failed to compile: their operators run on the CPU fallback */
  uint64_t refused;
  uint64_t compile_ns; /* time in the compiler */
  const char *dialect; /* of the kernels, "native", "opencl-c" or "cuda-c"; "": the device accepts none */
  const char *cache;   /* the folder on disk; "": none. These texts are valid until the device is closed */
  uint64_t packed;     /* kernels found in packs, files that were compiled ahead of time */
  const char *pack;    /* the first of the packs for the device; "": none */
} hal_kernel_stats_t;

/* Returns the statistics of a device's portable kernels. The caller sets `out_stats->struct_size`. Since 0.2. */
HAL_API hal_status_t hal_kernel_stats(int32_t device, hal_kernel_stats_t *out_stats);

#ifdef __cplusplus
}
#endif
#endif /* HAL_KERNEL_H_ */
