/* launch.h: everything a launcher may do to a device: launches, copies, scratch memory, error reports of kernels, other
 * operators.
 *
 * A launcher calls no other function of a device. Therefore a launcher in plan mode (HAL_OP_PLANS), where all of this
 * is discarded, returns the verdict of the call: HAL_OK, HAL_UNIMPLEMENTED or the error, from the code that would
 * execute it. */
#ifndef HAL_SRC_OP_LAUNCH_H_
#define HAL_SRC_OP_LAUNCH_H_

#include "kernels/pk_args.h"
#include "kernels/pk_run.h"
#include "op/grid.h"
#include "op/internal.h"

#define HAL_OP_BLOCK 256u           /* threads of a block in item kernels (PK_ITEM) */
#define HAL_OP_GROUP_BLOCK PK_LSIZE /* threads of a block in group kernels (PK_GROUP) */

/* Returns an error for a launch whose number of blocks does not fit in 32 bits; the message has the operator. */
hal_status_t hal_op_too_large(const hal_op_context_t *context, uint64_t units);

/* Completes the message of a failed launch with the operator's name. Returns `status`. */
hal_status_t hal_op_launch_failed(const hal_op_context_t *context, hal_status_t status);

/* Launches that are not small, or not for the direct queue: checks the limits of the device, then queues the launch, or
 * discards it in plan mode. */
hal_status_t hal_op_launch_checked(const hal_op_context_t *context, hal_plugin_kernel_t *kernel,
                                   const hal_launch_t *launch);

/* Queues `blocks` blocks of `block` threads, or discards them. */
static inline hal_status_t hal_op_launch_blocks(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint32_t blocks,
                                                uint32_t block, const hal_arg_t *args, uint32_t arg_count) {
  const hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                               .grid = {blocks, 1, 1},
                               .block = {block, 1, 1},
                               .arg_count = arg_count,
                               .args = args};
  if (HAL_UNLIKELY(context->elsewhere || !hal_op_grid_is_small(context->device, blocks)))
    return hal_op_launch_checked(context, kernel, &launch);
  const hal_status_t status = hal_direct_launch_small(&context->stream->direct, kernel, &launch);
  return HAL_LIKELY(!status) ? HAL_OK : hal_op_launch_failed(context, status);
}

/* Queues an item kernel over `items` items. Zero items: HAL_OK without a launch. */
static inline hal_status_t hal_op_launch_items(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint64_t items,
                                               const hal_arg_t *args, uint32_t arg_count) {
  if (HAL_UNLIKELY(items == 0)) return HAL_OK;
  if (HAL_UNLIKELY(items > (uint64_t)INT32_MAX * HAL_OP_BLOCK)) return hal_op_too_large(context, items);
  return hal_op_launch_blocks(context, kernel, (uint32_t)((items + HAL_OP_BLOCK - 1) / HAL_OP_BLOCK), HAL_OP_BLOCK,
                              args, arg_count);
}

/* Returns the number of items of a kernel over n contiguous elements, the widest of `size` bytes: an item is a run of
 * elements on devices with many threads (kernels/pk_run.h). */
static inline uint64_t hal_op_run_items(const hal_op_context_t *context, uint64_t n, uint32_t size) {
  if (HAL_LIKELY(context->few_loops == 0)) return n;
  const uint64_t length = PK_RUN_LENGTH(size);
  return n / length + (n % length != 0);
}

/* Queues an item kernel over fewer than `few_loops` items of the target, at least one, in its smallest blocks. */
hal_status_t hal_op_launch_few(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint64_t items,
                               const hal_arg_t *args, uint32_t arg_count);

/* Queues a kernel whose items are loops over many elements. On devices with few, wide cores each item is a separate
 * block, so that a few of them use all cores; adjacent threads have no advantage there. */
static inline hal_status_t hal_op_launch_loops(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint64_t items,
                                               const hal_arg_t *args, uint32_t arg_count) {
  if (HAL_UNLIKELY(items == 0)) return HAL_OK;
  if (items < context->few_loops) return hal_op_launch_few(context, kernel, items, args, arg_count);
  if (context->group_threads != 1) return hal_op_launch_items(context, kernel, items, args, arg_count);
  if (HAL_UNLIKELY(items > INT32_MAX)) return hal_op_too_large(context, items);
  return hal_op_launch_blocks(context, kernel, (uint32_t)items, 1, args, arg_count);
}

