/* entry.c: the one exported function of a plugin. Compiled with each plugin (not part of the archive), so that the
 * build flags are the plugin's. It negotiates by size: the smaller of the host's and the plugin's table is used. */
#include <string.h>

#include "build_flags.h"
#include "hal/plugin.h"

/* The linker defines these two for any section whose name is a C identifier. The archive's weak defaults are in this
 * section, so the address distinguishes a default from an override. (Comparing function pointers does not: compilers
 * fold that.) Weak: the section is missing if every op is overridden. Hidden: another plugin's pair must not be
 * used. */
extern const char __start_hal_dflt[] __attribute__((weak, visibility("hidden")));
extern const char __stop_hal_dflt[] __attribute__((weak, visibility("hidden")));

#define FIRST_SLOT offsetof(hal_plugin_api_t, info)
#define SLOT_SIZE sizeof(void (*)(void))
#define SLOT_COUNT ((sizeof(hal_plugin_api_t) - FIRST_SLOT) / SLOT_SIZE)

_Static_assert(FIRST_SLOT == 40, "ABI: first slot");
_Static_assert(sizeof(hal_tensor_t) == 48, "ABI: hal_tensor_t");
_Static_assert(sizeof(hal_value_t) == 16, "ABI: hal_value_t");
_Static_assert(sizeof(hal_arg_t) == 16, "ABI: hal_arg_t");
_Static_assert(HAL_STRUCT_SIZE(hal_plugin_info_t, flags) == 36, "ABI: hal_plugin_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_device_info_t, architecture) == 256, "ABI: hal_device_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_device_info_t, firmware_version) == 400, "ABI: hal_device_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_device_info_t, max_binding) == 432, "ABI: hal_device_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_pointer_info_t, kind) == 32, "ABI: hal_pointer_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_copy_2d_t, src_device) == 64, "ABI: hal_copy_2d_t");
_Static_assert(sizeof(hal_copy_t) == 32, "ABI: hal_copy_t");
_Static_assert(HAL_STRUCT_SIZE(hal_stream_desc_t, queue) == 24, "ABI: hal_stream_desc_t");
_Static_assert(HAL_STRUCT_SIZE(hal_module_desc_t, cancelled) == 48, "ABI: hal_module_desc_t");
_Static_assert(sizeof(hal_launch_attribute_t) == 20, "ABI: hal_launch_attribute_t");
_Static_assert(sizeof(hal_memory_handle_t) == 256, "ABI: hal_memory_handle_t");
_Static_assert(HAL_STRUCT_SIZE(hal_launch_t, reserved) == 64, "ABI: hal_launch_t");
_Static_assert(HAL_STRUCT_SIZE(hal_op_call_t, host) == 80, "ABI: hal_op_call_t");
_Static_assert(HAL_STRUCT_SIZE(hal_op_own_t, query) == 56, "ABI: hal_op_own_t");
_Static_assert(sizeof(hal_ir_use_t) == 32, "ABI: hal_ir_use_t");
_Static_assert(sizeof(hal_ir_buffer_t) == 24, "ABI: hal_ir_buffer_t");
_Static_assert(HAL_STRUCT_SIZE(hal_ir_node_t, writes) == 56, "ABI: hal_ir_node_t");
_Static_assert(HAL_STRUCT_SIZE(hal_ir_t, reserved) == 48, "ABI: hal_ir_t");
_Static_assert(HAL_STRUCT_SIZE(hal_ir_run_t, plugin_stream) == 40, "ABI: hal_ir_run_t");
_Static_assert(HAL_STRUCT_SIZE(hal_compiler_t, again) == 80, "ABI: hal_compiler_t");
_Static_assert(HAL_STRUCT_SIZE(hal_random_t, random_state) == 80, "ABI: hal_random_t");
_Static_assert(HAL_STRUCT_SIZE(hal_kernel_info_t, blocks_per_unit) == 40, "ABI: hal_kernel_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_stream_error_t, message) == 440, "ABI: hal_stream_error_t");
_Static_assert(HAL_STRUCT_SIZE(hal_device_event_t, message) == 32, "ABI: hal_device_event_t");
_Static_assert(HAL_STRUCT_SIZE(hal_device_process_t, memory_used) == 24, "ABI: hal_device_process_t");
_Static_assert(HAL_STRUCT_SIZE(hal_profile_record_t, direction) == 64, "ABI: hal_profile_record_t");
_Static_assert(HAL_STRUCT_SIZE(hal_collective_t, fingerprint) == 112, "ABI: hal_collective_t");
_Static_assert(HAL_STRUCT_SIZE(hal_comm_info_t, name) == 200, "ABI: hal_comm_info_t");
_Static_assert(HAL_STRUCT_SIZE(hal_comm_desc_t, name) == 56, "ABI: hal_comm_desc_t");
_Static_assert(HAL_STRUCT_SIZE(hal_comm_state_t, message) == 312, "ABI: hal_comm_state_t");
_Static_assert(sizeof(hal_comm_call_t) == 24, "ABI: hal_comm_call_t");
_Static_assert(HAL_STRUCT_SIZE(hal_host_api_t, extensions) == 72, "ABI: hal_host_api_t");

/* written at the first entry; the host reads it until the process ends */
static uint64_t provided[(SLOT_COUNT + 63) / 64];

static const hal_plugin_api_t own_table = {
    .struct_size = sizeof(hal_plugin_api_t),
    .major = HAL_ABI_MAJOR,
    .minor = HAL_ABI_MINOR,
    .build_flags = HAL_BUILD_FLAGS,
#define HAL_OP(since, kind, group, need, name, params, args) .name = hal_plugin_##name,
#include "hal/plugin_ops.def"
#undef HAL_OP
};

hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
  if (!host || !api || api->struct_size < FIRST_SLOT) return HAL_INCOMPATIBLE;
  if (host->struct_size < HAL_STRUCT_SIZE(hal_host_api_t, minor)) return HAL_INCOMPATIBLE;
  if (host->major != HAL_ABI_MAJOR || host->minor < HAL_ABI_MINOR_OLDEST) {
    api->major = HAL_ABI_MAJOR; /* for the host's message */
    api->minor = HAL_ABI_MINOR;
    return HAL_INCOMPATIBLE;
  }
  if (host->struct_size < HAL_STRUCT_SIZE(hal_host_api_t, extensions))
    return HAL_INCOMPATIBLE; /* all hosts from 0.3 on */

  hal_plugin_api_t table = own_table;
  size_t size = api->struct_size < sizeof table ? api->struct_size : sizeof table;
  size -= (size - FIRST_SLOT) % SLOT_SIZE; /* whole slots only: half a pointer must never be written */

  memset(provided, 0, sizeof provided);
  for (size_t slot = 0; slot < (size - FIRST_SLOT) / SLOT_SIZE; slot++) { /* only slots that the host will see */
    uintptr_t address;
    memcpy(&address, (const char *)&table + FIRST_SLOT + slot * SLOT_SIZE, sizeof address);
    if (address < (uintptr_t)__start_hal_dflt || address >= (uintptr_t)__stop_hal_dflt)
      provided[slot / 64] |= UINT64_C(1) << (slot % 64);
  }

  table.struct_size = size;
  table.provided = provided;
  table.provided_words = sizeof provided / sizeof provided[0];
  memcpy(api, &table, size);
  hal_host = host;
  return HAL_OK;
}
