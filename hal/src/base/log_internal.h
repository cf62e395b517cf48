/* log_internal.h: functions of log.c for the HAL's components, in addition to the public header. Private to hal/src. */
#ifndef HAL_SRC_LOG_INTERNAL_H_
#define HAL_SRC_LOG_INTERNAL_H_

#include "hal/log.h"

/* Writes one line regardless of the level: the user has requested the trace layer. */
void hal_log_write(int32_t level, const char *message);

/* The log of the host API. */
void hal_log_from_plugin(int32_t level, const char *message);

#endif /* HAL_SRC_LOG_INTERNAL_H_ */
