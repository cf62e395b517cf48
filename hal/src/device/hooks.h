/* hooks.h: functions of higher components that a device calls. hal/src/components.c defines the table. Private to
 * hal/src. */
#ifndef HAL_SRC_DEVICE_HOOKS_H_
#define HAL_SRC_DEVICE_HOOKS_H_

#include "device/device.h"

typedef struct hal_device_hooks_s {
  hal_slot_calls_t slots[HAL_COMPONENTS];
  /* Waits until queued work no longer uses memory that was released, and frees it. */
  void (*drain)(hal_device_t *device);
  /* Frees what is cached for later use: memory, and events of shared memory. */
  void (*trim)(hal_device_t *device);
  /* Returns the number of blocks of device memory and of page-locked memory that were not released, or that queued work
   * uses. */
  uint64_t (*blocks)(hal_device_t *device);
  /* Frees released memory that queued work no longer uses. */
  void (*poll)(hal_device_t *device);
  /* Return the name of an operator, its name in errors, and the name of one of its arguments; NULL if there is none. */
  const char *(*op_name)(uint32_t op);
  const char *(*op_error_name)(uint32_t op);
  const char *(*op_argument)(uint32_t op, uint32_t argument);
  /* Writes the names of the operators that launch a portable kernel, "mm, bmm"; writes nothing if there are none. */
  void (*ops_of_kernel)(const char *kernel, char *text, size_t size);
} hal_device_hooks_t;
extern const hal_device_hooks_t hal_device_hooks;

#endif /* HAL_SRC_DEVICE_HOOKS_H_ */
