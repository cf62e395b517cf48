/* log_internal.h: what the HAL's parts need of log.c beyond the public header. Private to hal/src. */
#ifndef HAL_SRC_LOG_INTERNAL_H_
#define HAL_SRC_LOG_INTERNAL_H_

#include "hal/log.h"

/* Writes one line whatever the level in force: the trace layer was asked for by name. */
void hal_log_write(int32_t level, const char *message);

/* The log of the host API. */
void hal_log_from_plugin(int32_t level, const char *message);

#endif /* HAL_SRC_LOG_INTERNAL_H_ */
