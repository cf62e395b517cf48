/* hooks.h: functions of higher components that a device calls. hal/src/components.c defines the table. Private to hal/src. */
#ifndef HAL_SRC_DEVICE_HOOKS_H_
#define HAL_SRC_DEVICE_HOOKS_H_

#include "device/device.h"

typedef struct hal_device_hooks_s {
  /* Makes what the device owns of higher components, all or nothing; under device->lock, when its default stream is there. */
  hal_status_t (*build)(hal_device_t *device);
  /* Waits for what queued work still uses of the memory that was released, and ends it. */
  void (*drain)(hal_device_t *device);
  /* Ends what `build` has made; memory that somebody still holds can be released afterwards. */
  void (*close)(hal_device_t *device);
  /* Frees what the device's work has finished with. */
  void (*poll)(hal_device_t *device);
  /* The name of an operator, that in errors, and that of one of its arguments; NULL when there is none. */
  const char *(*op_name)(uint32_t op);
  const char *(*op_error_name)(uint32_t op);
  const char *(*op_argument)(uint32_t op, uint32_t argument);
  /* Writes the names of the operators that launch a portable kernel, "mm, bmm"; nothing when there is none. */
  void (*ops_of_kernel)(const char *kernel, char *text, size_t size);
} hal_device_hooks_t;
extern const hal_device_hooks_t hal_device_hooks;

#endif /* HAL_SRC_DEVICE_HOOKS_H_ */
