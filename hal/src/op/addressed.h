/* addressed.h: a call whose tensors have the implementation's number of the device. The caller's descriptors may be
 * constants, and other threads may read them at the same time: they are never written. */
#ifndef HAL_SRC_OP_ADDRESSED_H_
#define HAL_SRC_OP_ADDRESSED_H_

#include <stdalign.h>

#include "hal/plugin.h"

enum { HAL_OP_ADDRESSED_ROOM = 1536 }; /* bytes: a call with up to 20 tensors needs no heap memory */

typedef struct hal_op_addressed_s {
  hal_op_call_t call;
  void *heap; /* NULL: the caller's buffer was large enough */
  alignas(16) unsigned char room[HAL_OP_ADDRESSED_ROOM];
} hal_op_addressed_t;

/* Returns a call whose tensors have the device's number in `*out_call`: the caller's call if they already have it,
 * otherwise a copy in the buffer. Released by hal_op_addressed_release. Errors: HAL_RESOURCE_EXHAUSTED; then nothing
 * needs to be released. */
hal_status_t hal_op_address(const hal_op_call_t *call, int32_t device, hal_op_addressed_t *room,
                            const hal_op_call_t **out_call);
void hal_op_addressed_release(hal_op_addressed_t *room);

#endif /* HAL_SRC_OP_ADDRESSED_H_ */
