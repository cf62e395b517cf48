/* addressed.h: a call whose tensors name the device by the callee's number of it. The caller's descriptors may be constants, and
 * other threads may read them at the same time: they are never written. */
#ifndef HAL_SRC_OP_ADDRESSED_H_
#define HAL_SRC_OP_ADDRESSED_H_

#include <stdalign.h>

#include "hal/plugin.h"

enum { HAL_OP_ADDRESSED_ROOM = 1536 }; /* bytes: a call of up to 20 tensors needs no memory of the heap */

typedef struct hal_op_addressed_s {
  hal_op_call_t call;
  void *heap; /* NULL: `room` was enough */
  alignas(16) unsigned char room[HAL_OP_ADDRESSED_ROOM];
} hal_op_addressed_t;

/* Returns a call whose tensors name the device in `*out_call`: the caller's own if they do already, otherwise a copy in
 * `room`. Released by hal_op_addressed_release. Errors: HAL_RESOURCE_EXHAUSTED; then nothing needs to be released. */
hal_status_t hal_op_address(const hal_op_call_t *call, int32_t device, hal_op_addressed_t *room,
                            const hal_op_call_t **out_call);
void hal_op_addressed_release(hal_op_addressed_t *room);

#endif /* HAL_SRC_OP_ADDRESSED_H_ */
