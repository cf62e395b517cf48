/* plugin_count.h: for plugins whose driver must be initialized to count its devices, and does not survive a later fork.
 * Another process counts them: the program torch_backend_hal_helper, which is installed in the directory of
 * libtorch_backend_hal.so.0. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_COUNT_H_
#define HAL_PLUGIN_COUNT_H_

#include <pthread.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAL_COUNT_WHY = 1024 };

/* Initializes the driver and counts; called in the other process. After a failure it writes a NUL-terminated reason to
 * `why`, HAL_COUNT_WHY bytes, and sets no message. */
typedef hal_status_t (*hal_count_fn_t)(int32_t *out_count, char *why);

/* Initializer of the last four members of hal_counter_t. */
#define HAL_COUNTER_NEW PTHREAD_MUTEX_INITIALIZER, -1, 0, ""

/* A static variable, valid until the process ends. Since 0.2. */
typedef struct hal_counter_s {
  const char *plugin; /* begins messages */
  const char *advice; /* ends messages of a driver that crashes or hangs */
  hal_count_fn_t count;
  pthread_mutex_t lock; /* HAL_COUNTER_NEW */
  int32_t told;         /* the result; -1: none yet */
  hal_status_t status;
  char why[HAL_COUNT_WHY];
} hal_counter_t;

/* Counts the devices in another process, once; later calls return the same result. Called by hal_plugin_device_count:
 * the other process loads the plugin, with the environment of this one, and calls its device_count, whose
 * hal_count_devices calls `count` there. The other process is killed if it does not finish within 30 seconds.
 * Thread-safe. Errors: what `count` returned; HAL_UNAVAILABLE = the other process crashed or hung;
 * HAL_FAILED_PRECONDITION = the helper is missing or cannot be started. Since 0.2. */
hal_status_t hal_count_devices(hal_counter_t *counter, int32_t *out_count);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_COUNT_H_ */
