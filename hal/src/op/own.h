/* own.h: a plugin's own operators. Private to hal/src/op. */
#ifndef HAL_SRC_OP_OWN_H_
#define HAL_SRC_OP_OWN_H_

#include "device/device.h"

/* What op_find answered; fn is NULL where the plugin has none. */
typedef struct hal_op_own_s {
  hal_op_fn_t fn;
  void *state;
} hal_op_own_t;

/* Asks the plugin of a device. A failure is logged and counts as "none". */
void hal_op_own_find(const hal_device_t *device, const char *name, hal_op_own_t *out_own);

/* Calls the plugin's op, which exists. HAL_UNIMPLEMENTED = it declined; failures name plugin and operator. */
hal_status_t hal_op_own_call(const hal_op_own_t *own, const char *name, const hal_device_t *device,
                             hal_op_call_t *call);

/* Writes a device number into all descriptors of a call. */
void hal_op_set_devices(const hal_op_call_t *call, int32_t device);

#endif /* HAL_SRC_OP_OWN_H_ */
