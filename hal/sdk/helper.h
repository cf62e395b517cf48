/* helper.h: finds and starts the helper program. It is installed in the directory of libtorch_backend_hal.so.0 and runs
 * in a separate process code of a driver or a plugin that may crash (hal/src/plugin/helper.h). A forked child is not
 * suitable: in a process with several threads it may only call functions that are safe in signal handlers, which
 * loading a library or initializing a driver is not. Compiled into the HAL and into libhal_plugin.a. */
#ifndef HAL_SDK_HELPER_H_
#define HAL_SDK_HELPER_H_

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define HAL_HELPER_FILE "torch_backend_hal_helper"

/* The first argument of the helper; the second is the absolute path of a plugin. */
#define HAL_HELPER_LOAD "load"   /* loads the plugin, probes and counts; file 3 is a page that trial.c maps */
#define HAL_HELPER_START "start" /* the same, then init and the descriptions of all devices */
#define HAL_HELPER_COUNT \
  "count" /* loads the plugin and counts in this very process; file 3 receives one hal_helper_count_t */

/* File descriptors of the helper: an empty input, a discarded output, messages, and the file of the operation. */
enum { HAL_HELPER_ANSWER = 3, HAL_HELPER_FILES = 4, HAL_HELPER_WHY = 1024 };

typedef struct hal_helper_count_s {
  int32_t status, count;
  char why[HAL_HELPER_WHY]; /* the message of a failure */
} hal_helper_count_t;

/* Finds the helper: in the directory of the file that contains the address `of`, or in ../lib of it, as for programs in
 * bin. Returns 0, or an errno number; `path` is then the first path that was tried. */
int hal_helper_find(const void *of, char path[PATH_MAX]);

/* Starts the helper `path` for `operation` on `plugin`; `messages` and `result` become its file descriptors 2 and 3. No
 * handler of pthread_atfork runs, and no memory is copied. In a privileged process the environment is not passed.
 * Returns 0, or an errno number. */
int hal_helper_start(pid_t *out_child, const char *path, const char *operation, const char *plugin, int messages,
                     int result);

#endif /* HAL_SDK_HELPER_H_ */
