/* registry.c: the active plugins, and their common range of devices. */
#define _POSIX_C_SOURCE 200809L
#include "hal/registry.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/callback.h"
#include "base/life.h"
#include "base/text.h"
#include "base/visible.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/file_check.h"
#include "plugin/hooks.h"
#include "plugin/layer.h"
#include "plugin/layer_validate.h"
#include "plugin/loader.h"
#include "plugin/search_path.h"
#include "plugin/slots.h"

enum { REPORT_BYTES = 8192 };

hal_registry_t hal_registry;

static hal_lock_t registry_lock;
static char *opened_list; /* as passed to the open that succeeded; NULL if it was automatic */
/* report: all skipped plugins; problems: those with an error */
static char report[REPORT_BYTES], problems[REPORT_BYTES];

/* The state of a search through a list or the search path. */
typedef struct opening_s {
  hal_status_t first_failure;
  int automatic;
} opening_t;

/* Records the thread's message as the reason why `what` was skipped. */
static void report_skipped(opening_t *opening, hal_status_t status, const char *what, size_t what_length) {
  const char *const cause = hal_error_message();
  hal_text_append(report, sizeof report, "%s%.*s: %s", report[0] ? "\n" : "", (int)what_length, what, cause);
  /* In a search, plugins for other hardware are normal; a plugin in a list was requested. */
  if (!opening->automatic || status != HAL_UNAVAILABLE)
    hal_text_append(problems, sizeof problems, "%s%.*s: %s", problems[0] ? "\n" : "", (int)what_length, what, cause);
  if (!opening->first_failure) opening->first_failure = status;
}

static int is_loaded(const hal_plugin_t *plugin) {
  for (int32_t i = 0; i < hal_registry.plugin_count; i++)
    if (strcmp(hal_registry.plugins[i].path, plugin->path) == 0 ||
        strcmp(hal_registry.plugins[i].info.name, plugin->info.name) == 0)
      return 1;
  return 0;
}

static void add_devices(hal_plugin_t *plugin) {
  const int32_t room = HAL_MAX_DEVICES - hal_registry.device_count;
  if (plugin->device_count > room) {
    hal_log(HAL_LOG_WARNING, "%s has %d devices, of which %d are used: a process has at most %d", plugin->info.name,
            plugin->device_count, room, HAL_MAX_DEVICES);
    plugin->device_count = room;
  }
  plugin->first_device = hal_registry.device_count;
  hal_registry.device_count += plugin->device_count;
  hal_registry_hooks.added(plugin);
}

/* Loads the plugin at `path` and, if it is usable, makes it the next active one. */
static hal_status_t activate(const char *path, const opening_t *opening) {
  if (hal_registry.plugin_count == HAL_MAX_PLUGINS || hal_registry.device_count == HAL_MAX_DEVICES)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "a process has at most %d plugins and %d devices; name fewer plugins",
                         HAL_MAX_PLUGINS, HAL_MAX_DEVICES);
  hal_plugin_t *const plugin = &hal_registry.plugins[hal_registry.plugin_count];
  hal_status_t status = hal_plugin_load(path, plugin);
  if (!status && is_loaded(plugin))
    status = hal_error_set(HAL_INVALID_ARGUMENT, "plugin '%s' is active already; name it once", plugin->info.name);
  if (!status && opening->automatic && (plugin->info.flags & HAL_PLUGIN_ON_REQUEST)) {
    char name[HAL_PLUGIN_NAME_BYTES];
    status = hal_error_set(HAL_UNAVAILABLE, "%s is used on request only; set TORCH_BACKEND=%s to use it",
                           plugin->info.name, hal_plugin_file_name(path, name) ? name : path);
  }
  if (!status) status = hal_plugin_count_devices(plugin);
  for (int32_t i = 0; i < HAL_MAX_DEVICES; i++) plugin->ordinals[i] = i;
  if (!status && !hal_process_is_privileged())
    status = hal_visible_devices(plugin->info.name, HAL_MAX_DEVICES, plugin->ordinals, &plugin->device_count);
  if (status) {
    hal_validate_destroy(plugin);
    hal_free(plugin->path);
    memset(plugin, 0, sizeof *plugin);
    return status;
  }
  plugin->index = hal_registry.plugin_count;
  add_devices(plugin);
  hal_registry.plugin_count++;
  hal_log(HAL_LOG_INFO, "plugin %s %s (%s): devices %d to %d", plugin->info.name, plugin->info.version, plugin->path,
          plugin->first_device, plugin->first_device + plugin->device_count - 1);
  return HAL_OK;
}

