/* copy.h: the checks of all copies. Private to hal/src/memory. `call` is the public function, for messages. */
#ifndef HAL_SRC_MEMORY_COPY_H_
#define HAL_SRC_MEMORY_COPY_H_

#include "device/device.h"

/* Both sides of a copy: NULL = the host. `own` is the device whose current stream is used: the destination's, else the
 * source's. */
typedef struct hal_copy_sides_s {
  hal_device_t *to, *from, *own;
} hal_copy_sides_t;

/* Finds the devices. Errors: HAL_OUT_OF_RANGE; HAL_INVALID_ARGUMENT = both sides are the host. */
hal_status_t hal_copy_sides(const char *call, int32_t dst_device, int32_t src_device, hal_copy_sides_t *out_sides);

/* Returns the plugin's ordinal of a side. */
static inline int32_t hal_copy_ordinal(const hal_device_t *side) { return side ? side->ordinal : HAL_HOST; }

/* Returns whether the sides are devices of two plugins, neither of which knows the other's memory. */
static inline int hal_copy_is_foreign(const hal_copy_sides_t *sides) {
  return sides->to && sides->from && sides->to->plugin != sides->from->plugin;
}

/* Checks that the stream is of one of the sides. Errors: HAL_INVALID_ARGUMENT. */
hal_status_t hal_copy_check_stream(const char *call, const hal_stream_t *stream, int32_t dst_device,
                                   int32_t src_device);

/* Also checks that addresses are not NULL and ranges do not overlap. */
hal_status_t hal_copy_check(const char *call, const hal_stream_t *stream, const hal_copy_t *copy);

#endif /* HAL_SRC_MEMORY_COPY_H_ */
