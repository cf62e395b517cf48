/* text.c: formats text in fixed buffers, and parses lists. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void hal_text_append(char *text, size_t size, const char *format, ...) {
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, size - used, format, arguments);
  va_end(arguments);
}

int hal_text_lists(const char *list, const char *item) {
  const size_t length = strlen(item);
  for (const char *at = list; *at;) {
    const size_t size = strcspn(at, ",");
    if (size == length && memcmp(at, item, length) == 0) return 1;
    at += size + (at[size] == ',');
  }
  return 0;
}
