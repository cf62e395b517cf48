/* grid.h: whether a device can launch so many blocks, at once or in parts (hal_direct_launch). Private to hal. */
#ifndef HAL_SRC_OP_GRID_H_
#define HAL_SRC_OP_GRID_H_

#include "device/device.h"

/* Returns whether that is certain; the usual case needs one comparison. */
static inline int hal_op_grid_is_small(const hal_device_t *device, uint32_t blocks) {
  return blocks <= device->few_blocks;
}

/* Returns HAL_OK for a launch of `blocks` blocks of `block` threads that the device runs. Errors: HAL_UNIMPLEMENTED;
 * the message has `name` and the limit. */
hal_status_t hal_op_grid_check(const hal_device_t *device, const char *name, uint32_t blocks, uint32_t block);

#endif /* HAL_SRC_OP_GRID_H_ */
