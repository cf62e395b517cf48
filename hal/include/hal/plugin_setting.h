/* plugin_setting.h: for plugins that have settings in the environment. Header only. */
#ifndef HAL_PLUGIN_SETTING_H_
#define HAL_PLUGIN_SETTING_H_

#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the value of a setting, borrowed from the environment. Returns NULL if it is not set, or if the process has
 * more privileges than the user who started it (a set-user-ID program, file capabilities): then the environment must
 * not determine which files are loaded or run. Plugins read all settings with this function instead of getenv. As
 * thread-safe as getenv. Since 0.2. */
static inline const char *hal_setting(const char *name) { return getauxval(AT_SECURE) ? NULL : getenv(name); }

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_SETTING_H_ */
