/* config.c: PYTORCH_ALLOC_CONF, and the sizes that it determines.
 *
 * The text is `key:value,key:value,...`; a value may be a list in brackets whose items contain colons. */
#include "memory/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One key:value of the text, as a span. */
typedef struct setting_s {
  const char *variable;
  const char *key, *value;
  int key_length, value_length;
  hal_status_t *status; /* of the change at run time, whose first error it is; NULL: errors are logged */
} setting_t;

static void reject(const setting_t *setting, const char *reason) {
  if (setting->status) {
    if (!*setting->status)
      *setting->status =
          hal_error_set(HAL_INVALID_ARGUMENT, "%s: invalid setting %.*s:%.*s: %s", setting->variable,
                        setting->key_length, setting->key, setting->value_length, setting->value, reason);
    return;
  }
  hal_log(HAL_LOG_WARNING, "%s: %.*s:%.*s is ignored: %s", setting->variable, setting->key_length, setting->key,
          setting->value_length, setting->value, reason);
}

static int key_is(const setting_t *setting, const char *key) {
  return (size_t)setting->key_length == strlen(key) && !memcmp(setting->key, key, strlen(key));
}

static int value_is(const setting_t *setting, const char *value) {
  return (size_t)setting->value_length == strlen(value) && !memcmp(setting->value, value, strlen(value));
}

/* Reads a whole decimal number from a span. Returns 1, or 0 if the span is not a number. */
static int read_number(const char *text, int length, size_t *out_number) {
  size_t number = 0;
  if (length <= 0) return 0;
  for (int i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return 0;
    if (__builtin_mul_overflow(number, (size_t)10, &number)) return 0;
    if (__builtin_add_overflow(number, (size_t)(text[i] - '0'), &number)) return 0;
  }
  *out_number = number;
  return 1;
}

/* Reads a size in MiB that must be greater than `above` MiB. */
static void set_megabytes(const setting_t *setting, size_t above, const char *reason, size_t *out_bytes) {
  size_t number = 0, bytes = 0;
  if (!read_number(setting->value, setting->value_length, &number) ||
      __builtin_mul_overflow(number, HAL_MEM_MIB, &bytes)) {
    reject(setting, "the value must be a whole number of megabytes");
  } else if (number <= above) {
    reject(setting, reason);
  } else {
    *out_bytes = bytes;
  }
}

static void set_truth(const setting_t *setting, uint32_t *out_value) {
  if (value_is(setting, "True") || value_is(setting, "true") || value_is(setting, "1"))
    *out_value = 1;
  else if (value_is(setting, "False") || value_is(setting, "false") || value_is(setting, "0"))
    *out_value = 0;
  else
    reject(setting, "the value must be True or False");
}

/* Reads a number between 0 and 1; `one`: 1 is allowed. */
static void set_share(const setting_t *setting, int one, const char *reason, double *out_share) {
  char text[32], *end = NULL;
  double value = NAN;
  if (setting->value_length > 0 && (size_t)setting->value_length < sizeof(text)) {
    memcpy(text, setting->value, (size_t)setting->value_length);
    text[setting->value_length] = '\0';
    value = strtod(text, &end);
    if (*end) value = NAN;
  }
  if (value > 0.0 && (value < 1.0 || (one && value == 1.0))) {
    *out_share = value;
  } else {
    reject(setting, reason);
  }
}

static int is_power_of_two(size_t number) { return number && !(number & (number - 1)); }

/* Reads one item `size:divisions` of the list form, size in MiB or '>'. Steps before the first size use the first
 * value; '>' covers all steps after the last size. */
static int read_division(const char *item, int length, int *last, uint32_t divisions[HAL_MEM_ROUNDUP_STEPS]) {
  const char *colon = memchr(item, ':', (size_t)length);
  size_t value = 0, size = 0;
  if (!colon) return 0;
  const int head = (int)(colon - item);
  if (!read_number(colon + 1, length - head - 1, &value) || value > UINT32_MAX || (value && !is_power_of_two(value))) {
    return 0;
  }
  if (head == 1 && *item == '>') {
    for (int i = *last + 1; i < HAL_MEM_ROUNDUP_STEPS; i++) divisions[i] = (uint32_t)value;
    *last = HAL_MEM_ROUNDUP_STEPS - 1;
    return 1;
  }
  if (!read_number(item, head, &size) || !is_power_of_two(size)) return 0;
  int step = __builtin_ctzll(size);
  if (step >= HAL_MEM_ROUNDUP_STEPS) step = HAL_MEM_ROUNDUP_STEPS - 1;
  for (int i = 0; *last < 0 && i < step; i++) divisions[i] = (uint32_t)value;
  divisions[step] = (uint32_t)value;
  *last = step;
  return 1;
}

