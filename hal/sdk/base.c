/* base.c: libhal_plugin.a, the weak defaults that are linked into each plugin.
 *
 * hal_base_<op> is the strong implementation, which an override may call. hal_plugin_<op> is a weak wrapper around it,
 * in the section "hal_dflt"; entry.c distinguishes a default from an override by the bounds of that section. Only these
 * definitions are weak, never the header's prototypes: that would make the author's own functions weak too. Mandatory
 * ops have no default, so omitting one is a link error with its name. */
#define _POSIX_C_SOURCE 200809L
#include "hal/plugin.h"

const hal_host_api_t *hal_host;

#define HAL_WRAP_M(name, params, args)
#define HAL_WRAP_D(name, params, args) \
  __attribute__((weak, section("hal_dflt"))) hal_status_t hal_plugin_##name params { return hal_base_##name args; }
#define HAL_WRAP_U(name, params, args) HAL_WRAP_D(name, params, args)
#define HAL_OP(since, kind, group, need, name, params, args) HAL_WRAP_##kind(name, params, args)
#include "hal/plugin_ops.def"
#undef HAL_OP

/* The implementations of kind U. They set no message, because UNIMPLEMENTED makes the host use another path. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define HAL_BODY_M(name, params)
#define HAL_BODY_D(name, params)
#define HAL_BODY_U(name, params) \
  hal_status_t hal_base_##name params { return HAL_UNIMPLEMENTED; }
#define HAL_OP(since, kind, group, need, name, params, args) HAL_BODY_##kind(name, params)
#include "hal/plugin_ops.def"
#undef HAL_OP
#pragma GCC diagnostic pop

/* The implementations of kind D. */
#define HAL_DEFAULT(name, ...) hal_status_t hal_base_##name(__VA_ARGS__)
#define HAL_DEFAULT_SELF
#define HAL_DEFAULT_PASS
#define HAL_SELF(name, ...) hal_plugin_##name(__VA_ARGS__)
#define HAL_DEFAULT_ERROR(code, text) hal_host->error_set(code, 0, text)
#include "defaults.h"
