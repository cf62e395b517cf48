/* parts.c: launches of more blocks than the device accepts at once, which are queued in parts. */
#include "plugin/call.h"
#include "queue/queue.h"

hal_status_t hal_direct_launch_parts(const hal_direct_t *direct, hal_plugin_kernel_t *kernel,
                                     const hal_launch_t *launch) {
  hal_launch_attribute_t first = {.kind = HAL_LAUNCH_FIRST_BLOCK, .required = 1};
  hal_launch_t part = *launch;
  part.struct_size = HAL_STRUCT_SIZE(hal_launch_t, attribute_count);
  part.attributes = &first;
  part.attribute_count = 1;
  part.reserved = 0;
  for (uint32_t end = launch->grid[0]; end; end = first.x) { /* the last part first, because it may be declined */
    first.x = (end - 1) / direct->most_blocks * direct->most_blocks;
    part.grid[0] = end - first.x;
    if (!first.x) part.attributes = NULL, part.attribute_count = 0;
    const hal_status_t status = hal_call_kernel_launch(direct->plugin, kernel, direct->handle, &part);
    if (status) return status == HAL_UNIMPLEMENTED && end != launch->grid[0] ? HAL_INTERNAL : status;
  }
  return HAL_OK;
}
