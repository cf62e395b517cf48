/* launch.c: launches and other calls of launchers, which plan mode discards. */
#include "op/launch.h"

#include <string.h>

#include "device/kernel_error.h"

hal_status_t hal_op_launch_failed(const hal_op_context_t *context, hal_status_t status) {
  if (status == HAL_UNIMPLEMENTED) return status;
  hal_error_plugin(context->device->plugin, HAL_SLOT_kernel_launch, status);
  return hal_error_prefix(status, "%s: ", hal_op_error_name(context->called));
}

static inline int plans(const hal_op_context_t *context) { return HAL_UNLIKELY(context->elsewhere == HAL_OP_PLANS); }

/* Returns whether the device accepts the addresses of a launch (binding_alignment of device_info). */
static hal_status_t check_addresses(const hal_op_context_t *context, const hal_launch_t *launch) {
  const uint32_t alignment = context->device->info.binding_alignment;
  for (uint32_t i = 0; i < launch->arg_count && alignment > 1; i++) {
    uintptr_t address;
    if (launch->args[i].kind != HAL_ARG_POINTER) continue;
    memcpy(&address, launch->args[i].value, sizeof address);
    if (address % alignment)
      return hal_error_set(
          HAL_UNIMPLEMENTED, "%s: an operand begins %u bytes after a multiple of %u (binding_alignment of device %s)",
          hal_op_error_name(context->called), (unsigned)(address % alignment), alignment, context->device->label);
  }
  return HAL_OK;
}

hal_status_t hal_op_launch_checked(const hal_op_context_t *context, hal_plugin_kernel_t *kernel,
                                   const hal_launch_t *launch) {
  const uint32_t blocks = launch->grid[0];
  if (HAL_UNLIKELY(!hal_op_grid_is_small(context->device, blocks)))
    HAL_RETURN_IF_ERROR(
        hal_op_grid_check(context->device, hal_op_error_name(context->called), blocks, launch->block[0]));
  if (plans(context)) return check_addresses(context, launch);
  if (context->elsewhere) return context->queue->calls->launch(context->queue, context->recorded, kernel, launch);
  const hal_status_t status = hal_direct_launch(&context->stream->direct, kernel, launch);
  return status ? hal_op_launch_failed(context, status) : HAL_OK;
}

hal_status_t hal_op_launch_few(hal_op_context_t *context, hal_plugin_kernel_t *kernel, uint64_t items,
                               const hal_arg_t *args, uint32_t arg_count) {
  const uint32_t block = hal_op_target(context)->least_block;
  return hal_op_launch_blocks(context, kernel, (uint32_t)((items + block - 1) / block), block, args, arg_count);
}

hal_status_t hal_op_queue_copy(hal_op_context_t *context, void *to, const void *from, size_t size) {
  if (plans(context)) return HAL_OK;
  const int32_t ordinal = context->device->ordinal;
  const hal_status_t status = context->queue->calls->copy(context->queue, to, ordinal, from, ordinal, size);
  return HAL_LIKELY(status != HAL_UNIMPLEMENTED)
             ? status
             : hal_error_plugin(context->device->plugin, HAL_SLOT_memory_copy, status);
}

hal_status_t hal_op_queue_random(hal_op_context_t *context, const hal_random_t *desc) {
  if (plans(context)) return HAL_OK;
  const hal_status_t status = context->queue->calls->random(context->queue, desc);
  if (!status || status == HAL_UNIMPLEMENTED) return status;
  return hal_error_prefix(status, "%s: ", hal_op_error_name(context->called));
}

/* The value of addresses in plan mode: aligned, not NULL, never dereferenced. */
static _Alignas(512) char no_memory[1];

hal_status_t hal_op_scratch(const hal_op_context_t *context, size_t size, hal_op_scratch_t *out_scratch) {
  const uint64_t most = context->device->info.max_binding;
  *out_scratch = (hal_op_scratch_t){.address = no_memory};
  if (HAL_UNLIKELY(most && size > most))
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "%s: scratch memory of %zu bytes, but kernels of device %s access at most %llu from an "
                         "address (max_binding in device_info)",
                         hal_op_error_name(context->called), size, context->device->label, (unsigned long long)most);
  if (plans(context)) return HAL_OK;
  HAL_RETURN_IF_ERROR(
      hal_memory_allocate(context->device->index, context->stream, size ? size : 1, &out_scratch->block));
  out_scratch->address = hal_memory_block_address(out_scratch->block);
  return HAL_OK;
}

void hal_op_scratch_release(hal_op_scratch_t *scratch) {
  hal_memory_release(scratch->block);
  *scratch = (hal_op_scratch_t){.block = NULL};
}

hal_status_t hal_op_report_address(const hal_op_context_t *context, void **out_address) {
  *out_address = no_memory;
  return plans(context) ? HAL_OK : hal_kernel_error_address(context->stream, out_address);
}

hal_status_t hal_op_report_launched(const hal_op_context_t *context) {
  if (plans(context)) return HAL_OK;
  return context->queue->calls->reports(context->queue) ? HAL_OK : hal_kernel_error_launched(context->stream);
}

int64_t hal_op_site(const hal_op_context_t *context, int64_t place) {
  const uint64_t origin = context->recorded ? context->recorded->origin : 0;
  return (int64_t)((origin <= INT32_MAX ? origin << 32 : 0) | (uint64_t)context->called << 8 | (uint64_t)place);
}

/* Returns the verdict of a part: portable kernels, or the plugin's own op if its verdict is binding. */
static hal_status_t plan_part(const hal_op_context_t *context, uint32_t op, hal_op_call_t *call) {
  int32_t verdict = HAL_VERDICT_NONE;
  const hal_status_t status = hal_op_plan(context->device->index, op, context->stream, call);
  if (status != HAL_UNIMPLEMENTED) return status;
  HAL_RETURN_IF_ERROR(hal_op_query(context->device->index, op, call, &verdict));
  return verdict == HAL_VERDICT_OWN ? HAL_OK : HAL_UNIMPLEMENTED;
}

hal_status_t hal_op_run_part(const hal_op_context_t *context, uint32_t op, const hal_value_t *args, uint32_t arg_count,
                             const hal_tensor_t *const *results, uint32_t result_count) {
  hal_op_call_t call = {.struct_size = sizeof call,
                        .arg_count = arg_count,
                        .result_count = result_count,
                        .args = args,
                        .results = results};
  if (plans(context)) return plan_part(context, op, &call);
  return hal_op_run(context->device->index, op, context->stream, &call);
}
