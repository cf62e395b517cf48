/* plugin.h: a loaded plugin, and the list of all plugins. Private to hal/src.
 *
 * Ownership: the registry owns plugins. They are valid until the process ends, so borrowed pointers never dangle. */
#ifndef HAL_SRC_PLUGIN_H_
#define HAL_SRC_PLUGIN_H_

#include <stdatomic.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/likely.h"
#include "hal/plugin.h"
#include "hal/registry.h"
#include "hal/status.h"

typedef struct hal_plugin_s hal_plugin_t;

/* Slot numbers, in the order of plugin_ops.def. */
enum {
#define HAL_OP(since, kind, group, need, name, params, args) HAL_SLOT_##name,
#include "hal/plugin_ops.def"
#undef HAL_OP
  HAL_SLOT_COUNT
};

enum { HAL_PLUGIN_COLD = 0, HAL_PLUGIN_READY = 1, HAL_PLUGIN_FAILED = 2 };

struct hal_plugin_s {
  hal_plugin_api_t api;            /* called only through call.h: slots that an older plugin does not have are NULL */
  uint32_t layers;                 /* HAL_LAYER_* bits; 0 = all slots exist and calls go directly to the table */
  struct hal_validate_s *validate; /* of the validate layer */
  int32_t index;                   /* in hal_registry.plugins */
  int32_t first_device, device_count;
  int32_t ordinals[HAL_MAX_DEVICES]; /* of devices `first_device` and so on: the plugin's numbers */
  atomic_int state;                  /* HAL_PLUGIN_*; COLD until the first call that needs a device */
  int32_t init_begun; /* init was called in this process; a child forked meanwhile must not use it either */
  hal_status_t init_status;
  char init_message[512];   /* cause when FAILED */
  hal_lock_t lock;          /* serializes init; protects own_ops */
  struct own_op_s *own_ops; /* operators with layers, layer_own_op.c; valid until the process ends */
  hal_plugin_info_t info;
  char *path;
};

typedef struct hal_registry_s {
  hal_plugin_t plugins[HAL_MAX_PLUGINS];
  int32_t plugin_count;
  int32_t device_count; /* of all plugins; written once, before `open` */
  atomic_int open;
} hal_registry_t;
extern hal_registry_t hal_registry;

/* Returns the place of a plugin's ordinal among the devices that the process uses; -1 if it does not use that one. */
static inline int32_t hal_plugin_place_of(const hal_plugin_t *plugin, int32_t ordinal) {
  for (int32_t place = 0; place < plugin->device_count; place++)
    if (plugin->ordinals[place] == ordinal) return place;
  return -1;
}

/* Called in the child of a fork. */
void hal_registry_after_fork(void);

/* Completes the failure `status` of a call of a plugin's op: prepends plugin and op to the plugin's message, or reports
 * that it has none. Returns `status`; HAL_OK is allowed. */
hal_status_t hal_error_plugin(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status);
/* Checks what an op returned that makes an object or returns an address: HAL_OK and NULL are a failure, HAL_INTERNAL
 * with the plugin's message. Otherwise returns `status`. */
hal_status_t hal_plugin_made(hal_status_t status, const void *made);
/* The same, completed as by hal_error_plugin. */
hal_status_t hal_error_plugin_made(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status, const void *made);

/* Logs a failure that cannot be returned to a caller, such as that of a function that destroys an object. HAL_OK is
 * allowed. */
void hal_error_report(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status);

#endif /* HAL_SRC_PLUGIN_H_ */
