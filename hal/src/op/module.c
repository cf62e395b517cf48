/* module.c: the portable kernels of a device by operator, dtype and variant, each requested from the provider at its
 * first use. */
#include <stdio.h>

#include "op/table.h"

char hal_op_no_kernel;

#define NO 0xff
/* clang-format off */
const uint8_t hal_op_dtype_slots[32] = {
    0, 1, 2, 3, 4, 8, 5, 6, NO, 10, 11, 7, /* u8 i8 i16 i32 i64 f16 f32 f64, three complex, bool */
    NO, NO, NO, 9, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, 12, 13, 14, NO, NO}; /* bf16; u16 u32 u64 */
/* clang-format on */

/* Requests a kernel; a missing kernel is the address of hal_op_no_kernel. The caller holds the lock. */
static hal_status_t request(const hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                            hal_plugin_kernel_t **out_kernel) {
  const hal_op_info_t *const info = context->info;
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (hal_op_table_dtypes(hal_op_table_of(context->device), info) >> dtype & 1) {
    char name[96];
    snprintf(name, sizeof name, "%s_%s_%s", info->kernel, hal_op_dtype_tokens[hal_op_dtype_slots[dtype]],
             info->variants[variant]);
    status = hal_provider_kernel(&hal_op_table_of(context->device)->provider, info->family, name, out_kernel);
  }
  if (status != HAL_UNIMPLEMENTED) return status;
  *out_kernel = (hal_plugin_kernel_t *)(void *)&hal_op_no_kernel;
  return HAL_OK;
}

hal_status_t hal_op_kernel_find(hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                                hal_plugin_kernel_t **out_kernel) {
  hal_op_table_t *table = hal_op_table_of(context->device);
  const uint32_t slot = hal_op_dtype_slots[dtype];
  _Atomic(hal_plugin_kernel_t *) *handle = &context->handles[slot * context->info->variant_count + variant];
  hal_plugin_kernel_t *kernel = NULL;
  hal_status_t status = HAL_OK;

  hal_mutex_lock_and_defer(&table->lock);
  kernel = atomic_load_explicit(handle, memory_order_relaxed);
  if (!kernel) {
    status = request(context, dtype, variant, &kernel);
    if (!status) atomic_store_explicit(handle, kernel, memory_order_release);
  }
  hal_mutex_unlock_and_run(&table->lock);
  if (status) return status;
  if ((void *)kernel == (void *)&hal_op_no_kernel) return HAL_UNIMPLEMENTED;
  *out_kernel = kernel;
  return HAL_OK;
}