static void set_divisions(const setting_t *setting, hal_mem_config_t *config) {
  static const char reason[] =
      "the value must be a power of two, or a list such as [256:1,512:2,>:4] of sizes in megabytes "
      "and divisions that are powers of two";
  uint32_t divisions[HAL_MEM_ROUNDUP_STEPS] = {0};
  size_t number = 0;
  int last = -1, good = 1;
  if (read_number(setting->value, setting->value_length, &number)) {
    good = number <= UINT32_MAX && (!number || is_power_of_two(number));
    for (int i = 0; i < HAL_MEM_ROUNDUP_STEPS; i++) divisions[i] = (uint32_t)number;
  } else if (setting->value_length >= 2 && *setting->value == '[' && setting->value[setting->value_length - 1] == ']') {
    const char *item = setting->value + 1, *const end = setting->value + setting->value_length - 1;
    while (good && item <= end) {
      const char *comma = item < end ? memchr(item, ',', (size_t)(end - item)) : NULL;
      const char *stop = comma ? comma : end;
      good = read_division(item, (int)(stop - item), &last, divisions);
      item = stop + 1;
    }
  } else {
    good = 0;
  }
  if (!good) {
    reject(setting, reason);
    return;
  }
  config->roundup_on = 0;
  for (int i = 0; i < HAL_MEM_ROUNDUP_STEPS; i++) config->roundup_on |= divisions[i] > 1;
  memcpy(config->roundup_divisions, divisions, sizeof(divisions));
}

/* Keys that other components or other allocators read. */
static int is_foreign(const setting_t *setting) {
  static const char *const keys[] = {"backend",
                                     "release_lock_on_cudamalloc",
                                     "pinned_use_cuda_host_register",
                                     "pinned_num_register_threads",
                                     "pinned_use_background_threads",
                                     "pinned_reserve_segment_size_mb",
                                     "pinned_max_round_threshold_mb",
                                     "graph_capture_record_stream_reuse"};
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    if (key_is(setting, keys[i])) return 1;
  }
  return 0;
}

static void skip_foreign(const setting_t *setting) {
  if (!setting->status)
    hal_log(HAL_LOG_DEBUG, "%s: %.*s is not a setting of this allocator", setting->variable, setting->key_length,
            setting->key);
  else if (!*setting->status)
    *setting->status = hal_error_set(HAL_UNIMPLEMENTED, "%s: %.*s is not a setting of this allocator; leave it out",
                                     setting->variable, setting->key_length, setting->key);
}

static void apply(const setting_t *setting, hal_mem_config_t *config) {
  if (key_is(setting, "max_split_size_mb")) {
    set_megabytes(setting, HAL_MEM_LARGE_SEGMENT / HAL_MEM_MIB - 1, "the value must be at least 20",
                  &config->max_split_size);
  } else if (key_is(setting, "max_non_split_rounding_mb")) {
    set_megabytes(setting, 0, "the value must be greater than 0", &config->max_non_split_rounding);
  } else if (key_is(setting, "large_segment_size_mb")) {
    /* A segment must hold the largest request that it serves. */
    set_megabytes(setting, HAL_MEM_LARGE_LIMIT / HAL_MEM_MIB - 1, "the value must be at least 10",
                  &config->large_segment_size);
  } else if (key_is(setting, "pinned_max_cached_size_mb")) {
    set_megabytes(setting, 0, "the value must be greater than 0", &config->pinned_max_cached_size);
  } else if (key_is(setting, "garbage_collection_threshold")) {
    set_share(setting, 0, "the value must be a number between 0 and 1, both excluded",
              &config->garbage_collection_threshold);
  } else if (key_is(setting, "per_process_memory_fraction")) {
    set_share(setting, 1, "the value must be a number greater than 0 and at most 1", &config->memory_fraction);
  } else if (key_is(setting, "roundup_power2_divisions")) {
    set_divisions(setting, config);
  } else if (key_is(setting, "expandable_segments")) {
    set_truth(setting, &config->expandable_segments);
  } else if (is_foreign(setting)) {
    skip_foreign(setting);
  } else {
    reject(setting, "unknown setting");
  }
}

