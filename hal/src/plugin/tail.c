/* tail.c: the ops that a plugin built against an older header does not have in its table. The code is that of the
 * archive (sdk/defaults.h), here over hal_call_*, so that it calls the plugin's functions. */
#define _POSIX_C_SOURCE 200809L
#include "plugin/call.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define HAL_BODY_M(name, params)
#define HAL_BODY_D(name, params)
#define HAL_BODY_U(name, params) \
  hal_status_t hal_tail_##name(hal_plugin_t *plugin, HAL_UNPAREN params) { return HAL_UNIMPLEMENTED; }
#define HAL_OP(since, kind, group, need, name, params, args) HAL_BODY_##kind(name, params)
#include "hal/plugin_ops.def"
#undef HAL_OP

#define HAL_DEFAULT(name, ...) hal_status_t hal_tail_##name(hal_plugin_t *plugin, __VA_ARGS__)
#define HAL_DEFAULT_SELF hal_plugin_t *plugin,
#define HAL_DEFAULT_PASS plugin,
#define HAL_SELF(name, ...) hal_call_##name(plugin, __VA_ARGS__)
#define HAL_DEFAULT_ERROR(code, text) hal_host->error_set(code, 0, text)
#include "sdk/defaults.h"
