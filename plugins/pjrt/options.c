/* options.c: the options of a client, from HAL_PJRT_OPTIONS: name=value pairs separated by commas. The form of a value
 * determines its type: 3 is an integer, 0.5 a float, true and false are booleans, everything else is a string. A
 * semicolon separates the options of several platforms; without one, all platforms have the same options. */
#define _GNU_SOURCE /* strsep */
#include <errno.h>
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt.h"

static void set_value(pjrt_named_t *option, char *value) {
  char *end;
  option->value_size = 1;
  if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
    option->type = PJRT_BOOL;
    option->bool_value = *value == 't';
    return;
  }
  errno = 0;
  const long long number = strtoll(value, &end, 10);
  if (*value && !*end && !errno) {
    option->type = PJRT_INT64;
    option->int64_value = number;
    return;
  }
  const float fraction = strtof(value, &end);
  if (*value && !*end) {
    option->type = PJRT_FLOAT;
    option->float_value = fraction;
    return;
  }
  option->type = PJRT_STRING;
  option->string_value = value;
  option->value_size = strlen(value);
}

/* Returns the part of HAL_PJRT_OPTIONS for a platform, of the list that begins at `text`, which has as many parts as
 * there are platforms, or one for all. */
static char *part_of(char *text, int32_t platform) {
  char *part, *rest = text;
  if (!strchr(text, ';')) return text;
  while ((part = strsep(&rest, ";")) && platform > 0) platform--;
  return part;
}

static hal_status_t check_parts(const char *setting, char *why) {
  int32_t parts = 1;
  for (const char *at = setting; (at = strchr(at, ';')); at++) parts++;
  if (parts == 1 || parts == pjrt.platform_count) return HAL_OK;
  snprintf(why, HAL_COUNT_WHY,
           "pjrt: HAL_PJRT_OPTIONS has options for %d platforms, separated by semicolons, and HAL_PJRT_PLUGIN has %d",
           (int)parts, (int)pjrt.platform_count);
  return HAL_INVALID_ARGUMENT;
}

/* Reads the pairs of HAL_PJRT_OPTIONS. */
static hal_status_t read_setting(pjrt_options_t *options, int32_t platform, char *why) {
  const char *const setting = hal_setting("HAL_PJRT_OPTIONS");
  if (!setting || !*setting) return HAL_OK;
  const hal_status_t status = check_parts(setting, why);
  if (status) return status;
  if (strlen(setting) >= sizeof options->text) {
    snprintf(why, HAL_COUNT_WHY, "pjrt: HAL_PJRT_OPTIONS has %zu characters, more than %zu", strlen(setting),
             sizeof options->text - 1);
    return HAL_INVALID_ARGUMENT;
  }
  strcpy(options->text, setting);
  char *rest = part_of(options->text, platform);
  if (!*rest) return HAL_OK;
  for (char *pair; (pair = strsep(&rest, ","));) {
    char *const value = strchr(pair, '=');
    if (!value || value == pair || options->count == PJRT_MAX_OPTIONS) {
      snprintf(why, HAL_COUNT_WHY,
               "pjrt: invalid HAL_PJRT_OPTIONS at '%.100s': expected at most %d pairs name=value, separated by commas",
               pair, PJRT_MAX_OPTIONS);
      return HAL_INVALID_ARGUMENT;
    }
    *value = '\0';
    pjrt_named_t *const option = &options->options[options->count++];
    *option = (pjrt_named_t){.struct_size = sizeof *option, .name = pair, .name_size = strlen(pair)};
    set_value(option, value + 1);
  }
  return HAL_OK;
}

/* Returns the option of a name, a new one if there is none; NULL = there are too many. */
static pjrt_named_t *option_of(pjrt_options_t *options, const char *name) {
  for (size_t i = 0; i < options->count; i++)
    if (strcmp(options->options[i].name, name) == 0) return &options->options[i];
  return options->count < PJRT_MAX_OPTIONS ? &options->options[options->count++] : NULL;
}

static void set(pjrt_options_t *options, const char *name, char *value) {
  pjrt_named_t *const option = option_of(options, name);
  if (!option) return;
  *option = (pjrt_named_t){.struct_size = sizeof *option, .name = name, .name_size = strlen(name)};
  set_value(option, value);
}

hal_status_t pjrt_options_read(pjrt_options_t *options, int32_t platform, int single, char *why) {
  static char one[] = "1", no[] = "false";
  options->count = 0;
  const hal_status_t status = read_setting(options, platform, why);
  if (status || !single) return status;
  set(options, "cpu_device_count", one);
  set(options, "asynchronous", no);
  return HAL_OK;
}
