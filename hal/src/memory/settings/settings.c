/* settings.c: changes the settings of allocators at run time. */
#include <stdarg.h>
#include <stdio.h>

#include "memory/expand/expand.h"
#include "memory/pool.h"
#include "memory/settings/settings.h"

/* Locked before the lock of an allocator. */
static hal_lock_t lock;
static hal_mem_config_t current; /* once `is_changed`, or while there are allocators; else that of the environment */
static int is_changed;
static hal_allocator_t *allocators; /* by `next` */

/* Takes the lock with `current` set. Reading the environment may log, so it is done without the lock. */
static void lock_settings(void) {
  hal_mem_config_t loaded;
  hal_lock(&lock);
  if (is_changed || allocators) return;
  hal_unlock(&lock);
  hal_mem_config_load(&loaded);
  hal_lock(&lock);
  if (!is_changed && !allocators) current = loaded;
}

void hal_mem_settings_add(hal_allocator_t *allocator) {
  lock_settings();
  allocator->config = current;
  allocator->next = allocators;
  allocators = allocator;
  hal_unlock(&lock);
}

void hal_mem_settings_remove(hal_allocator_t *allocator) {
  hal_lock(&lock);
  hal_allocator_t **at = &allocators;
  while (*at && *at != allocator) at = &(*at)->next;
  if (*at) *at = allocator->next;
  hal_unlock(&lock);
}

/* ---- changes ---- */

/* Counts the oversize blocks of a subtree of the address map, whose depth is small (map.c), by a new limit. */
static void recount(hal_allocator_t *allocator, const hal_block_t *node, size_t limit) {
  if (!node) return;
  recount(allocator, node->left, limit);
  const size_t old = allocator->config.max_split_size;
  const uint32_t kind = node->pool->kind;
  if (node->pool->source == HAL_MEM_CACHED && !hal_mem_range_of(allocator, node))
    hal_mem_stat_change(&allocator->stats, kind, HAL_MEM_OVERSIZE_SEGMENTS,
                        (node->extent >= limit) - (node->extent >= old));
  for (const hal_block_t *block = node; block && block->state != HAL_MEM_LEAVING; block = block->next) {
    const int is_counted = block->state == HAL_MEM_PLAIN || block->state == HAL_MEM_SPECIAL;
    if (is_counted && kind == HAL_MEM_LARGE)
      hal_mem_stat_change(&allocator->stats, kind, HAL_MEM_OVERSIZE_ALLOCATIONS,
                          (block->size >= limit) - (block->size >= old));
  }
  recount(allocator, node->right, limit);
}

static void apply(hal_allocator_t *allocator, const hal_mem_config_t *config) {
  hal_lock(&allocator->lock);
  hal_mem_config_t *const to = &allocator->config;
  recount(allocator, allocator->map, config->max_split_size);
  to->max_split_size = config->max_split_size;
  to->max_non_split_rounding = config->max_non_split_rounding;
  to->large_segment_size = config->large_segment_size;
  to->pinned_max_cached_size = config->pinned_max_cached_size;
  to->garbage_collection_threshold = config->garbage_collection_threshold;
  for (int i = 0; i < HAL_MEM_ROUNDUP_STEPS; i++) to->roundup_divisions[i] = config->roundup_divisions[i];
  __atomic_store_n(&to->roundup_on, config->roundup_on, __ATOMIC_RELAXED); /* also read without the lock */
  hal_unlock(&allocator->lock);
}

/* Checks what cannot be changed. Called with the lock held. */
static hal_status_t check_fixed(const hal_mem_config_t *config) {
  if (config->memory_fraction < current.memory_fraction || config->memory_fraction > current.memory_fraction)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "hal_memory_configure: per_process_memory_fraction:%g cannot be set at run time; call "
                         "hal_memory_set_limit (set_per_process_memory_fraction in Python)",
                         config->memory_fraction);
  if (config->expandable_segments != current.expandable_segments && allocators)
    return hal_error_set(HAL_UNIMPLEMENTED,
                         "hal_memory_configure: expandable_segments:%s cannot be set once a device was used; set "
                         "PYTORCH_ALLOC_CONF=expandable_segments:%s before the program starts",
                         config->expandable_segments ? "True" : "False",
                         config->expandable_segments ? "True" : "False");
  return HAL_OK;
}

hal_status_t hal_memory_configure(const char *settings) {
  if (!settings)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_memory_configure: settings is NULL; pass a text such as \"%s\"",
                         "max_split_size_mb:200");
  lock_settings();
  hal_mem_config_t config = current;
  hal_status_t status = hal_mem_config_change("hal_memory_configure", settings, &config);
  if (!status) status = check_fixed(&config);
  if (!status) {
    current = config;
    is_changed = 1;
    for (hal_allocator_t *allocator = allocators; allocator; allocator = allocator->next) apply(allocator, &config);
  }
  hal_unlock(&lock);
  return status;
}

/* ---- text ---- */

typedef struct text_s {
  char *at;
  size_t size, length; /* length: of the whole text */
} text_t;

static void __attribute__((format(printf, 2, 3))) add(text_t *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t used = text->length < text->size ? text->length : text->size;
  text->length += (size_t)vsnprintf(text->at + used, text->size - used, format, arguments);
  va_end(arguments);
}

static void add_megabytes(text_t *text, const char *key, size_t bytes, size_t preset) {
  if (bytes != preset) add(text, "%s%s:%zu", text->length ? "," : "", key, bytes / HAL_MEM_MIB);
}

static void add_share(text_t *text, const char *key, double share) {
  if (share > 0) add(text, "%s%s:%.9g", text->length ? "," : "", key, share);
}

hal_status_t hal_memory_settings(char *out_text, size_t size) {
  lock_settings();
  const hal_mem_config_t config = current;
  hal_unlock(&lock);
  hal_mem_config_t preset;
  hal_mem_config_parse("", NULL, &preset);
  text_t text = {.at = out_text, .size = size};
  add(&text, "%s", "");
  add_megabytes(&text, "max_split_size_mb", config.max_split_size, preset.max_split_size);
  add_megabytes(&text, "max_non_split_rounding_mb", config.max_non_split_rounding, preset.max_non_split_rounding);
  add_megabytes(&text, "large_segment_size_mb", config.large_segment_size, preset.large_segment_size);
  add_megabytes(&text, "pinned_max_cached_size_mb", config.pinned_max_cached_size, preset.pinned_max_cached_size);
  add_share(&text, "garbage_collection_threshold", config.garbage_collection_threshold);
  add_share(&text, "per_process_memory_fraction", config.memory_fraction);
  if (config.expandable_segments) add(&text, "%sexpandable_segments:True", text.length ? "," : "");
  for (int i = 0; i < HAL_MEM_ROUNDUP_STEPS && config.roundup_on; i++)
    add(&text, "%s%d:%u%s",
        i             ? ","
        : text.length ? ",roundup_power2_divisions:["
                      : "roundup_power2_divisions:[",
        1 << i, config.roundup_divisions[i], i + 1 == HAL_MEM_ROUNDUP_STEPS ? "]" : "");
  if (text.length < size) return HAL_OK;
  return hal_error_set(HAL_OUT_OF_RANGE,
                       "hal_memory_settings: the text has %zu characters, which %zu bytes do not hold", text.length,
                       size);
}
