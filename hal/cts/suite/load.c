/* load.c: what everything stands on: the file is a plugin, it loads, and its devices start. */
#define _GNU_SOURCE
#include <dirent.h>

#include "cts.h"
#include "hal/status.h"
#include "plugin/loader.h"

void cts_case_load_loads(cts_t *t) {
  hal_plugin_info_t again = {.struct_size = HAL_STRUCT_SIZE(hal_plugin_info_t, flags)};
  cts_enter(t, HAL_SLOT_info);
  const hal_status_t status = hal_plugin_load(t->path, t->plugin);
  cts_leave(t, HAL_SLOT_info, status);
  CTS_CHECK(t, !status, "%s", hal_error_message());
  CTS_JUDGE(t, info, "Tells name");
  CTS_OK(t, info, &again);
  CTS_CHECK(t, again.name && again.vendor && again.version, "info left out name, vendor or version");
  CTS_CHECK(t, strcmp(again.name, t->plugin->info.name) == 0, "info gave the name \"%s\", and then \"%s\"",
            t->plugin->info.name, again.name);
  CTS_JUDGE(t, info, "strings live as long");
  CTS_CHECK(t, again.name[0] && strlen(again.vendor) < 4096 && strlen(again.version) < 4096,
            "a string of info is empty or has no end");
}

/* The start itself is the case: child.c does it before each. */
void cts_case_load_starts(cts_t *t) { CTS_OK(t, device_synchronize, t->device); }

/* A little of everything; child.c looks at the process behind each case. */
static void use(cts_t *t) {
  uint32_t pattern = 7, got = 0;
  CTS_GENERAL(t, "leaves the process as it found it");
  void *const device = cts_alloc(t, sizeof pattern);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, memory_fill, stream, t->device, device, &pattern, sizeof pattern, sizeof pattern);
  cts_get(t, stream, &got, device, sizeof got);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, event_synchronize, event);
  CTS_OK(t, event_destroy, event);
  cts_sync(t, stream);
  CTS_OK(t, stream_destroy, stream);
  cts_free(t, device);
}

void cts_case_load_process(cts_t *t) { use(t); }

void cts_case_load_signals(cts_t *t) {
  char text[256];
  use(t);
  if (!cts_process_signals_are_the_same(text, sizeof text)) cts_fail(t, "%s", text);
}

void cts_case_load_shuts_down(cts_t *t) {
  use(t);
  CTS_JUDGE(t, shutdown, "Releases what init acquired");
  CTS_OK(t, shutdown, 0);
}

/* A host that only looks which plugins there are, and forks then, has started no driver. */
void cts_case_load_starts_nothing(cts_t *t) {
  int32_t count = 0;
  int threads = 0;
  cts_enter(t, HAL_SLOT_info);
  const hal_status_t status = hal_plugin_load(t->path, t->plugin);
  cts_leave(t, HAL_SLOT_info, status);
  CTS_CHECK(t, !status, "%s", hal_error_message());
  (void)cts_probe(t, 0);
  (void)cts_device_count(t, &count);
  DIR *const tasks = opendir("/proc/self/task");
  while (tasks && readdir(tasks)) threads++;
  if (tasks) closedir(tasks);
  CTS_CHECK(t, threads <= 3, "probe and device_count, before init, have left %d threads in the process", threads - 3);
}
