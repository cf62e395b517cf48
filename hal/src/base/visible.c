/* visible.c: lists of visible devices in the environment. */
#include "base/visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLE_BYTES = 64 };

static const char *const general = "HAL_VISIBLE_DEVICES";

typedef struct list_s {
  const char *variable, *name; /* of the plugin */
  int32_t *ordinals;
  int32_t used, most, count; /* count: devices of the plugin */
} list_t;

/* Returns the value of "FAKE_VISIBLE_DEVICES" for "fake", and writes that name. */
static const char *value_of(const char *name, char variable[VARIABLE_BYTES]) {
  size_t i = 0;
  for (; name[i] && i < VARIABLE_BYTES / 2; i++)
    variable[i] = isalnum((unsigned char)name[i]) ? (char)toupper((unsigned char)name[i]) : '_';
  snprintf(variable + i, VARIABLE_BYTES - i, "_VISIBLE_DEVICES");
  return getenv(variable);
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Appends the entry at `text`, which ends at a comma or the end of the list. Blanks around its number are ignored. */
static hal_status_t append(list_t *list, const char *text, size_t length) {
  char *end;
  for (; length && is_blank(*text); length--) text++;
  while (length && is_blank(text[length - 1])) length--;
  const long number = length && isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
  if (number < 0 || end != text + length)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "%s: '%.*s' is not a device's number; expected numbers separated by commas, as in 0,2",
                         list->variable, (int)length, text);
  if (number >= list->count)
    return hal_error_set(HAL_OUT_OF_RANGE, "%s: invalid device %.*s: %s has %d; expected numbers in [0, %d)",
                         list->variable, (int)length, text, list->name, (int)list->count, (int)list->count);
  for (int32_t i = 0; i < list->used; i++)
    if (list->ordinals[i] == number)
      return hal_error_set(HAL_INVALID_ARGUMENT, "%s: device %ld is listed twice; name each device once",
                           list->variable, number);
  if (list->used == list->most)
    return hal_error_set(HAL_INVALID_ARGUMENT, "%s: a process has at most %d devices; name fewer", list->variable,
                         (int)list->most);
  list->ordinals[list->used++] = (int32_t)number;
  return HAL_OK;
}

static hal_status_t read_list(list_t *list, const char *text) {
  if (!*text)
    return hal_error_set(HAL_UNAVAILABLE,
                         "%s is empty, so %s has no visible device; list devices as in 0,2, or unset it",
                         list->variable, list->name);
  for (const char *at = text;; at++) {
    const size_t length = strcspn(at, ",");
    HAL_RETURN_IF_ERROR(append(list, at, length));
    at += length;
    if (!*at) return HAL_OK;
  }
}

hal_status_t hal_visible_devices(const char *name, int32_t most, int32_t *ordinals, int32_t *count) {
  char own[VARIABLE_BYTES];
  const char *const of_plugin = value_of(name, own), *const text = of_plugin ? of_plugin : getenv(general);
  list_t list = {
      .variable = of_plugin ? own : general, .name = name, .ordinals = ordinals, .most = most, .count = *count};
  if (!text) return HAL_OK;
  HAL_RETURN_IF_ERROR(read_list(&list, text));
  *count = list.used;
  return HAL_OK;
}
