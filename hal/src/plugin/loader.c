/* loader.c: loads one plugin from its file to a checked function table. */
#define _GNU_SOURCE /* realpath, RTLD_LOCAL */
#include "plugin/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_malloc.h"
#include "base/log_internal.h"
#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/file_check.h"
#include "plugin/hooks.h"
#include "plugin/layer.h"
#include "plugin/layer_validate.h"
#include "plugin/search_path.h"
#include "plugin/slots.h"
#include "plugin/trial.h"

#define FIRST_SLOT offsetof(hal_plugin_api_t, info)
#define SLOT_SIZE sizeof(void (*)(void))

/* The defaults of sdk/defaults.h use this name for the host on both sides. */
const hal_host_api_t *hal_host = &hal_host_api;

static hal_status_t open_library(const char *path, hal_plugin_entry_fn_t *out_entry) {
  /* NOW: a missing function is found here and not during training. LOCAL: plugins do not see each other's symbols. */
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *const cause = dlerror();
    const int needs_library = cause && strstr(cause, "cannot open shared object file") != NULL;
    return hal_error_set(needs_library ? HAL_UNAVAILABLE : HAL_INCOMPATIBLE, "%s cannot be loaded: %s; %s", path,
                         cause ? cause : "no cause given",
                         needs_library ? "install the library it needs" : "build the plugin again on this system");
  }
  void *const symbol = dlsym(library, "hal_plugin_entry");
  if (!symbol)
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s is not a plugin: it exports no hal_plugin_entry; build it with "
                         "hal_add_plugin() of the SDK, which adds sdk/entry.c",
                         path);
  memcpy(out_entry, &symbol, sizeof symbol); /* ISO C has no cast from an object to a function pointer */
  return HAL_OK;
}

static hal_status_t check_build(const char *path, const hal_plugin_api_t *api) {
  const uint64_t kinds = HAL_BUILD_ASAN | HAL_BUILD_TSAN;
  const uint64_t own = hal_process_sanitizers(), missing = api->build_flags & kinds & ~own;
  if (missing)
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s was built with the %s sanitizer and this process was not; build both the same "
                         "way",
                         path, missing & HAL_BUILD_ASAN ? "address" : "thread");
  if (own & ~api->build_flags & HAL_BUILD_TSAN)
    hal_log(HAL_LOG_WARNING, "%s was built without the thread sanitizer: races inside it are not detected", path);
  return HAL_OK;
}

static hal_status_t check_slots(const char *path, hal_plugin_t *plugin) {
  const hal_plugin_api_t *const api = &plugin->api;
  for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++) {
    uintptr_t address;
    memcpy(&address, (const char *)api + FIRST_SLOT + slot * SLOT_SIZE, sizeof address);
    if (address) continue;
    if (hal_slot_is_mandatory(slot))
      return hal_error_set(HAL_INCOMPATIBLE,
                           "%s has no hal_plugin_%s, which is mandatory; build it with hal_add_plugin() of "
                           "the SDK, which finds this at link time",
                           path, hal_registry_slot_name(slot));
    plugin->layers |= HAL_LAYER_TAIL;
  }
  hal_group_gap_t gap;
  if (hal_slots_check_groups(api, &gap)) return HAL_OK;
  return hal_error_set(HAL_INCOMPATIBLE,
                       "%s implements the group '%s' in part: it has %s but not %s; define these too, or "
                       "none of the group",
                       path, gap.group, gap.provided, gap.missing);
}

/* Names that torch.device knows or knew, of c10/core/DeviceType.h: a second meaning would make every message ambiguous,
 * and c10's register_privateuse1_backend refuses some of them. */
static int is_torch_name(const char *name) {
  static const char *const names[] = {"mkldnn", "opengl", "opencl", "ideep", "hip",  "fpga", "maia",
                                      "ort",    "xla",    "vulkan", "metal", "xpu",  "mps",  "meta",
                                      "hpu",    "ve",     "lazy",   "ipu",   "mtia", "msnpu"};
  if (strncmp(name, "cpu", 3) == 0 || strncmp(name, "cuda", 4) == 0 || strncmp(name, "privateuse", 10) == 0) return 1;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

static hal_status_t check_info(const char *path, hal_plugin_t *plugin) {
  hal_plugin_info_t *const info = &plugin->info;
  *info = (hal_plugin_info_t){.struct_size = HAL_STRUCT_SIZE(hal_plugin_info_t, flags)};
  hal_trial_step(HAL_SLOT_info);
  hal_status_t status = hal_call_info(plugin, info);
  if (status) {
    info->name = NULL;
    status = hal_error_plugin(plugin, HAL_SLOT_info, status);
    return hal_error_prefix(status, "%s: ", path);
  }
  if (!info->name || !hal_plugin_name_is_valid(info->name, strlen(info->name)))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s has the name '%.100s', which cannot name a device; use lower-case letters, "
                         "digits and '_', at most 31, beginning with a letter",
                         path, info->name ? info->name : "(null)");
  if (is_torch_name(info->name))
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s has the name '%s', which torch reserves; choose another name in "
                         "hal_plugin_info (names beginning with cpu, cuda or privateuse are reserved too)",
                         path, info->name);
  if (!info->vendor) info->vendor = "";
  if (!info->version) info->version = "";
  return HAL_OK;
}

