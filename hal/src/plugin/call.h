/* call.h: the host's calls of a plugin's ops, generated from plugin_ops.def. The host calls slots only through these
 * functions: layers and the defaults of missing slots need the plugin, and a slot has no context pointer. Private to
 * hal/src. */
#ifndef HAL_SRC_CALL_H_
#define HAL_SRC_CALL_H_

#include "base/status_internal.h"
#include "plugin/plugin.h"

/* Layers wrap every call of a plugin, without code of the plugin (HAL_LAYERS). TAIL is not a layer of the user: it
 * marks a plugin built against an older header, whose table is shorter. */
enum { HAL_LAYER_VALIDATE = 1u << 0, HAL_LAYER_TRACE = 1u << 1, HAL_LAYER_FAULT = 1u << 2, HAL_LAYER_TAIL = 1u << 3 };

#define HAL_UNPAREN(...) __VA_ARGS__

/* A slot that the plugin's table does not have is NULL. Its default is hal_tail_<op>, which needs the plugin to call
 * its other ops. Mandatory slots always exist. */
#define HAL_SLOT_CALL_M(name, args) plugin->api.name args
#define HAL_SLOT_CALL_D(name, args) \
  (plugin->api.name ? plugin->api.name args : hal_tail_##name(plugin, HAL_UNPAREN args))
#define HAL_SLOT_CALL_U(name, args) HAL_SLOT_CALL_D(name, args)

#define HAL_OP(since, kind, group, need, name, params, args) \
  hal_status_t hal_tail_##name(hal_plugin_t *plugin, HAL_UNPAREN params);
#include "hal/plugin_ops.def"
#undef HAL_OP

/* hal_layered_<op> is out of line, because layers are rare and calls are frequent. */
#define HAL_OP(since, kind, group, need, name, params, args)                                          \
  hal_status_t hal_layered_##name(hal_plugin_t *plugin, HAL_UNPAREN params);                          \
  HAL_MUST_USE static inline hal_status_t hal_call_##name(hal_plugin_t *plugin, HAL_UNPAREN params) { \
    if (HAL_LIKELY(!plugin->layers)) return plugin->api.name args;                                    \
    return hal_layered_##name(plugin, HAL_UNPAREN args);                                              \
  }
#include "hal/plugin_ops.def"
#undef HAL_OP

/* Calls an op whose failure cannot be returned to a caller, such as one that destroys an object: logs the failure.
 * HAL_CALL_AFTER is for calls after another failure, whose message it preserves. */
#define HAL_CALL_QUIETLY(plugin, name, ...) \
  hal_error_report(plugin, HAL_SLOT_##name, hal_call_##name(plugin, __VA_ARGS__))
#define HAL_CALL_AFTER(plugin, name, ...)        \
  do {                                           \
    hal_error_saved_t saved_;                    \
    hal_error_save(&saved_);                     \
    HAL_CALL_QUIETLY(plugin, name, __VA_ARGS__); \
    hal_error_restore(&saved_);                  \
  } while (0)

#endif /* HAL_SRC_CALL_H_ */
