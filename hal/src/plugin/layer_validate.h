/* layer_validate.h: the validate layer, which holds host and plugin to what plugin_ops.def promises. Private to hal/src.
 *
 *   layer_validate.c  a call's arguments, what it makes and ends, what it writes, its status
 *   layer_rules*.c    what single ops promise beyond that
 *   layer_own_op.c    operators of the plugin's own, for all layers
 *   layer_borrow.c    copies of what a plugin may read during a call, made useless afterwards
 *   layer_live.c      what is alive
 *
 * A mistake of the host's is refused with HAL_INVALID_ARGUMENT before the plugin sees it; one of the plugin's makes the
 * call HAL_INTERNAL where its result cannot be used. Either is also one line of the log, since some callers have no use
 * for a status. */
#ifndef HAL_SRC_LAYER_VALIDATE_H_
#define HAL_SRC_LAYER_VALIDATE_H_

#include "plugin/layer.h"
#include "plugin/layer_live.h"

enum { HAL_VALIDATE_COLD, HAL_VALIDATE_READY, HAL_VALIDATE_SHUT };

typedef struct hal_validate_s {
  hal_lives_t lives;    /* its lock guards everything here */
  int state;            /* HAL_VALIDATE_* */
  int32_t device_count; /* as first answered; -1 = not asked yet */
  uint64_t device_flags[HAL_MAX_DEVICES];
  uint32_t alignment[HAL_MAX_DEVICES]; /* of memory_alloc */
  uint64_t peers[HAL_MAX_DEVICES];     /* bit p: device_peer_enable(device, p) was OK */
  uint64_t host_pointers; /* bit d: host_device_pointer gave kernels of device d an address of host memory */
  uint64_t records;       /* of events */
} hal_validate_t;

/* Makes the layer's state for a plugin that is being loaded. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_validate_create(hal_plugin_t *plugin);
/* Frees it when loading failed. */
void hal_validate_destroy(hal_plugin_t *plugin);
/* In a forked child: other threads' locks are gone. */
void hal_validate_after_fork(hal_plugin_t *plugin);

hal_status_t hal_validate_enter(hal_layer_call_t *call);
hal_status_t hal_validate_leave(hal_layer_call_t *call, hal_status_t status);

/* Reports a mistake: HAL_INVALID_ARGUMENT, the host's; HAL_INTERNAL, the plugin's. */
hal_status_t hal_validate_misuse(const hal_layer_call_t *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
hal_status_t hal_validate_fault(const hal_plugin_t *plugin, uint32_t slot, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Gives an argument by name; there is one. */
const hal_argument_t *hal_validate_argument(const hal_layer_call_t *call, const char *name);

/* ---- layer_rules.c ---- */
typedef struct hal_rule_s {
  uint8_t makes, ends;                                                /* hal_live_kind_t + 1; 0 = nothing */
  uint32_t flags;                                                     /* known bits of the argument `flags` */
  hal_status_t (*before)(hal_layer_call_t *call);                     /* with the lock */
  hal_status_t (*after)(hal_layer_call_t *call, hal_status_t status); /* with the lock; gives the status */
} hal_rule_t;
extern const hal_rule_t hal_rules[HAL_SLOT_COUNT];

/* Checks that `size` bytes at `address` lie in live memory that `device` may use. */
hal_status_t hal_validate_range(const hal_layer_call_t *call, const char *what, const void *address, size_t size,
                                int32_t device);

/* ---- layer_rules_comm.c ---- */
/* Returns the number of ranks of a communicator; 0 = not known. Takes the layer's lock. */
size_t hal_validate_ranks(hal_plugin_t *plugin, const hal_plugin_comm_t *comm);

/* ---- layer_borrow.c ---- */
/* Puts copies in the place of what the plugin may read during the call. Without host memory for them it stays as it is. */
void hal_borrow_begin(hal_layer_call_t *call);
hal_borrowed_t *hal_borrow_op_call(hal_plugin_t *plugin, const hal_op_call_t *op, const hal_op_call_t **out_copy);
/* Checks that the plugin wrote nothing there, and makes the copies useless to a plugin that keeps their addresses. */
void hal_borrow_end(hal_borrowed_t *borrowed);
/* Looks a last time at what the plugin borrowed, and frees it. */
void hal_borrow_forget(const hal_plugin_t *plugin);
void hal_borrow_after_fork(void);

#endif /* HAL_SRC_LAYER_VALIDATE_H_ */