static int visit_automatic(const char *path, void *user_data) {
  opening_t *const opening = user_data;
  const hal_status_t status = activate(path, opening);
  if (status) report_skipped(opening, status, path, strlen(path));
  return status == HAL_OK; /* the first usable one ends the search */
}

/* One item of a list: a name or an absolute path. */
static hal_status_t open_item(const char *item, size_t length, int from_environment, const opening_t *opening) {
  char path[PATH_MAX];
  if (item[0] != '/') {
    HAL_RETURN_IF_ERROR(hal_search_plugin(item, length, path));
  } else {
    if (from_environment && hal_process_is_privileged())
      return hal_error_set(HAL_FAILED_PRECONDITION,
                           "a path in TORCH_BACKEND is ignored in a set-user-id process; name a plugin "
                           "of a directory that the program adds");
    if (length >= sizeof path)
      return hal_error_set(HAL_INVALID_ARGUMENT, "a path of %zu bytes is longer than a path may be", length);
    memcpy(path, item, length);
    path[length] = '\0';
  }
  return activate(path, opening);
}

static void open_list(const char *list, int from_environment, opening_t *opening) {
  for (const char *rest = list; *rest;) {
    const size_t field = strcspn(rest, ",");
    const char *item = rest;
    size_t length = field;
    while (length && *item == ' ') item++, length--;
    while (length && item[length - 1] == ' ') length--;
    if (length) {
      const hal_status_t status = open_item(item, length, from_environment, opening);
      if (status) report_skipped(opening, status, item, length);
    }
    rest += field + (rest[field] == ',');
  }
}

/* Checks whether a later call of hal_registry_open requests what is open. */
static hal_status_t check_same(const char *list) {
  if (!list || (opened_list && strcmp(list, opened_list) == 0)) return HAL_OK;
  return hal_error_set(HAL_FAILED_PRECONDITION,
                       "plugins '%s' cannot be opened: '%s' is open already, and a process keeps its "
                       "devices; start a new process, or set TORCH_BACKEND before the first use",
                       list, opened_list ? opened_list : hal_registry.plugins[0].info.name);
}

static hal_status_t remember(const char *list) {
  hal_free(opened_list);
  opened_list = NULL;
  if (!list) return HAL_OK;
  const size_t bytes = strlen(list) + 1;
  opened_list = hal_malloc(bytes);
  if (!opened_list) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while opening plugins '%s'", list);
  memcpy(opened_list, list, bytes);
  return HAL_OK;
}

static hal_status_t open_locked(const char *list) {
  if (atomic_load(&hal_life.closed))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the plugins of this process have been shut down; start a new process");
  /* An automatic open that found no plugin fixed no device, so a list may follow. */
  if (hal_registry.plugin_count > 0) return check_same(list);

  hal_layers_wanted(); /* arms HAL_FAULT before the first allocation */
  opening_t opening = {.first_failure = HAL_OK};
  const char *const variable = list ? NULL : getenv("TORCH_BACKEND");
  const char *const wanted = list ? list : variable && *variable ? variable : NULL;
  HAL_RETURN_IF_ERROR(remember(wanted));
  report[0] = problems[0] = '\0';
  if (wanted) {
    open_list(wanted, !list, &opening);
    if (hal_registry.plugin_count == 0) {
      if (!opening.first_failure)
        return hal_error_set(HAL_INVALID_ARGUMENT,
                             "the list of plugins '%s' is empty; expected names or absolute paths", wanted);
      return hal_error_set(opening.first_failure, "%s", report);
    }
  } else {
    opening.automatic = 1;
    HAL_RETURN_IF_ERROR(hal_search_all(visit_automatic, &opening));
  }
  if (problems[0]) hal_log(HAL_LOG_WARNING, "skipped plugins:\n%s", problems);
  if (report[0] && !wanted) hal_log(HAL_LOG_DEBUG, "skipped in the search:\n%s", report);
  atomic_store(&hal_registry.open, 1);
  return HAL_OK;
}

