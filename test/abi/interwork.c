/* interwork.c: a host and a plugin of two minor versions work together with what both know.
 *
 *   abi_interwork PLUGIN MINOR next|old   the plugin's minor version, and whether it has the slot of the next one
 *
 * Built twice: against this version's headers and library, and as the host of the next minor version (HAL_ABI_NEXT). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal/log.h"
#include "plugin/call.h"
#include "plugin/slots.h"

typedef struct abi_extension_s { /* as in 0.4/plugin.c; that of 0.3/plugin.c ends before `resets` */
  hal_extension_t extension;
  size_t (*host_size)(void);
  int32_t (*last_priority)(void);
  size_t (*last_desc_size)(void);
  int32_t (*resets)(void);
  int32_t (*hints)(void);
  const char *(*last_name)(void);
} abi_extension_t;

#define CHECK(condition, ...)                                                     \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "%s:%d: %s is not true; ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                               \
      fprintf(stderr, " (%s)\n", hal_error_message());                            \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)
#define OK(call) CHECK((call) == HAL_OK, "it failed")

static int findings;
static void count_findings(int32_t level, const char *message, void *data) {
  (void)data;
  if (level == HAL_LOG_ERROR) findings++, fprintf(stderr, "%s\n", message);
}

/* The struct of the host's minor version, and bytes behind it that the plugin must not write. */
static void check_info(hal_plugin_t *plugin, int is_next) {
  char name[16];
  struct {
    hal_device_info_t info;
    unsigned char guard[64];
  } room;
  memset(&room, 0, sizeof room);
  memset(room.guard, 0xA5, sizeof room.guard);
  room.info.struct_size = sizeof room.info;
  OK(hal_call_device_info(plugin, 0, &room.info));
  snprintf(name, sizeof name, "minor %d", (int)plugin->api.minor - is_next); /* the next one's is that before */
  CHECK(strcmp(room.info.name, name) == 0 && room.info.base_alignment == 256, "%s", room.info.name);
  CHECK(room.info.struct_size == sizeof room.info, "%zu", room.info.struct_size);
  for (size_t i = 0; i < sizeof room.guard; i++) CHECK(room.guard[i] == 0xA5, "byte %zu behind the struct", i);
  const int has_limits = plugin->api.minor >= 5;
  CHECK(room.info.max_grid[0] == (has_limits ? 65535u : 0u) && room.info.binding_alignment == (has_limits ? 64u : 0u) &&
            room.info.max_binding == (has_limits ? UINT64_C(1) << 20 : 0),
        "%u blocks, alignment %u", room.info.max_grid[0], room.info.binding_alignment);
#if defined(HAL_ABI_NEXT)
  CHECK(room.info.next_fact == (is_next ? 7u : 0u), "%llu", (unsigned long long)room.info.next_fact);
#else
  (void)is_next;
#endif
}

/* A host of 0.4 has a struct that ends before the limits of launches. */
static void check_short_info(hal_plugin_t *plugin) {
  hal_device_info_t info;
  memset(&info, 0xA5, sizeof info);
  memset(&info, 0, offsetof(hal_device_info_t, max_grid));
  info.struct_size = offsetof(hal_device_info_t, max_grid);
  OK(hal_call_device_info(plugin, 0, &info));
  CHECK(info.base_alignment == 256 && info.struct_size == offsetof(hal_device_info_t, max_grid), "%zu",
        info.struct_size);
  for (const unsigned char *byte = (const unsigned char *)&info.max_grid; byte < (const unsigned char *)(&info + 1);
       byte++)
    CHECK(*byte == 0xA5, "byte %td", byte - (const unsigned char *)&info);
}

static void check_memory(hal_plugin_t *plugin) {
  const uint32_t pattern = 0x01020304;
  uint32_t *memory = NULL, got[256];
  OK(hal_call_memory_alloc(plugin, 0, sizeof got, 0, (void **)&memory));
  OK(hal_call_memory_fill(plugin, NULL, 0, memory, &pattern, sizeof pattern,
                          sizeof got)); /* the default, over its copies */
  OK(hal_call_memory_copy(plugin, NULL, got, HAL_HOST, memory, 0, sizeof got));
  for (int i = 0; i < 256; i++) CHECK(got[i] == pattern, "element %d is 0x%x", i, got[i]);
  OK(hal_call_memory_free(plugin, 0, memory));
  if (!getenv("HAL_LAYERS")) /* which refuses it before */
    CHECK(hal_call_memory_alloc(plugin, 0, 64, 1, (void **)&memory) == HAL_UNIMPLEMENTED, "an unknown flag");
}

static void add_one(void *number) { ++*(int *)number; }

static void check_streams(hal_plugin_t *plugin, const abi_extension_t *asked) {
  hal_stream_desc_t desc = HAL_STREAM_DESC(-3);
  hal_plugin_stream_t *stream = NULL;
  hal_plugin_event_t *start = NULL, *end = NULL;
  int64_t time = -1;
  int calls = 0;
#if defined(HAL_ABI_NEXT)
  desc.struct_size = HAL_STRUCT_SIZE(hal_stream_desc_t, next_wish);
  desc.next_wish = 1;
#endif
  OK(hal_call_stream_create(plugin, 0, &desc, &stream));
  CHECK(asked->last_priority() == -3, "%d", asked->last_priority());
  CHECK(asked->last_desc_size() == desc.struct_size, "%zu", asked->last_desc_size());
  OK(hal_call_event_create(plugin, 0, HAL_EVENT_TIMING, &start));
  OK(hal_call_event_create(plugin, 0, HAL_EVENT_TIMING, &end));
  OK(hal_call_event_record(plugin, start, stream));
  OK(hal_call_stream_host_call(plugin, stream, add_one, &calls));
  OK(hal_call_event_record(plugin, end, stream));
  OK(hal_call_stream_synchronize(plugin, stream));
  OK(hal_call_event_elapsed(plugin, start, end, &time));
  CHECK(calls == 1 && time >= 0, "%d calls, %lld ns", calls, (long long)time);
  OK(hal_call_event_destroy(plugin, start));
  OK(hal_call_event_destroy(plugin, end));
  OK(hal_call_stream_destroy(plugin, stream));
}

