/* search_path.h: where plugins are looked for. Private to hal/src. */
#ifndef HAL_SRC_SEARCH_PATH_H_
#define HAL_SRC_SEARCH_PATH_H_

#include <limits.h>

#include "hal/registry.h"

/* Whether the process runs with more rights than its user (set-user-id): the environment then decides nothing. */
int hal_process_is_privileged(void);

/* Room for a plugin's name. */
enum { HAL_PLUGIN_NAME_BYTES = 32 };

/* Gives the <name> of libhal_<name>.so, the name by which a plugin is asked for; its device type may be called otherwise. `file` may
 * have folders before it. Returns 0 when the file is not called so. */
int hal_plugin_file_name(const char *file, char out_name[HAL_PLUGIN_NAME_BYTES]);

/* Whether `name` of `length` bytes may name a plugin: [a-z][a-z0-9_]*, at most 31 bytes. */
int hal_plugin_name_is_valid(const char *name, size_t length);

/* Finds libhal_<name>.so in the first directory that has it. Errors: HAL_NOT_FOUND, naming the directories;
 * HAL_INVALID_ARGUMENT for a name that cannot be one. */
hal_status_t hal_search_plugin(const char *name, size_t length, char out_path[PATH_MAX]);

/* Calls `visit` for every libhal_<name>.so of the search path, directory by directory, by name within one; a name found
 * in an earlier directory hides later ones. Stops when `visit` returns non-zero. */
hal_status_t hal_search_all(int (*visit)(const char *path, void *user_data), void *user_data);

#endif /* HAL_SRC_SEARCH_PATH_H_ */
