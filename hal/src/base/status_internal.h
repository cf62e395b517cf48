/* status_internal.h: functions of status.c for other components, in addition to the public header. Private to
 * hal/src. */
#ifndef HAL_SRC_STATUS_INTERNAL_H_
#define HAL_SRC_STATUS_INTERNAL_H_

#include "hal/status.h"

/* The error_set of the host API: stores a plugin's message until the failure is reported. */
hal_status_t hal_error_from_plugin(hal_status_t code, int64_t native_code, const char *message);

/* Called before a plugin whose message will be used: discards an earlier message that was not reported. */
void hal_error_forget_plugin(void);

/* Returns whether the plugin has set a message for this failure. */
int hal_error_has_plugin_message(hal_status_t status);

/* For a call of a function of the application or a plugin that may fail without a message, when an older message
 * belongs to another failure. Call hal_error_mark before it, and hal_error_since with that mark after it:
 * hal_error_since replaces the message if the function set none, and returns `status`. */
uint64_t hal_error_mark(void);
hal_status_t hal_error_since(uint64_t mark, hal_status_t status);

/* For code that is not part of the thread's call, such as a callback: its failures do not change the thread's
 * message. */
enum { HAL_ERROR_BYTES = 1024 }; /* of a message with its 0; documented in status.h */
typedef struct hal_error_saved_s {
  char text[HAL_ERROR_BYTES];
  hal_status_t plugin_code;
  uint64_t count;
} hal_error_saved_t;
void hal_error_save(hal_error_saved_t *out_saved);
void hal_error_restore(const hal_error_saved_t *saved);

/* Sets the constant message of HAL_NOT_READY and returns the code. Cheap enough for polling. */
hal_status_t hal_error_not_ready(void);

/* Finds the code with this name of `length` bytes. Returns whether there is one: 1 or 0. */
int hal_status_parse(const char *name, size_t length, hal_status_t *out_code);

#endif /* HAL_SRC_STATUS_INTERNAL_H_ */
