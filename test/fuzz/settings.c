/* settings.c: texts of settings. The first byte selects who reads the rest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status_internal.h"
#include "base/visible.h"
#include "memory/config.h"
#include "plugin/search_path.h"

enum { DEVICES = 8 };

static void require(int holds) {
  if (!holds) abort();
}

static void read_allocator(const char *text) {
  hal_mem_config_t config;
  hal_mem_config_parse("PYTORCH_ALLOC_CONF", text, &config);
  require(config.max_split_size >= HAL_MEM_LARGE_SEGMENT && config.large_segment_size >= HAL_MEM_LARGE_LIMIT);
  require(config.garbage_collection_threshold >= 0 && config.garbage_collection_threshold < 1);
  for (size_t size = 1; size; size = size << 3 | 5) {
    const size_t rounded = hal_mem_config_round(&config, size);
    require(rounded == 0 || (rounded >= size && rounded % HAL_MEM_GRANULE == 0));
    const size_t segment = rounded ? hal_mem_config_segment(&config, rounded) : 0;
    require(segment == 0 || segment >= rounded);
    if (size >> 61) break;
  }
}

static void read_visible(const char *text) {
  int32_t ordinals[DEVICES], count = DEVICES;
  unsigned seen = 0;
  setenv("HAL_VISIBLE_DEVICES", text, 1);
  if (hal_visible_devices("fuzz", DEVICES, ordinals, &count) != HAL_OK) return;
  require(count >= 0 && count <= DEVICES);
  for (int32_t i = 0; i < count; i++) {
    require(ordinals[i] >= 0 && ordinals[i] < DEVICES && !(seen & 1u << ordinals[i]));
    seen |= 1u << ordinals[i];
  }
}

static void read_status(const char *text) {
  hal_status_t status = HAL_OK;
  if (hal_status_parse(text, strlen(text), &status)) require(strcmp(hal_status_name(status), text) == 0);
}

static void read_file_name(const char *text) {
  char name[HAL_PLUGIN_NAME_BYTES];
  if (hal_plugin_file_name(text, name)) require(hal_plugin_name_is_valid(name, strlen(name)));
}

static void search(const char *text) {
  char path[PATH_MAX];
  setenv("HAL_PLUGIN_PATH", text, 1);
  if (hal_search_plugin("fake", strlen("fake"), path) == HAL_OK) require(strlen(path) < PATH_MAX);
}

static int count_visit(const char *path, void *user_data) {
  require(path[0] != '\0');
  return ++*(int *)user_data > 64;
}

static void search_all(const char *text) {
  int count = 0;
  setenv("HAL_PLUGIN_PATH", text, 1);
  (void)!hal_search_all(count_visit, &count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const readers[])(const char *) = {read_allocator, read_visible, read_status,
                                                  read_file_name, search,       search_all};
  if (size == 0) return 0;
  char *const text = malloc(size);
  if (!text) return 0;
  memcpy(text, data + 1, size - 1);
  text[size - 1] = '\0';
  setenv("HAL_LOG", "error", 1);
  readers[data[0] % (sizeof readers / sizeof *readers)](text);
  free(text);
  return 0;
}
