/* registry.h: finding, loading and activating plugins.
 *
 * Plugins are opened once per process, in order. Their devices get one range of ordinals, which does not change
 * afterwards. What a plugin does before its first device is usable runs in a child process first. A plugin that cannot
 * be loaded, or that crashes or hangs there, is reported with the cause and skipped. Plugins are never unloaded. */
#ifndef HAL_REGISTRY_H_
#define HAL_REGISTRY_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum number of devices in one process, over all plugins: c10::DeviceIndex is an int8, and torch's tables have
 * 64 entries. */
#define HAL_MAX_DEVICES 64
/* The maximum number of plugins in one process. */
#define HAL_MAX_PLUGINS 8

/* Adds a directory that is searched for libhal_<name>.so, before the directories added earlier and before
 * HAL_PLUGIN_PATH. `path` must be absolute; it is copied. Errors: HAL_INVALID_ARGUMENT, HAL_RESOURCE_EXHAUSTED. Since
 * 0.1. */
HAL_API hal_status_t hal_registry_add_path(const char *path);

/* Opens the plugins of a comma-separated list of names or absolute paths, and fixes the range of devices. NULL uses the
 * environment variable TORCH_BACKEND. If that is not set either, it opens the first plugin on the search path whose
 * probe returns HAL_OK and that is not HAL_PLUGIN_ON_REQUEST, or none (HAL_OK, zero devices). Initializes no driver. A
 * second call with the same list, or with NULL, is HAL_OK; after an automatic search that found no plugin, a list may
 * still be opened. Errors if none of the listed plugins could be opened: HAL_NOT_FOUND, HAL_INCOMPATIBLE,
 * HAL_UNAVAILABLE, HAL_FAILED_PRECONDITION (another user can write the file); the message names each plugin with the
 * cause. HAL_INVALID_ARGUMENT = no names. HAL_FAILED_PRECONDITION = already open with another list. Since 0.1. */
HAL_API hal_status_t hal_registry_open(const char *list);

/* Returns whether hal_registry_open has succeeded: 1 or 0. Since 0.1. */
HAL_API int32_t hal_registry_is_open(void);

/* Describes an opened plugin; strings are valid until the process ends. */
typedef struct hal_registry_entry_s {
  size_t struct_size;
  const char *name, *vendor, *version, *path;
  int32_t first_device, device_count;
  uint32_t abi_major, abi_minor;
  uint32_t provided_count, slot_count; /* functions that the plugin implements, and all functions */
  uint32_t reserved;
} hal_registry_entry_t;

/* Returns the number of opened plugins. Since 0.1. */
HAL_API int32_t hal_registry_plugin_count(void);

/* Describes the opened plugin `index`. The caller sets `out_entry->struct_size`. Errors: HAL_OUT_OF_RANGE. Since
 * 0.1. */
HAL_API hal_status_t hal_registry_plugin(int32_t index, hal_registry_entry_t *out_entry);

/* Returns whether an opened plugin implements slot `slot` of plugin_ops.def (1) or uses its default (0). Since 0.1. */
HAL_API int32_t hal_registry_provides(int32_t index, uint32_t slot);

/* Returns the name of slot `slot`, NULL past the last one. Since 0.1. */
HAL_API const char *hal_registry_slot_name(uint32_t slot);

/* Offers an extension to the plugins that are opened later (hal_host->extensions): functions or data that a plugin
 * finds by the extension's name. The HAL owns it from the call on, until the process ends, and sets `next`. Not
 * thread-safe. Errors: HAL_FAILED_PRECONDITION = plugins are open; HAL_INVALID_ARGUMENT = a name without a dot, a name
 * that is offered already, or no size. Since 0.3. */
HAL_API hal_status_t hal_registry_offer(hal_extension_t *extension);

/* Returns the extension `name` of the opened plugin `index`, of at least `least` bytes (HAL_STRUCT_SIZE of its struct,
 * to which the caller casts it). It is valid until the process ends. Calls of its functions bypass the layers of
 * HAL_LAYERS. Errors: HAL_OUT_OF_RANGE; HAL_FAILED_PRECONDITION = no device of the plugin was used so far;
 * HAL_NOT_FOUND = the plugin does not offer it, or an older version. Since 0.3. */
HAL_API hal_status_t hal_registry_extension(int32_t index, const char *name, size_t least,
                                            const hal_extension_t **out_extension);

/* Checks that a file is a complete shared object for this machine, and needs no sanitizer runtime that the process
 * lacks: for libraries that a program loads itself, since dlopen of a truncated file ends the process. Needs no open
 * registry. Any thread. Errors: HAL_NOT_FOUND, HAL_INCOMPATIBLE, HAL_FAILED_PRECONDITION = it cannot be read. Since
 * 0.5. */
HAL_API hal_status_t hal_registry_check_library(const char *path);

/* Returns why plugins were skipped at open, one per line; "" if none was skipped. Valid until the process ends. Since
 * 0.1. */
HAL_API const char *hal_registry_report(void);

/* Returns the lines of hal_registry_report that report an error, as the log does. It omits plugins that the search for
 * hardware skips because they are used on request only, or because their hardware or library is missing. "" if there
 * are no such lines. Valid until the process ends. Since 0.2. */
HAL_API const char *hal_registry_problems(void);

/* Waits for every device that was used and shuts the plugins down; later calls that need a device fail with
 * HAL_FAILED_PRECONDITION. For tests and embedding programs; a process may end without it. Not thread-safe. Since
 * 0.1. */
HAL_API void hal_registry_close(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_REGISTRY_H_ */
