/* log.h: the HAL's log, to standard error. `HAL_LOG` = error, warning (default), info or debug. */
#ifndef HAL_LOG_H_
#define HAL_LOG_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line of log, without a newline; `level` is HAL_LOG_*. May be called from any thread, while that thread holds no lock of the
 * HAL: a line that is logged under one follows when the lock is released. */
typedef void (*hal_log_sink_t)(int32_t level, const char *message, void *user_data);

/* Logs one line when `level` is on. Since 0.1. */
HAL_API void hal_log(int32_t level, const char *format, ...) HAL_PRINTF(2, 3);

/* Sends the log to `sink` instead of standard error; NULL restores it. `user_data` must outlive its use. Since 0.1. */
HAL_API void hal_log_set_sink(hal_log_sink_t sink, void *user_data);

/* Returns whether a level is on: 1 or 0. Since 0.1. */
HAL_API int32_t hal_log_enabled(int32_t level);

#ifdef __cplusplus
}
#endif
#endif /* HAL_LOG_H_ */
