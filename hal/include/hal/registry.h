/* registry.h: finding, loading and activating plugins.
 *
 * Plugins are opened once per process, in order; their devices are joined into one range of ordinals, fixed at that moment
 * and never renumbered. A plugin that cannot be loaded, or crashes or hangs before its first device is of use, is reported with
 * its cause and skipped: what it does until then runs in a child process first. Plugins are never unloaded. */
#ifndef HAL_REGISTRY_H_
#define HAL_REGISTRY_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most devices in one process, over all plugins: c10::DeviceIndex is an int8 and torch's tables are sized for 64. */
#define HAL_MAX_DEVICES 64
/* Most plugins in one process. */
#define HAL_MAX_PLUGINS 8

/* Adds a directory that is searched for libhal_<name>.so, before the ones added earlier and before HAL_PLUGIN_PATH.
 * `path` must be absolute; copied. Errors: HAL_INVALID_ARGUMENT, HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_registry_add_path(const char *path);

/* Opens the plugins of a comma list of names or absolute paths, and fixes the device range. NULL takes the environment's
 * TORCH_BACKEND; when that is unset too, the first plugin on the search path whose probe returns HAL_OK and which is not
 * HAL_PLUGIN_ON_REQUEST, or none (HAL_OK, zero devices). Initializes no driver. A second call with the same list, or with
 * NULL, is HAL_OK; after an automatic search that found none, a list may still be opened.
 * Errors: HAL_NOT_FOUND, HAL_INCOMPATIBLE, HAL_UNAVAILABLE, HAL_FAILED_PRECONDITION (another user could have written the
 * file): of the listed plugins none could be opened; the message names each with its cause. HAL_INVALID_ARGUMENT: no names.
 * HAL_FAILED_PRECONDITION: already open with another list. Since 0.1. */
HAL_API hal_status_t hal_registry_open(const char *list);

/* Returns whether hal_registry_open has succeeded: 1 or 0. Since 0.1. */
HAL_API int32_t hal_registry_is_open(void);

/* Describes an opened plugin; strings are valid for the lifetime of the process. */
typedef struct hal_registry_entry_s {
  size_t struct_size;
  const char *name, *vendor, *version, *path;
  int32_t first_device, device_count;
  uint32_t abi_major, abi_minor;
  uint32_t provided_count, slot_count; /* functions of the plugin's own, of all */
  uint32_t reserved;
} hal_registry_entry_t;

/* Counts the opened plugins. Since 0.1. */
HAL_API int32_t hal_registry_plugin_count(void);

/* Describes the opened plugin `index`. The caller sets `out_entry->struct_size`. Errors: HAL_OUT_OF_RANGE. Since 0.1. */
HAL_API hal_status_t hal_registry_plugin(int32_t index, hal_registry_entry_t *out_entry);

/* Returns whether slot `slot` of plugin_ops.def is an opened plugin's own (1) or a default (0). Since 0.1. */
HAL_API int32_t hal_registry_provides(int32_t index, uint32_t slot);

/* Returns the name of slot `slot`, NULL past the end. Since 0.1. */
HAL_API const char *hal_registry_slot_name(uint32_t slot);

/* Offers an extension of the program's to the plugins that are opened afterwards (hal_host->extensions): functions or
 * facts that a plugin may know by the extension's name. It belongs to the HAL from now on and lives as long as the
 * process; the HAL sets `next`. Not thread-safe. Errors: HAL_FAILED_PRECONDITION = plugins are open;
 * HAL_INVALID_ARGUMENT = no name with a point, a name that is offered already, or no size. Since 0.3. */
HAL_API hal_status_t hal_registry_offer(hal_extension_t *extension);

/* Returns the extension `name` of the opened plugin `index`, of at least `least` bytes (HAL_STRUCT_SIZE of its
 * struct, to which the caller casts it). It lives as long as the process; calls of its functions go to the plugin
 * without the layers of HAL_LAYERS. Errors: HAL_OUT_OF_RANGE; HAL_FAILED_PRECONDITION = no device of the plugin was
 * used so far; HAL_NOT_FOUND = the plugin does not offer it, or an older one. Since 0.3. */
HAL_API hal_status_t hal_registry_extension(int32_t index, const char *name, size_t least,
                                            const hal_extension_t **out_extension);

/* Returns the causes of the plugins that were skipped at open, one per line, "" when there are none. Valid for the lifetime of the
 * process. Since 0.1. */
HAL_API const char *hal_registry_report(void);

/* Returns those lines of hal_registry_report that report an error, as the log does: without the plugins that the search for
 * hardware skips because they are used on request only, or find no hardware or library of theirs. "" when there are
 * none. Valid for the lifetime of the process. Since 0.2. */
HAL_API const char *hal_registry_problems(void);

/* Drains every device that was used and shuts the plugins down; later calls that need a device fail with
 * HAL_FAILED_PRECONDITION. For tests and embedders; a process may simply end. Not thread-safe. Since 0.1. */
HAL_API void hal_registry_close(void);

#ifdef __cplusplus
}
#endif
#endif /* HAL_REGISTRY_H_ */