/* What 0.4 appended: a plugin of 0.3 has the defaults, which the host provides. */
static void check_semaphores(hal_plugin_t *plugin) {
  hal_comm_info_t info = {.struct_size = sizeof info};
  hal_plugin_semaphore_t *semaphore = NULL;
  uint64_t value = 0;
  CHECK(hal_call_comm_info(plugin, 0, &info) == HAL_UNIMPLEMENTED, "a plugin without a library");
  OK(hal_call_semaphore_create(plugin, 0, 5, 0, &semaphore));
  OK(hal_call_stream_signal_semaphore(plugin, NULL, semaphore, 7));
  OK(hal_call_stream_wait_semaphore(plugin, NULL, semaphore, 6));
  OK(hal_call_semaphore_value(plugin, semaphore, &value));
  CHECK(value == 7, "%llu", (unsigned long long)value);
  CHECK(hal_call_semaphore_wait(plugin, semaphore, 8, 1000) == HAL_NOT_READY, "a value that does not come");
  OK(hal_call_semaphore_destroy(plugin, semaphore));
}

/* The same of devices, memory and names; `asked` is NULL for a plugin of 0.3. */
static void check_hints(hal_plugin_t *plugin, const abi_extension_t *asked) {
  hal_plugin_stream_t *stream = NULL;
  void *memory = NULL;
  OK(hal_call_memory_alloc(plugin, 0, 4096, 0, &memory));
  OK(hal_call_memory_prefetch(plugin, NULL, 0, memory, 4096, HAL_HOST, 0));
  OK(hal_call_memory_advise(plugin, 0, memory, 4096, HAL_ADVICE_READ_MOSTLY, HAL_HOST));
  OK(hal_call_memory_free(plugin, 0, memory));
  OK(hal_call_stream_create(plugin, 0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  OK(hal_call_object_name_set(plugin, 0, HAL_OBJECT_STREAM, stream, "a stream"));
  OK(hal_call_stream_destroy(plugin, stream));
  const hal_status_t status = hal_call_device_reset(plugin, 0, 0);
  CHECK(hal_slot_is_provided(&plugin->api, HAL_SLOT_device_reset) == (asked != NULL), "of the plugin's own");
  CHECK(status == (asked ? HAL_OK : HAL_UNIMPLEMENTED), "status %d", (int)status);
  if (!asked) return;
  CHECK(asked->resets() == 1 && asked->hints() == 2, "%d resets, %d hints", asked->resets(), asked->hints());
  CHECK(strcmp(asked->last_name(), "a stream") == 0, "%s", asked->last_name());
}

/* The slot that only the next minor version has. */
static void check_next(hal_plugin_t *plugin, int is_next) {
#if defined(HAL_ABI_NEXT)
  int64_t value = -5;
  const hal_status_t status = hal_call_next_minor(plugin, 0, 41, &value);
  CHECK(hal_slot_is_provided(&plugin->api, HAL_SLOT_next_minor) == is_next, "of the plugin's own");
  if (is_next)
    CHECK(status == HAL_OK && value == 1042, "status %d, %lld", (int)status, (long long)value);
  else
    CHECK(status == HAL_UNIMPLEMENTED && value == -5, "status %d, %lld", (int)status, (long long)value);
#else
  CHECK(plugin->api.struct_size == sizeof plugin->api || !is_next, "%zu bytes of slots", plugin->api.struct_size);
#endif
}

int main(int argc, char **argv) {
  const hal_extension_t *extension = NULL;
  if (argc != 4) return fprintf(stderr, "usage: %s PLUGIN MINOR next|old\n", argv[0]), 2;
  const int is_next = strcmp(argv[3], "next") == 0;
  hal_log_set_sink(count_findings, NULL);
  OK(hal_registry_open(argv[1]));
  hal_plugin_t *const plugin = &hal_registry.plugins[0];
  CHECK(plugin->api.minor == (uint32_t)atoi(argv[2]), "it says %u", plugin->api.minor);
  OK(hal_call_init(plugin, ""));
  OK(hal_call_extensions(plugin, &extension));
  const abi_extension_t *const asked = (const abi_extension_t *)(const void *)hal_extension_find(
      extension, "test.abi",
      plugin->api.minor >= 4 ? HAL_STRUCT_SIZE(abi_extension_t, last_name)
                             : HAL_STRUCT_SIZE(abi_extension_t, last_desc_size));
  CHECK(asked, "the extension 'test.abi' was not found");
  CHECK(asked->host_size() == hal_host->struct_size, "%zu", asked->host_size());
  check_info(plugin, is_next);
  check_short_info(plugin);
  check_memory(plugin);
  check_streams(plugin, asked);
  check_semaphores(plugin);
  check_hints(plugin, plugin->api.minor >= 4 ? asked : NULL);
  check_next(plugin, is_next);
  OK(hal_call_shutdown(plugin, 0));
  CHECK(!findings, "%d errors were logged", findings);
  printf("host 0.%d, plugin 0.%u: %zu bytes of slots\n", HAL_ABI_MINOR, plugin->api.minor, plugin->api.struct_size);
  return 0;
}
