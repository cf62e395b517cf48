/* error.c: the message of a failure of a plugin. */
#include "base/status_internal.h"
#include "hal/log.h"
#include "plugin/plugin.h"

static const char *name_of(const hal_plugin_t *plugin) { return plugin->info.name ? plugin->info.name : "plugin"; }

hal_status_t hal_error_plugin(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status) {
  if (status == HAL_OK) return status;
  if (status == HAL_NOT_READY) return hal_error_not_ready();
  const char *const plugin_name = name_of(plugin), *const op = hal_registry_slot_name(slot);
  /* A message of another code is left over from a failure that the plugin has handled. */
  if (hal_error_has_plugin_message(status)) return hal_error_prefix(status, "%s, %s: ", plugin_name, op);
  return hal_error_set(status, "%s, %s: failed with %s (%d) without a message", plugin_name, op,
                       hal_status_name(status), (int)status);
}

hal_status_t hal_plugin_made(hal_status_t status, const void *made) {
  if (status || made) return status;
  return hal_error_from_plugin(HAL_INTERNAL, 0, "returned HAL_OK, and NULL as the result");
}

hal_status_t hal_error_plugin_made(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status, const void *made) {
  return hal_error_plugin(plugin, slot, hal_plugin_made(status, made));
}

void hal_error_report(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status) {
  if (status == HAL_OK) return;
  hal_error_plugin(plugin, slot, status);
  hal_log(HAL_LOG_WARNING, "%s", hal_error_message());
}
