/* trial.h: what a plugin does before it is first of use is done in a child process first. A plugin that crashes or hangs takes
 * the whole program with it, and neither a check of its file nor a handler of the signal can help; a child that does so is a
 * sentence with the plugin and the function. Private to hal/src.
 *
 * The child runs the functions that its parent would run next, and tells on a page of memory that both see which one it is
 * in. A trial costs one fork; what fails with a message passes, since the parent gets the same message. */
#ifndef HAL_SRC_PLUGIN_TRIAL_H_
#define HAL_SRC_PLUGIN_TRIAL_H_

#include "plugin/plugin.h"

/* What a plugin is doing, beside the slots of plugin_ops.def. */
enum { HAL_TRIAL_LOADING = HAL_SLOT_COUNT, HAL_TRIAL_ENTRY, HAL_TRIAL_DONE };

/* Tells that the slot's function, or one of the above, is called next. Does nothing outside a trial. */
void hal_trial_step(uint32_t step);

/* Runs `body(data)` in a child process. HAL_OK when it returned there, when the plugin is one of the HAL's own folder, when
 * HAL_PLUGIN_TRIAL=0 is set, or when no child can be made. Errors: HAL_INCOMPATIBLE = it crashed, ended the process or did not
 * come back, with plugin (`path`), function and cure. */
hal_status_t hal_trial_run(const char *path, void (*body)(void *data), void *data);

/* Tries what makes the devices of a loaded plugin ready: init, then device_info of each. As hal_trial_run. */
hal_status_t hal_trial_start(hal_plugin_t *plugin);

#endif /* HAL_SRC_PLUGIN_TRIAL_H_ */