static int is_supported(const hal_plugin_api_t *api) {
  return api->major == HAL_ABI_MAJOR && api->minor >= HAL_ABI_MINOR_OLDEST;
}

static hal_status_t refuse_version(const char *path, const hal_plugin_api_t *api) {
  return hal_error_set(HAL_INCOMPATIBLE,
                       "%s was built for plugin ABI %u.%u and this is %d.%d, which loads %d.%d and later minor "
                       "versions; rebuild it against this version's headers",
                       path, api->major, api->minor, HAL_ABI_MAJOR, HAL_ABI_MINOR, HAL_ABI_MAJOR, HAL_ABI_MINOR_OLDEST);
}

hal_status_t hal_plugin_accept(const char *path, hal_plugin_t *plugin) {
  const hal_plugin_api_t *const api = &plugin->api;
  if (!is_supported(api)) return refuse_version(path, api);
  if (api->struct_size < FIRST_SLOT || api->struct_size > sizeof *api || (api->struct_size - FIRST_SLOT) % SLOT_SIZE)
    return hal_error_set(HAL_INCOMPATIBLE,
                         "%s returned a function table of %zu bytes, which is not a multiple of a slot; build "
                         "it with the SDK's entry.c",
                         path, api->struct_size);
  HAL_RETURN_IF_ERROR(check_build(path, api));
  HAL_RETURN_IF_ERROR(check_slots(path, plugin));
  plugin->layers |= hal_layers_wanted();
  if (plugin->layers & HAL_LAYER_VALIDATE) HAL_RETURN_IF_ERROR(hal_validate_create(plugin));
  return check_info(path, plugin);
}

hal_status_t hal_plugin_open(const char *resolved, hal_plugin_t *plugin) {
  hal_plugin_entry_fn_t entry = NULL;
  HAL_RETURN_IF_ERROR(open_library(resolved, &entry));
  plugin->api.struct_size = sizeof plugin->api;
  hal_trial_step(HAL_TRIAL_ENTRY);
  const hal_status_t status = entry(&hal_host_api, &plugin->api);
  if (status == HAL_INCOMPATIBLE && (plugin->api.major || plugin->api.minor) && !is_supported(&plugin->api))
    return refuse_version(resolved, &plugin->api); /* the plugin's entry has written its version */
  if (status)
    return hal_error_set(status,
                         "%s refused this version of the plugin ABI, %d.%d (%s); build it against this version's "
                         "headers",
                         resolved, HAL_ABI_MAJOR, HAL_ABI_MINOR, hal_status_name(status));
  return hal_plugin_accept(resolved, plugin);
}

hal_status_t hal_plugin_count_devices(hal_plugin_t *plugin) {
  hal_trial_step(HAL_SLOT_probe);
  hal_status_t status = hal_call_probe(plugin, 0);
  if (status) return hal_error_plugin(plugin, HAL_SLOT_probe, status);
  int32_t count = 0;
  hal_trial_step(HAL_SLOT_device_count);
  status = hal_call_device_count(plugin, &count);
  if (status) return hal_error_plugin(plugin, HAL_SLOT_device_count, status);
  if (count < 0)
    return hal_error_set(HAL_INTERNAL, "%s, device_count: returned %d devices; a count is 0 or more", plugin->info.name,
                         count);
  if (count == 0)
    return hal_error_set(HAL_UNAVAILABLE, "%s found no device on this machine; check the hardware and its driver",
                         plugin->info.name);
  plugin->device_count = count;
  return HAL_OK;
}

hal_status_t hal_plugin_load(const char *path, hal_plugin_t *plugin) {
  char resolved[PATH_MAX];
  if (!path || path[0] != '/')
    return hal_error_set(HAL_INVALID_ARGUMENT, "'%s' is not an absolute path; expected one that begins with /",
                         path ? path : "");
  if (!realpath(path, resolved))
    return hal_error_set(errno == ENOENT || errno == ENOTDIR ? HAL_NOT_FOUND : HAL_FAILED_PRECONDITION,
                         "plugin %s cannot be found: %s; check the path", path, strerror(errno));
  HAL_RETURN_IF_ERROR(hal_file_check_owner(resolved));
  HAL_RETURN_IF_ERROR(hal_file_check_elf(resolved));
  HAL_RETURN_IF_ERROR(hal_trial_load(resolved));
  HAL_RETURN_IF_ERROR(hal_plugin_open(resolved, plugin));
  const size_t bytes = strlen(resolved) + 1;
  plugin->path = hal_malloc(bytes);
  if (!plugin->path) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while loading %s", resolved);
  memcpy(plugin->path, resolved, bytes);
  return HAL_OK;
}
