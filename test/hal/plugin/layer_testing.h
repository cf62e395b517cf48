/* layer_testing.h: helpers shared by the tests of the validate layer: one object of each kind from the fixture
   "rogue", and its reports. */
#ifndef TEST_HAL_LAYER_TESTING_H_
#define TEST_HAL_LAYER_TESTING_H_

#include "support.h"

#include "device/device.h"
#include "plugin/call.h"

static char lines[16384];
static hal_plugin_t *plugin;
static hal_plugin_stream_t *stream, *stream_1; /* of device 0 and 1 */
static hal_plugin_event_t *event;
static hal_plugin_module_t *module;
static hal_plugin_kernel_t *kernel;
static void *memory, *memory_1; /* 4096 bytes each */
static char host[8192] __attribute__((unused));

static void keep(int32_t level, const char *message, void *unused) {
  (void)level, (void)unused;
  strncat(lines, message, sizeof lines - strlen(lines) - 2);
  strcat(lines, "\n");
}

static inline void open_rogue(void) {
  setenv("HAL_LAYERS", "validate", 1);
  hal_log_set_sink(keep, NULL);
  open_fixture("rogue");
  plugin = &hal_registry.plugins[0];
  assert_ok(hal_device_ensure(0));
  assert_ok(hal_device_ensure(1));
}

/* Creates one object of each kind and asserts that there is no report. */
static inline void make_all(void) {
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = "x",
                                  .options = "",
                                  .data = "code",
                                  .size = 4};
  open_rogue();
  assert_ok(hal_call_stream_create(plugin, 0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  assert_ok(hal_call_stream_create(plugin, 1, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream_1));
  assert_ok(hal_call_event_create(plugin, 0, HAL_EVENT_TIMING, &event));
  assert_ok(hal_call_module_load(plugin, 0, &desc, &module));
  assert_ok(hal_call_kernel_get(plugin, module, "k", &kernel));
  assert_ok(hal_call_memory_alloc(plugin, 0, 4096, 0, &memory));
  assert_ok(hal_call_memory_alloc(plugin, 1, 4096, 0, &memory_1));
  cr_assert_str_empty(lines);
}

/* An error of the host: rejected, and reported by the message and one line of the log. */
#define assert_misuse(call, op, text)                                \
  do {                                                               \
    lines[0] = '\0';                                                 \
    assert_fails(call, HAL_INVALID_ARGUMENT, "validate: ");          \
    assert_found(op, text);                                          \
    cr_assert_not_null(strstr(lines, ";"), "no cure in: %s", lines); \
  } while (0)
#define assert_found(op, text)                                                                        \
  do {                                                                                                \
    cr_assert_not_null(strstr(lines, "validate: rogue, " op ": "), "log: '%s'", lines);               \
    cr_assert_not_null(strstr(lines, text), "log '%s' lacks '%s'", lines, text);                      \
    cr_assert_eq(strchr(lines, '\n'), lines + strlen(lines) - 1, "more than one finding: %s", lines); \
  } while (0)

static inline hal_launch_t launch_of(const hal_arg_t *args, uint32_t count) {
  return (hal_launch_t){.struct_size = HAL_STRUCT_SIZE(hal_launch_t, args),
                        .grid = {1, 1, 1},
                        .block = {1, 1, 1},
                        .arg_count = count,
                        .args = args};
}

#endif /* TEST_HAL_LAYER_TESTING_H_ */
