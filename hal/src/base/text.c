/* text.c: formats text in fixed buffers, parses lists, and makes text valid UTF-8. */
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

/* Returns the number of bytes of the character at `text`; 0 = it is not valid: a stray or missing byte, a longer form
 * than necessary, a surrogate, or a number above U+10FFFF. */
static size_t character_bytes(const unsigned char *text) {
  const size_t bytes = *text < 0x80 ? 1 : *text < 0xC2 ? 0 : *text < 0xE0 ? 2 : *text < 0xF0 ? 3 : *text < 0xF5 ? 4 : 0;
  for (size_t i = 1; i < bytes; i++)
    if ((text[i] & 0xC0) != 0x80) return 0; /* the terminator is no such byte */
  if (bytes == 3 && ((*text == 0xE0 && text[1] < 0xA0) || (*text == 0xED && text[1] > 0x9F))) return 0;
  if (bytes == 4 && ((*text == 0xF0 && text[1] < 0x90) || (*text == 0xF4 && text[1] > 0x8F))) return 0;
  return bytes;
}

void hal_text_make_utf8(char *text) {
  while (*text) {
    const size_t bytes = character_bytes((const unsigned char *)text);
    if (!bytes) *text = '?';
    text += bytes ? bytes : 1;
  }
}
