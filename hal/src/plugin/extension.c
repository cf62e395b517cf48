/* extension.c: extensions that a plugin and the host offer each other. */
#include "plugin/extension.h"

#include <string.h>

#include "base/life.h"
#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/hooks.h"

const char *hal_extensions_wrong(const hal_extension_t *first) {
  uint32_t count = 0;
  for (const hal_extension_t *at = first; at; at = at->next) {
    if (++count > HAL_MOST_EXTENSIONS) return "there are more than 64, or the chain has no end; end it with NULL";
    if (at->struct_size < sizeof *at) return "a struct_size is less than that of hal_extension_t; set it";
    if (!at->name || !strchr(at->name, '.')) return "a name is NULL or has no dot; name it \"<vendor>.<group>\"";
    for (const hal_extension_t *other = first; other != at; other = other->next)
      if (strcmp(other->name, at->name) == 0) return "two have the same name; a name identifies one struct";
  }
  return NULL;
}

hal_status_t hal_registry_offer(hal_extension_t *extension) {
  hal_extension_t *const before = extension ? (hal_extension_t *)(uintptr_t)hal_host_api.extensions : NULL;
  if (!extension) return hal_error_set(HAL_INVALID_ARGUMENT, "the extension is NULL");
  if (hal_registry_is_open())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "extension '%.64s' was offered after plugins were opened; offer it before hal_registry_open",
                         extension->name ? extension->name : "(null)");
  extension->next = before;
  const char *const wrong = hal_extensions_wrong(extension);
  if (wrong) {
    extension->next = NULL;
    return hal_error_set(HAL_INVALID_ARGUMENT, "invalid extension '%.64s': %s",
                         extension->name ? extension->name : "(null)", wrong);
  }
  hal_host_api.extensions = extension;
  return HAL_OK;
}

hal_status_t hal_registry_extension(int32_t index, const char *name, size_t least,
                                    const hal_extension_t **out_extension) {
  const int32_t count = hal_registry_plugin_count();
  if (!name) return hal_error_set(HAL_INVALID_ARGUMENT, "the name of an extension is NULL");
  if (index < 0 || index >= count)
    return hal_error_set(HAL_OUT_OF_RANGE, "plugin %d is out of range: %d are open", index, count);
  hal_plugin_t *const plugin = &hal_registry.plugins[index];
  if (atomic_load(&plugin->state) != HAL_PLUGIN_READY || atomic_load(&hal_life.closed) || atomic_load(&hal_life.forked))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "plugin %s has not started in this process, or was shut down; use one of its devices first",
                         plugin->info.name);
  const hal_extension_t *first = NULL;
  const hal_status_t status = hal_call_extensions(plugin, &first);
  if (status) return hal_error_plugin(plugin, HAL_SLOT_extensions, status);
  const char *const wrong = hal_extensions_wrong(first);
  if (wrong) return hal_error_set(HAL_INTERNAL, "%s, extensions: %s", plugin->info.name, wrong);
  const hal_extension_t *const found = hal_extension_find(first, name, least);
  if (!found)
    return hal_error_set(HAL_NOT_FOUND,
                         "plugin %s does not offer the extension '%.64s' of %zu bytes or more; use a plugin that does",
                         plugin->info.name, name, least);
  *out_extension = found;
  return HAL_OK;
}
