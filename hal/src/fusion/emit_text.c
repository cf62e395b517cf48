/* emit_text.c: kernel text that grows, and the names in it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fusion/emit.h"
#include "hal/host_memory.h"

char *hal_fuse_text_room(hal_fuse_text_t *text, size_t size) {
  if (text->room - text->size < size + 1) {
    const size_t room = 2 * (text->size + size) + 1024;
    char *const grown = hal_malloc(room);
    if (!grown) {
      text->failed = 1;
      return NULL;
    }
    if (text->size) memcpy(grown, text->data, text->size);
    hal_free(text->data);
    text->data = grown;
    text->room = room;
  }
  return text->data + text->size;
}

void hal_fuse_text_add(hal_fuse_text_t *text, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  char *const to = length >= 0 && (size_t)length < sizeof line ? hal_fuse_text_room(text, (size_t)length) : NULL;
  if (!to) {
    text->failed = 1;
    return;
  }
  memcpy(to, line, (size_t)length + 1);
  text->size += (size_t)length;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

void hal_fuse_instance(const hal_fuse_step_t *step, char instance[HAL_FUSE_NAME]) {
  static const char *const variants[] = {"contig", "contig_s", "rows", "rows_s"};
  const char *const name = step->kernel->form.name;
  size_t length = strlen(name);
  for (size_t i = 0; i < 4; i++)
    if (ends_with(name, variants[i])) length = strlen(name) - strlen(variants[i]);
  memcpy(instance, name, length);
  instance[length] = '\0';
}
