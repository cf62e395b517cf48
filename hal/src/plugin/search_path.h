/* search_path.h: the search for plugins. Private to hal/src. */
#ifndef HAL_SRC_SEARCH_PATH_H_
#define HAL_SRC_SEARCH_PATH_H_

#include <limits.h>

#include "hal/registry.h"

/* Returns whether the process runs with more privileges than its user (set-user-id): then the environment has no
 * effect. */
int hal_process_is_privileged(void);

/* Size of a plugin's name. */
enum { HAL_PLUGIN_NAME_BYTES = 32 };

/* Returns the <name> of libhal_<name>.so, by which a user requests the plugin; the name of its device type may differ.
 * `file` may have folders before it. Returns 0 if the file has no such name. */
int hal_plugin_file_name(const char *file, char out_name[HAL_PLUGIN_NAME_BYTES]);

/* Returns whether `name` of `length` bytes may name a plugin: [a-z][a-z0-9_]*, at most 31 bytes. */
int hal_plugin_name_is_valid(const char *name, size_t length);

/* Finds libhal_<name>.so in the first directory that has it. Errors: HAL_NOT_FOUND, with the directories;
 * HAL_INVALID_ARGUMENT for an invalid name. */
hal_status_t hal_search_plugin(const char *name, size_t length, char out_path[PATH_MAX]);

/* Calls `visit` for every libhal_<name>.so of the search path, directory by directory, ordered by name within one; a
 * name in an earlier directory hides later ones. Stops when `visit` returns non-zero. */
hal_status_t hal_search_all(int (*visit)(const char *path, void *user_data), void *user_data);

#endif /* HAL_SRC_SEARCH_PATH_H_ */
