/* visible.h: which devices of a plugin the process uses, by its environment. Private to hal. */
#ifndef HAL_SRC_VISIBLE_H_
#define HAL_SRC_VISIBLE_H_

#include <stdint.h>

#include "hal/status.h"

/* Reads <NAME>_VISIBLE_DEVICES, or else HAL_VISIBLE_DEVICES: numbers below `*count`, separated by commas. Writes at
 * most `most` of them to `ordinals`, and their number to `*count`. Without these variables both are unchanged. Errors:
 * HAL_INVALID_ARGUMENT for an entry that is not a number or is listed twice, and for more than `most`;
 * HAL_OUT_OF_RANGE; HAL_UNAVAILABLE for an empty list. */
hal_status_t hal_visible_devices(const char *name, int32_t most, int32_t *ordinals, int32_t *count);

#endif /* HAL_SRC_VISIBLE_H_ */
