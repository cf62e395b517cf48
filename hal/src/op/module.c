/* module.c: the portable kernels of a device: modules by family, kernels by operator, dtype and variant, each asked for at
 * its first use. */
#include <stdio.h>
#include <string.h>

#include "op/table.h"

char hal_op_no_kernel;

#define NO 0xff
/* clang-format off */
const uint8_t hal_op_dtype_slots[32] = {
    0, 1, 2, 3, 4, 8, 5, 6, NO, 10, 11, 7, /* u8 i8 i16 i32 i64 f16 f32 f64, three complex, bool */
    NO, NO, NO, 9, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, 12, 13, 14, NO, NO}; /* bf16; u16 u32 u64 */
/* clang-format on */

void hal_op_modules_unload(hal_op_table_t *table) {
  for (uint32_t family = 0; family < HAL_OP_FAMILY_COUNT; family++)
    if (table->modules[family]) hal_call_module_unload(table->device->plugin, table->modules[family]);
}

/* Gives the family's module, loaded at the first call; the lock is held. */
static hal_status_t module_of(hal_op_table_t *table, uint32_t family, hal_plugin_module_t **out_module) {
  if (table->module_missing[family]) return HAL_UNIMPLEMENTED;
  if (!table->modules[family]) {
    const char *name = hal_op_families[family];
    const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                    .dialect = "native",
                                    .options = "",
                                    .data = name,
                                    .size = strlen(name)};
    const hal_status_t status =
        hal_call_module_load(table->device->plugin, table->device->ordinal, &desc, &table->modules[family]);
    if (status == HAL_UNIMPLEMENTED || status == HAL_NOT_FOUND) {
      table->module_missing[family] = 1;
      return HAL_UNIMPLEMENTED;
    }
    if (status) {
      hal_error_plugin(table->device->plugin, HAL_SLOT_module_load, status);
      return hal_error_prefix(status, "while loading the portable kernels of the family \"%s\": ", name);
    }
  }
  *out_module = table->modules[family];
  return HAL_OK;
}

/* Asks for a kernel; one that the device lacks is the address of hal_op_no_kernel. The lock is held. */
static hal_status_t ask(const hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                        hal_plugin_kernel_t **out_kernel) {
  const hal_op_info_t *info = context->info;
  hal_plugin_t *const plugin = context->device->plugin;
  hal_plugin_module_t *module = NULL;
  hal_status_t status =
      info->dtypes >> dtype & 1 ? module_of(context->device->ops, info->family, &module) : HAL_UNIMPLEMENTED;
  if (!status) {
    char name[96];
    snprintf(name, sizeof name, "%s_%s_%s", info->kernel, hal_op_dtype_tokens[hal_op_dtype_slots[dtype]],
             info->variants[variant]);
    status = hal_call_kernel_get(plugin, module, name, out_kernel);
    if (status && status != HAL_NOT_FOUND) {
      hal_error_plugin(plugin, HAL_SLOT_kernel_get, status);
      hal_error_prefix(status, "while looking for the kernel \"%s\": ", name);
    }
  }
  if (status != HAL_UNIMPLEMENTED && status != HAL_NOT_FOUND) return status;
  *out_kernel = (hal_plugin_kernel_t *)(void *)&hal_op_no_kernel;
  return HAL_OK;
}

hal_status_t hal_op_kernel_find(hal_op_context_t *context, hal_dtype_t dtype, uint32_t variant,
                                hal_plugin_kernel_t **out_kernel) {
  hal_op_table_t *table = context->device->ops;
  const uint32_t slot = hal_op_dtype_slots[dtype];
  _Atomic(hal_plugin_kernel_t *) *handle = &context->handles[slot * context->info->variant_count + variant];
  hal_plugin_kernel_t *kernel = NULL;
  hal_status_t status = HAL_OK;

  pthread_mutex_lock(&table->lock);
  kernel = atomic_load_explicit(handle, memory_order_relaxed);
  if (!kernel) {
    status = ask(context, dtype, variant, &kernel);
    if (!status) atomic_store_explicit(handle, kernel, memory_order_release);
  }
  pthread_mutex_unlock(&table->lock);
  if (status) return status;
  if ((void *)kernel == (void *)&hal_op_no_kernel) return HAL_UNIMPLEMENTED;
  *out_kernel = kernel;
  return HAL_OK;
}
