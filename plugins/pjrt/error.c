/* error.c: PJRT's errors as status codes and messages. */
#include <stdarg.h>
#include <stdio.h>

#include "pjrt.h"

hal_status_t pjrt_error(hal_status_t code, const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(code, 0, message);
}

/* PJRT's codes are absl's, which are also the HAL's, except for those that the HAL reserves. */
static hal_status_t status_of(int code) {
  switch (code) {
    case 1: /* cancelled */
    case 4: /* deadline exceeded */
      return HAL_ABORTED;
    case 6:  /* already exists */
    case 7:  /* permission denied */
    case 16: /* unauthenticated */
      return HAL_FAILED_PRECONDITION;
    case HAL_INVALID_ARGUMENT:
    case HAL_NOT_FOUND:
    case HAL_RESOURCE_EXHAUSTED:
    case HAL_FAILED_PRECONDITION:
    case HAL_ABORTED:
    case HAL_OUT_OF_RANGE:
    case HAL_UNIMPLEMENTED:
    case HAL_INTERNAL:
    case HAL_UNAVAILABLE:
    case HAL_DATA_LOSS:
      return code;
    default:
      return HAL_UNKNOWN;
  }
}

hal_status_t pjrt_failed(const pjrt_table_t *table, pjrt_error_t *error, pjrt_failure_t *out_failure) {
  out_failure->status = HAL_OK; /* the text is read only after a failure, and calls are many */
  if (!error) return HAL_OK;
  pjrt_Error_Message_t message = {.error = error};
  pjrt_Error_GetCode_t code = {.error = error};
  pjrt_Error_Destroy_t destroy = {.error = error};
  PJRT_CALL(table, Error_Message, message);
  PJRT_CALL(table, Error_GetCode, code);
  const int room = (int)sizeof out_failure->text - 1;
  snprintf(out_failure->text, sizeof out_failure->text, "%.*s",
           message.message_size < (size_t)room ? (int)message.message_size : room,
           message.message ? message.message : "");
  out_failure->code = code.code;
  out_failure->status = status_of(code.code);
  PJRT_CALL(table, Error_Destroy, destroy);
  return out_failure->status;
}

hal_status_t pjrt_failure_report(const char *what, const pjrt_failure_t *failure) {
  char message[640];
  snprintf(message, sizeof message, "pjrt: %s: %s", what, failure->text);
  return hal_host->error_set(failure->status, failure->code, message);
}
