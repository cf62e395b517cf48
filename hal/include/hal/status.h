/* status.h: status codes with a message per thread. The codes are in plugin.h. */
#ifndef HAL_STATUS_H_
#define HAL_STATUS_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the name of a code, such as "RESOURCE_EXHAUSTED"; "UNRECOGNISED" for an unknown code. The string is static.
 * Since 0.1. */
HAL_API const char *hal_status_name(hal_status_t code);

/* Returns the message of the calling thread's last failure, "" if there was none. Valid until the thread's next failing
 * call. Since 0.1. */
HAL_API const char *hal_error_message(void);

/* Stores a message for the calling thread and returns `code`. A message contains what failed, the value, and what to
 * do; it is cut at 1 KiB. Since 0.1. */
HAL_API hal_status_t hal_error_set(hal_status_t code, const char *format, ...) HAL_PRINTF(2, 3);

/* Prepends text such as "while loading x: " to the calling thread's message and returns `code`. Since 0.1. */
HAL_API hal_status_t hal_error_prefix(hal_status_t code, const char *format, ...) HAL_PRINTF(2, 3);

#define HAL_RETURN_IF_ERROR(expr)                  \
  do {                                             \
    const hal_status_t hal_status_ = (expr);       \
    if (hal_status_ != HAL_OK) return hal_status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif /* HAL_STATUS_H_ */
