/* loader.h: loads one plugin from its file to a checked function table. Private to hal/src. */
#ifndef HAL_SRC_LOADER_H_
#define HAL_SRC_LOADER_H_

#include "plugin/plugin.h"

/* Loads the plugin at an absolute path: checks the file, dlopens it, negotiates the table, checks version, build flags,
 * groups and names. Fills api, layers, info and path of `plugin`, which is zero on entry and undefined after a failure.
 * Calls only the op info. The library is never unloaded. All this, and counting, is tried in another process first
 * (trial.h). Errors: HAL_NOT_FOUND, HAL_FAILED_PRECONDITION, HAL_INCOMPATIBLE, HAL_UNAVAILABLE (a library that it needs
 * is not installed), HAL_RESOURCE_EXHAUSTED; the message has the cause and what to do. */
hal_status_t hal_plugin_load(const char *path, hal_plugin_t *plugin);

/* The part of it that runs the plugin's code, for a file that was checked; without the trial, and without setting
 * `path`. */
hal_status_t hal_plugin_open(const char *resolved, hal_plugin_t *plugin);

/* Queries a loaded plugin by probe whether it is usable here, and how many devices it has. Initializes no driver.
 * Errors: those of the plugin; HAL_UNAVAILABLE = no device; HAL_INTERNAL = an invalid number. */
hal_status_t hal_plugin_count_devices(hal_plugin_t *plugin);

/* Checks and normalizes a table that a plugin's entry has filled (the second half of the loader, without the file). */
hal_status_t hal_plugin_accept(const char *path, hal_plugin_t *plugin);

#endif /* HAL_SRC_LOADER_H_ */
