/* status.c: status codes and the message per thread. */
#include "hal/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status_internal.h"
#include "base/text.h"

/* Plain thread-local data without a destructor, so that it is usable while a thread ends. */
static _Thread_local struct {
  char text[HAL_ERROR_BYTES];
  hal_status_t plugin_code; /* code of a message that came through the host API and was not reported yet, or HAL_OK */
  uint64_t count;           /* number of messages so far */
} last;

static void keep(const char *text) {
  memcpy(last.text, text, strlen(text) + 1);
  last.plugin_code = HAL_OK;
  last.count++;
}

static const struct {
  hal_status_t code;
  const char *name;
} names[] = {
    {HAL_OK, "OK"},
    {HAL_UNKNOWN, "UNKNOWN"},
    {HAL_INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {HAL_NOT_FOUND, "NOT_FOUND"},
    {HAL_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {HAL_FAILED_PRECONDITION, "FAILED_PRECONDITION"},
    {HAL_ABORTED, "ABORTED"},
    {HAL_OUT_OF_RANGE, "OUT_OF_RANGE"},
    {HAL_UNIMPLEMENTED, "UNIMPLEMENTED"},
    {HAL_INTERNAL, "INTERNAL"},
    {HAL_UNAVAILABLE, "UNAVAILABLE"},
    {HAL_DATA_LOSS, "DATA_LOSS"},
    {HAL_NOT_READY, "NOT_READY"},
    {HAL_INCOMPATIBLE, "INCOMPATIBLE"},
};

const char *hal_status_name(hal_status_t code) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (names[i].code == code) return names[i].name;
  return "UNRECOGNISED";
}

int hal_status_parse(const char *name, size_t length, hal_status_t *out_code) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strlen(names[i].name) == length && memcmp(names[i].name, name, length) == 0) {
      *out_code = names[i].code;
      return 1;
    }
  return 0;
}

const char *hal_error_message(void) { return last.text; }

hal_status_t hal_error_set(hal_status_t code, const char *format, ...) {
  char text[HAL_ERROR_BYTES]; /* an argument may be the current message */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  hal_text_make_utf8(text);
  keep(text);
  return code;
}

hal_status_t hal_error_prefix(hal_status_t code, const char *format, ...) {
  char text[HAL_ERROR_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof text)
    snprintf(text + length, sizeof text - (size_t)length, "%s", last.text);
  hal_text_make_utf8(text);
  keep(text);
  return code;
}

hal_status_t hal_error_not_ready(void) {
  static const char text[] = "the work is not done yet; synchronize, or query again later";
  keep(text); /* no formatting, since callers poll */
  return HAL_NOT_READY;
}

hal_status_t hal_error_from_plugin(hal_status_t code, int64_t native_code, const char *message) {
  if (native_code)
    hal_error_set(code, "%s (driver code %lld)", message ? message : "no message", (long long)native_code);
  else
    hal_error_set(code, "%s", message ? message : "no message");
  last.plugin_code = code;
  return code;
}

void hal_error_forget_plugin(void) { last.plugin_code = HAL_OK; }

int hal_error_has_plugin_message(hal_status_t status) { return last.plugin_code == status; }

void hal_error_save(hal_error_saved_t *out_saved) {
  memcpy(out_saved->text, last.text, strlen(last.text) + 1);
  out_saved->plugin_code = last.plugin_code;
  out_saved->count = last.count;
}

void hal_error_restore(const hal_error_saved_t *saved) {
  keep(saved->text);
  last.plugin_code = saved->plugin_code;
  last.count = saved->count;
}

uint64_t hal_error_mark(void) { return last.count; }

hal_status_t hal_error_since(uint64_t mark, hal_status_t status) {
  last.plugin_code = HAL_OK; /* a plugin's compiler sets its message through the host API; it is reported here */
  if (!status || last.count != mark) return status;
  return hal_error_set(status, "failed with %s (%d) without a message", hal_status_name(status), (int)status);
}