/* Queues a group kernel over `groups` groups. Zero groups: HAL_OK without a launch. */
static inline hal_status_t hal_op_launch_groups(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint64_t groups,
                                                const hal_arg_t *args, uint32_t arg_count) {
  if (HAL_UNLIKELY(groups == 0)) return HAL_OK;
  if (HAL_UNLIKELY(groups > INT32_MAX)) return hal_op_too_large(context, groups);
  return hal_op_launch_blocks(context, kernel, (uint32_t)groups, context->group_threads, args, arg_count);
}

/* Defines function(context, kernel, units, arguments ...), which queues a kernel over `units` items, loops or groups:
 * `args` is its list of arguments (kernels/pk_args.h). */
#define HAL_OP_LAUNCHER(function, unit, args)                                                                     \
  PK_FN hal_status_t function(hal_op_context_t *hal_context, hal_plugin_kernel_t *hal_kernel, uint64_t hal_units, \
                              args(PK_GIVEN)) {                                                                   \
    const hal_arg_t hal_args[] = {args(PK_ARGUMENT)};                                                             \
    _Static_assert(sizeof hal_args / sizeof *hal_args <= 16, "a kernel has at most 16 arguments");                \
    return hal_op_launch_##unit(hal_context, hal_kernel, hal_units, hal_args,                                     \
                                (uint32_t)(sizeof hal_args / sizeof *hal_args));                                  \
  }
static inline pk_number_t hal_op_number(const hal_op_scalar_t *scalar) {
  return (pk_number_t){&scalar->u, scalar->size};
}

/* Queues a copy of `size` bytes within the device. */
hal_status_t hal_op_queue_copy(hal_op_context_t *context, void *to, const void *from, size_t size);

/* Queues the plugin's own random numbers. Errors: HAL_UNIMPLEMENTED = it has none of this kind, nothing written. */
hal_status_t hal_op_queue_random(hal_op_context_t *context, const hal_random_t *desc);

/* Memory that is valid until the work queued before its release is done. In plan mode `address` is not valid memory. */
typedef struct hal_op_scratch_s {
  hal_block_t *block;
  void *address;
} hal_op_scratch_t;

/* Allocates on the context's stream; at least a byte. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_op_scratch(const hal_op_context_t *context, size_t size, hal_op_scratch_t *out_scratch);

/* Releases it, once; does nothing for an all-zero scratch. */
void hal_op_scratch_release(hal_op_scratch_t *scratch);

/* Returns the address of the stream's error record, for kernels that report invalid values; after their launch, marks
 * that it may be written (device/kernel_error.h). */
hal_status_t hal_op_report_address(const hal_op_context_t *context, void **out_address);
hal_status_t hal_op_report_launched(const hal_op_context_t *context);

/* The arguments that identify the report of such a kernel: the operator, a dimension or argument, and for lazy work the
 * caller's position. */
int64_t hal_op_site(const hal_op_context_t *context, int64_t place);

/* Creates the context of another operator, for its kernels; it launches on the same stream. */
void hal_op_context_of(const hal_op_context_t *context, uint32_t op, hal_op_context_t *out_context);

/* Runs another operator on the context's device and stream: the plugin's own, else the portable one. */
hal_status_t hal_op_run_part(const hal_op_context_t *context, uint32_t op, const hal_value_t *args, uint32_t arg_count,
                             const hal_tensor_t *const *results, uint32_t result_count);

/* Returns the verdict of the portable kernels for a call that is checked but not executed: HAL_OK, HAL_UNIMPLEMENTED or
 * the error that hal_op_run would return. The launcher determines it in plan mode. Queues nothing, allocates no device
 * memory, counts nothing and does not change the call. Depends on shapes, strides, dtypes, addresses and numbers, never
 * on values in memory. */
hal_status_t hal_op_plan(int32_t device, uint32_t op, hal_stream_t *stream, const hal_op_call_t *call);

/* Makes a launcher that calls a device in another way fail to compile. */
#ifdef HAL_IS_LAUNCHER
#pragma GCC poison hal_call_kernel_launch hal_direct_launch hal_direct_launch_small hal_call_memory_copy \
    hal_call_memory_fill hal_call_random_fill
#pragma GCC poison hal_kernel_launch hal_memory_allocate hal_memory_release hal_memory_copy hal_memory_fill hal_op_run
#pragma GCC poison hal_kernel_error_address hal_kernel_error_launched hal_stream_synchronize hal_device_synchronize
#endif

#endif /* HAL_SRC_OP_LAUNCH_H_ */