hal_status_t hal_registry_open(const char *list) {
  hal_lock_and_defer(&registry_lock);
  const hal_status_t status = open_locked(list);
  hal_unlock_and_run(&registry_lock);
  return status;
}

int32_t hal_registry_is_open(void) { return atomic_load(&hal_registry.open); }

hal_status_t hal_registry_check_library(const char *path) {
  if (!path || !path[0])
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_registry_check_library: pass the path of a library");
  return hal_file_check_elf(path);
}

const char *hal_registry_report(void) { return report; }

const char *hal_registry_problems(void) { return problems; }

int32_t hal_registry_plugin_count(void) { return hal_registry_is_open() ? hal_registry.plugin_count : 0; }

static uint32_t provided_count(const hal_plugin_api_t *api) {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++) count += hal_slot_is_provided(api, slot) ? 1 : 0;
  return count;
}

hal_status_t hal_registry_plugin(int32_t index, hal_registry_entry_t *out_entry) {
  const int32_t count = hal_registry_plugin_count();
  if (index < 0 || index >= count)
    return hal_error_set(HAL_OUT_OF_RANGE, "plugin %d is out of range: %d are open", index, count);
  const hal_plugin_t *const plugin = &hal_registry.plugins[index];
  hal_registry_entry_t entry = {
      .name = plugin->info.name,
      .vendor = plugin->info.vendor,
      .version = plugin->info.version,
      .path = plugin->path,
      .first_device = plugin->first_device,
      .device_count = plugin->device_count,
      .abi_major = plugin->api.major,
      .abi_minor = plugin->api.minor,
      .provided_count = provided_count(&plugin->api),
      .slot_count = HAL_SLOT_COUNT,
  };
  const size_t known = HAL_STRUCT_SIZE(hal_registry_entry_t, reserved);
  entry.struct_size = out_entry->struct_size < known ? out_entry->struct_size : known;
  memcpy(out_entry, &entry, entry.struct_size);
  return HAL_OK;
}

int32_t hal_registry_provides(int32_t index, uint32_t slot) {
  if (index < 0 || index >= hal_registry_plugin_count()) return 0;
  return hal_slot_is_provided(&hal_registry.plugins[index].api, slot);
}

void hal_registry_after_fork(void) {
  if (hal_registry_is_open()) return;
  /* A thread of the parent may have been opening: its state is discarded, libraries stay loaded. */
  hal_registry.plugin_count = hal_registry.device_count = 0;
  memset(hal_registry.plugins, 0, sizeof hal_registry.plugins);
}

static void shut_down(hal_plugin_t *plugin) {
  if (atomic_load(&plugin->state) != HAL_PLUGIN_READY || atomic_load(&hal_life.forked)) return;
  const hal_status_t status = hal_call_shutdown(plugin, 0);
  if (!status) return;
  hal_error_plugin(plugin, HAL_SLOT_shutdown, status);
  hal_log(HAL_LOG_WARNING, "%s", hal_error_message());
}

/* Without the lock, since draining memory calls functions of the application; a later open fails, because the process
 * is closed. */
void hal_registry_close(void) {
  hal_lock(&registry_lock);
  const int was_closed = atomic_exchange(&hal_life.closed, 1);
  hal_unlock(&registry_lock);
  if (was_closed) return;
  hal_registry_hooks.closing();
  for (int32_t i = 0; i < hal_registry.plugin_count; i++) shut_down(&hal_registry.plugins[i]);
}
