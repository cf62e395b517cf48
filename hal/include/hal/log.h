/* log.h: the log of the HAL, on standard error. `HAL_LOG` = error, warning (default), info or debug. */
#ifndef HAL_LOG_H_
#define HAL_LOG_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line of the log, without a newline; `level` is HAL_LOG_*. Any thread may call it, and holds no lock of
 * the HAL then. A line that is logged under a lock is delivered after the lock is released. */
typedef void (*hal_log_sink_t)(int32_t level, const char *message, void *user_data);

/* Logs one line if `level` is enabled. Since 0.1. */
HAL_API void hal_log(int32_t level, const char *format, ...) HAL_PRINTF(2, 3);

/* Sends the log to `sink` instead of standard error; NULL restores standard error. `user_data` must stay valid as long
 * as the sink is set. Since 0.1. */
HAL_API void hal_log_set_sink(hal_log_sink_t sink, void *user_data);

/* Returns whether a level is enabled: 1 or 0. Since 0.1. */
HAL_API int32_t hal_log_enabled(int32_t level);

/* Returns the call stack of the calling thread, innermost frame first; NULL = the thread has none. A frame is a line
 * that begins with four spaces. The text must stay valid until the process ends, and equal stacks have the same
 * address. Any thread may call it. */
typedef const char *(*hal_stack_source_t)(void);

/* Sets the stacks that plugins report (`hal.stacks` in plugin_records.h), such as those of an interpreter; where it
 * returns NULL, and without one, they are those of C functions. NULL removes it. Since 0.5. */
HAL_API void hal_stack_set_source(hal_stack_source_t source);

/* Begins (1) and ends (0) copies of the calling thread to the host whose bytes the program may leave unused, so that
 * plugins do not report reads of memory that was never written. Calls nest. Since 0.5. */
HAL_API void hal_stack_set_unchecked(int32_t on);

#ifdef __cplusplus
}
#endif
#endif /* HAL_LOG_H_ */
