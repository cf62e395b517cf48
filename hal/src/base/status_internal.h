/* status_internal.h: what the HAL's parts need of status.c beyond the public header. Private to hal/src. */
#ifndef HAL_SRC_STATUS_INTERNAL_H_
#define HAL_SRC_STATUS_INTERNAL_H_

#include "hal/status.h"

/* The error_set of the host API: keeps a plugin's message until the failure is reported. */
hal_status_t hal_error_from_plugin(hal_status_t code, int64_t native_code, const char *message);

/* Before a call of a plugin whose message is to be judged: forgets that an earlier one is unreported. */
void hal_error_forget_plugin(void);

/* Returns whether the plugin has set a message for this failure. */
int hal_error_has_plugin_message(hal_status_t status);

/* Around a call of a function that the application or a plugin has set, which may fail without a message: an older message belongs to another
 * failure. hal_error_since, with the result of hal_error_mark, replaces it if the function set none, and returns `status`. */
uint64_t hal_error_mark(void);
hal_status_t hal_error_since(uint64_t mark, hal_status_t status);

/* Around code that is no part of the thread's call, such as a callback: its failures leave the thread's message as it is. */
enum { HAL_ERROR_BYTES = 1024 }; /* of a message with its 0; promised in status.h */
typedef struct hal_error_saved_s {
  char text[HAL_ERROR_BYTES];
  hal_status_t plugin_code;
  uint64_t count;
} hal_error_saved_t;
void hal_error_save(hal_error_saved_t *out_saved);
void hal_error_restore(const hal_error_saved_t *saved);

/* Sets the fixed message of HAL_NOT_READY and returns the code. Cheap enough to poll with. */
hal_status_t hal_error_not_ready(void);

/* Finds the code with this name of `length` bytes: 1 when there is one, else 0. */
int hal_status_parse(const char *name, size_t length, hal_status_t *out_code);

#endif /* HAL_SRC_STATUS_INTERNAL_H_ */
