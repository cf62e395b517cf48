/* layer_validate.h: the validate layer, which checks that host and plugin follow plugin_ops.def. Private to hal/src.
 *
 *   layer_validate.c  the arguments of a call, the objects that it creates and ends, its outputs, its status
 *   layer_rules*.c    additional rules of single ops
 *   layer_own_op.c    a plugin's own operators, for all layers
 *   layer_borrow.c    copies of what a plugin may read during a call, invalidated afterwards
 *   layer_live.c      the live objects
 *
 * A mistake of the host is rejected with HAL_INVALID_ARGUMENT, without a call of the plugin. A mistake of the plugin
 * makes the call HAL_INTERNAL if its result cannot be used. Both are also logged in one line, since some callers ignore
 * the status. */
#ifndef HAL_SRC_LAYER_VALIDATE_H_
#define HAL_SRC_LAYER_VALIDATE_H_

#include "plugin/layer.h"
#include "plugin/layer_live.h"

enum { HAL_VALIDATE_COLD, HAL_VALIDATE_READY, HAL_VALIDATE_SHUT };

typedef struct hal_validate_s {
  hal_lives_t lives;    /* its lock protects everything here */
  int state;            /* HAL_VALIDATE_* */
  int32_t device_count; /* the first result; -1 = not queried yet */
  uint64_t device_flags[HAL_MAX_DEVICES];
  uint32_t alignment[HAL_MAX_DEVICES];                                       /* of memory_alloc */
  uint32_t max_grid[HAL_MAX_DEVICES][3], binding_alignment[HAL_MAX_DEVICES]; /* limits of launches; 0: none */
  uint64_t peers[HAL_MAX_DEVICES]; /* bit p: device_peer_enable(device, p) was OK */
  uint64_t host_pointers; /* bit d: host_device_pointer returned an address of host memory for kernels of device d */
  uint64_t records;       /* of events */
} hal_validate_t;

/* Creates the layer's state for a plugin that is being loaded. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_validate_create(hal_plugin_t *plugin);
/* Frees it if loading failed. */
void hal_validate_destroy(hal_plugin_t *plugin);
/* Called in a forked child, which lacks the threads that hold locks. */
void hal_validate_after_fork(hal_plugin_t *plugin);

hal_status_t hal_validate_enter(hal_layer_call_t *call);
hal_status_t hal_validate_leave(hal_layer_call_t *call, hal_status_t status);

/* Reports a mistake: HAL_INVALID_ARGUMENT = of the host; HAL_INTERNAL = of the plugin. */
hal_status_t hal_validate_misuse(const hal_layer_call_t *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
hal_status_t hal_validate_fault(const hal_plugin_t *plugin, uint32_t slot, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the argument with a name, which must exist. */
const hal_argument_t *hal_validate_argument(const hal_layer_call_t *call, const char *name);

/* ---- layer_rules.c ---- */
typedef struct hal_rule_s {
  uint8_t makes, ends;                                                /* hal_live_kind_t + 1; 0 = nothing */
  uint32_t flags;                                                     /* known bits of the argument `flags` */
  hal_status_t (*before)(hal_layer_call_t *call);                     /* called with the lock */
  hal_status_t (*after)(hal_layer_call_t *call, hal_status_t status); /* called with the lock; returns the status */
  void (*failed)(const hal_layer_call_t *call, hal_status_t status);  /* after a failure; called with the lock */
} hal_rule_t;
extern const hal_rule_t hal_rules[HAL_SLOT_COUNT];

/* Checks that `size` bytes at `address` are in live memory that `device` may use. */
hal_status_t hal_validate_range(const hal_layer_call_t *call, const char *what, const void *address, size_t size,
                                int32_t device);

/* ---- layer_rules_comm.c ---- */
/* Returns the number of ranks of a communicator; 0 = not known. Takes the layer's lock. */
size_t hal_validate_ranks(hal_plugin_t *plugin, const hal_plugin_comm_t *comm);

/* ---- layer_borrow.c ---- */
/* Replaces arguments that the plugin may read during the call by copies. If the host has no memory for them, they are
 * not replaced. */
void hal_borrow_begin(hal_layer_call_t *call);
hal_borrowed_t *hal_borrow_op_call(hal_plugin_t *plugin, const hal_op_call_t *op, const hal_op_call_t **out_copy);
/* Checks that the plugin did not write to them, and invalidates the copies for a plugin that keeps their addresses. */
void hal_borrow_end(hal_borrowed_t *borrowed);
/* Checks the copies of the plugin a last time, and frees them. */
void hal_borrow_forget(const hal_plugin_t *plugin);
void hal_borrow_after_fork(void);

#endif /* HAL_SRC_LAYER_VALIDATE_H_ */
