/* loader.h: one plugin from its file to a checked function table. Private to hal/src. */
#ifndef HAL_SRC_LOADER_H_
#define HAL_SRC_LOADER_H_

#include "plugin/plugin.h"

/* Loads the plugin at an absolute path: checks the file, dlopens it, negotiates the table, checks version, build
 * flags, groups and names. Fills api, layers, info and path of `plugin`, which is zero on entry and undefined after
 * a failure. Calls no op but info. The library is never unloaded. All this, and counting, is tried in another
 * process first (trial.h). Errors: HAL_NOT_FOUND, HAL_FAILED_PRECONDITION, HAL_INCOMPATIBLE, HAL_UNAVAILABLE (a
 * library it needs is not installed), HAL_RESOURCE_EXHAUSTED; one sentence with cause and cure. */
hal_status_t hal_plugin_load(const char *path, hal_plugin_t *plugin);

/* The part of it that runs the plugin's code, of a file that was checked; without the trial, and without `path` of
 * the plugin. */
hal_status_t hal_plugin_open(const char *resolved, hal_plugin_t *plugin);

/* Asks a loaded plugin whether it is of use here, by probe, and how many devices it has. Starts no driver. Errors: those of the
 * plugin; HAL_UNAVAILABLE = no device; HAL_INTERNAL = an impossible number. */
hal_status_t hal_plugin_count_devices(hal_plugin_t *plugin);

/* Checks and normalises a table that a plugin's entry filled (loader's second half, without the file). */
hal_status_t hal_plugin_accept(const char *path, hal_plugin_t *plugin);

#endif /* HAL_SRC_LOADER_H_ */
