/* hooks.h: functions of higher components that the registry and the plugins call. hal/src/components.c defines both
 * tables. Private to hal/src. */
#ifndef HAL_SRC_PLUGIN_HOOKS_H_
#define HAL_SRC_PLUGIN_HOOKS_H_

#include "plugin/plugin.h"

typedef struct hal_registry_hooks_s {
  /* Called when a plugin has got its range of devices. */
  void (*added)(hal_plugin_t *plugin);
  /* Called before the plugins are shut down: afterwards no component may call them. */
  void (*closing)(void);
} hal_registry_hooks_t;
extern const hal_registry_hooks_t hal_registry_hooks;

/* The functions that plugins may call. */
extern hal_host_api_t hal_host_api; /* its extensions are set before plugins are opened */

#endif /* HAL_SRC_PLUGIN_HOOKS_H_ */
