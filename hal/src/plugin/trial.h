/* trial.h: everything that a plugin does before its first device is ready is tried in another process first. A plugin
 * that crashes or hangs ends the whole program, and neither a check of its file nor a signal handler can prevent that;
 * in another process it is an error with the plugin and the function. Private to hal/src.
 *
 * The process is the helper program (sdk/helper.h), not a forked child: a hang there is caused by the plugin, never by
 * a lock that another thread of this process held. It calls the functions that this process calls next, and stores the
 * current one on a page of memory that both map. A failure with a message counts as success, since this process gets
 * the same message. */
#ifndef HAL_SRC_PLUGIN_TRIAL_H_
#define HAL_SRC_PLUGIN_TRIAL_H_

#include <stdatomic.h>

#include "plugin/plugin.h"

/* The current step of a plugin, in addition to the slots of plugin_ops.def. BEGUN: the helper has not reached its
 * work. */
enum { HAL_TRIAL_BEGUN = HAL_SLOT_COUNT, HAL_TRIAL_LOADING, HAL_TRIAL_ENTRY, HAL_TRIAL_DONE };

typedef struct hal_trial_page_s {
  atomic_uint step;
} hal_trial_page_t;

/* Makes this process the helper, which stores its steps on `page`. */
void hal_trial_report_to(hal_trial_page_t *page);

/* Records that the slot's function, or one of the above, is called next. Does nothing outside the helper. */
void hal_trial_step(uint32_t step);

/* Tries loading the plugin, and counting its devices. Returns HAL_OK if the helper completed, if the plugin is in the
 * HAL's own folder, if HAL_PLUGIN_TRIAL=0 is set, or if the program has a sanitizer that the helper does not have.
 * Errors: HAL_INCOMPATIBLE = it crashed, ended the process or did not return, with plugin (`path`), function and what
 * to do; HAL_FAILED_PRECONDITION = the helper is missing or cannot be started. */
hal_status_t hal_trial_load(const char *path);

/* Tries what makes the devices of a loaded plugin ready, too: init, then device_info of each. As hal_trial_load. */
hal_status_t hal_trial_start(const hal_plugin_t *plugin);

#endif /* HAL_SRC_PLUGIN_TRIAL_H_ */