static void defaults(hal_mem_config_t *config) {
  *config = (hal_mem_config_t){.max_split_size = SIZE_MAX,
                               .max_non_split_rounding = HAL_MEM_LARGE_SEGMENT,
                               .large_segment_size = HAL_MEM_LARGE_SEGMENT,
                               .pinned_max_cached_size = SIZE_MAX};
}

static const char *skip_spaces(const char *text) {
  while (*text == ' ' || *text == '\t') text++;
  return text;
}

/* Returns the length of a span without trailing spaces. */
static int trimmed(const char *begin, const char *end) {
  while (end > begin && (end[-1] == ' ' || end[-1] == '\t')) end--;
  return (int)(end - begin);
}

/* Applies all settings of a text. */
static void apply_all(const char *variable, const char *text, hal_status_t *status, hal_mem_config_t *config) {
  for (text = skip_spaces(text); *text; text = skip_spaces(text)) {
    const size_t length = strcspn(text, ":,");
    setting_t setting = {
        .variable = variable, .key = text, .key_length = trimmed(text, text + length), .value = "", .status = status};
    text += length;
    if (*text != ':') {
      if (setting.key_length) reject(&setting, "expected key:value");
      if (*text) text++;
      continue;
    }
    const char *value = skip_spaces(text + 1), *end = value;
    for (int depth = 0; *end && (depth > 0 || *end != ','); end++) depth += (*end == '[') - (*end == ']');
    setting.value = value, setting.value_length = trimmed(value, end);
    apply(&setting, config);
    text = *end ? end + 1 : end;
  }
}

void hal_mem_config_parse(const char *variable, const char *text, hal_mem_config_t *out_config) {
  defaults(out_config);
  if (text) apply_all(variable, text, NULL, out_config);
}

hal_status_t hal_mem_config_change(const char *caller, const char *text, hal_mem_config_t *config) {
  hal_status_t status = HAL_OK;
  apply_all(caller, text, &status, config);
  return status;
}

void hal_mem_config_load(hal_mem_config_t *out_config) {
  const char *variable = "PYTORCH_ALLOC_CONF", *text = getenv(variable);
  if (!text) {
    variable = "PYTORCH_CUDA_ALLOC_CONF";
    text = getenv(variable);
  }
  hal_mem_config_parse(variable, text, out_config);
}

/* Rounds up to the next of `divisions` equal steps between two powers of two. */
static size_t round_division(size_t size, uint32_t divisions) {
  if (is_power_of_two(size)) return size;
  const size_t floor = (size_t)1 << (63 - __builtin_clzll(size));
  const size_t step = floor / divisions;
  size_t rounded = 0;
  if (!step || __builtin_add_overflow(size, step - 1, &rounded)) return 0;
  return rounded & ~(step - 1);
}

size_t hal_mem_config_round(const hal_mem_config_t *config, size_t size) {
  size_t rounded = 0;
  if (config->roundup_on && size > HAL_MEM_GRANULE) {
    int step = 63 - __builtin_clzll(size) - 20; /* 1 MiB is 2^20 */
    step = step < 0 ? 0 : step >= HAL_MEM_ROUNDUP_STEPS ? HAL_MEM_ROUNDUP_STEPS - 1 : step;
    const uint32_t divisions = config->roundup_divisions[step];
    if (divisions > 1 && size > HAL_MEM_GRANULE * divisions) {
      size = round_division(size, divisions);
      if (!size) return 0;
    }
  }
  if (__builtin_add_overflow(size, HAL_MEM_GRANULE - 1, &rounded)) return 0;
  return rounded & ~(HAL_MEM_GRANULE - 1);
}

size_t hal_mem_config_segment(const hal_mem_config_t *config, size_t rounded) {
  size_t segment = 0;
  if (rounded <= HAL_MEM_SMALL_LIMIT) return HAL_MEM_SMALL_SEGMENT;
  if (rounded < HAL_MEM_LARGE_LIMIT) return config->large_segment_size;
  if (__builtin_add_overflow(rounded, HAL_MEM_SEGMENT_ROUND - 1, &segment)) return 0;
  return segment & ~(HAL_MEM_SEGMENT_ROUND - 1);
}
