/* trial.h: what a plugin does before its first device is ready is tried in another process first. A plugin that crashes
 * or hangs takes the whole program with it, and neither a check of its file nor a handler of the signal can help; in
 * another process it is an error with the plugin and the function. Private to hal/src.
 *
 * The process is the helper program (sdk/helper.h), not a forked child: a hang there is the plugin's, never that of
 * a lock which another thread of this process held. It calls the functions that this process calls next, and stores
 * on a page of memory that both map which one it is in. What fails with a message passes, since this process gets
 * the same message. */
#ifndef HAL_SRC_PLUGIN_TRIAL_H_
#define HAL_SRC_PLUGIN_TRIAL_H_

#include <stdatomic.h>

#include "plugin/plugin.h"

/* What a plugin is doing, beside the slots of plugin_ops.def. BEGUN: the helper has not come to its work. */
enum { HAL_TRIAL_BEGUN = HAL_SLOT_COUNT, HAL_TRIAL_LOADING, HAL_TRIAL_ENTRY, HAL_TRIAL_DONE };

typedef struct hal_trial_page_s {
  atomic_uint step;
} hal_trial_page_t;

/* Makes this process the one that tries: its steps are stored on `page`. */
void hal_trial_report_to(hal_trial_page_t *page);

/* Records that the slot's function, or one of the above, is called next. Does nothing outside the helper. */
void hal_trial_step(uint32_t step);

/* Tries loading the plugin, and counting its devices. Returns HAL_OK when the helper came to the end, when the
 * plugin is one of the HAL's own folder, when HAL_PLUGIN_TRIAL=0 is set, or when the program has a sanitizer that
 * the helper has not. Errors: HAL_INCOMPATIBLE = it crashed, ended the process or did not come back, with plugin
 * (`path`), function and cure; HAL_FAILED_PRECONDITION = the helper is missing or cannot be started. */
hal_status_t hal_trial_load(const char *path);

/* Tries what makes the devices of a loaded plugin ready, too: init, then device_info of each. As hal_trial_load. */
hal_status_t hal_trial_start(const hal_plugin_t *plugin);

#endif /* HAL_SRC_PLUGIN_TRIAL_H_ */
