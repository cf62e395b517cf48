/* slot.h: data of a higher component for a device, a stream or an operator. Private to hal/src.
 *
 * A lower struct has one slot per component, and does not know the type of the data. hal/src/components.c defines how
 * the slots of a device are created and destroyed (hal_device_hooks.slots). The rule for all of them:
 *
 * - Creation: once, under device->lock, when the device becomes ready, in the order of the components; or, for a slot
 *   that is `on_demand`, at the first hal_device_slot_make. `create` may allocate memory and call the plugin. It takes
 *   no lock of a stream and creates no other slot. If it fails, the slots before it are destroyed and the device does
 *   not become ready.
 * - Access: without a lock. A slot of a ready device does not change until the device is closed. An on-demand slot is
 *   read with acquire order. The data has its own lock.
 * - Destruction: when the device is closed, in the reverse order, without device->lock: all streams are drained. Data
 *   that the application may still reach (blocks, recordings) is only closed and remains in its slot. In the child of a
 *   fork nothing is destroyed. When the device is reset, all of it is destroyed, because the application can reach none
 *   of it.
 *
 * A slot of a stream begins empty and is exchanged without a lock (hal_queue_park). It remains until the process ends,
 * as streams do. A slot of an operator is a number of one component: hal_op_counter_t. */
#ifndef HAL_SRC_DEVICE_SLOT_H_
#define HAL_SRC_DEVICE_SLOT_H_

#include "hal/status.h"

struct hal_device_s;

/* The components above device/, lowest first. */
enum {
  HAL_COMPONENT_MEMORY,
  HAL_COMPONENT_OP,
  HAL_COMPONENT_CAPTURE,
  HAL_COMPONENT_FUSION,
  HAL_COMPONENT_COMPILE,
  HAL_COMPONENT_LAZY,
  HAL_COMPONENTS
};

/* How a component's slot of a device is created and destroyed. All NULL: the component has no slot. */
typedef struct hal_slot_calls_s {
  hal_status_t (*create)(struct hal_device_s *device, void **out_data);
  void (*destroy)(void *data); /* also called if a later slot of a device that becomes ready fails */
  void (*close)(void *data);   /* when the device is closed; the data remains. NULL: it is destroyed */
  int on_demand;
} hal_slot_calls_t;

/* Creates the slots of a device that becomes ready: all of them, or none. device->lock is held. */
hal_status_t hal_device_slots_create(struct hal_device_s *device);

/* Closes or destroys the slots of a device whose streams are drained. */
void hal_device_slots_close(struct hal_device_s *device);

/* Destroys the slots of a device whose streams are drained, and whose data the application cannot reach any more. */
void hal_device_slots_destroy(struct hal_device_s *device);

/* Returns the data of an on-demand slot, which the first call creates. NULL = it failed; the thread's message has the
 * cause. */
void *hal_device_slot_make(struct hal_device_s *device, int component);

#endif /* HAL_SRC_DEVICE_SLOT_H_ */
