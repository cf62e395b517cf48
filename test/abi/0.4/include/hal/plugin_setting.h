/* plugin_setting.h: for plugins that have settings in the environment. Header only. */
#ifndef HAL_PLUGIN_SETTING_H_
#define HAL_PLUGIN_SETTING_H_

#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the value of a setting, borrowed from the environment, or NULL: it is not set, or the process has more rights than
 * the user who started it (a set-user-ID program, file capabilities), so that the environment must not decide which files are
 * loaded or run. Plugins read all settings by this, in place of getenv. As thread-safe as getenv. Since 0.2. */
static inline const char *hal_setting(const char *name) { return getauxval(AT_SECURE) ? NULL : getenv(name); }

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_SETTING_H_ */
