/* owns_all.c: another plugin, whose file OWNS_BASE names, with its own function for each operator that declines all
 * calls, always (OWNS=alike) or maybe only this time (OWNS=once), or with none: the cost of a declined call
 * (test/bench/own_composed.py). */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <hal/plugin.h>
#include <stdlib.h>
#include <string.h>

static hal_status_t (*base_info)(hal_plugin_info_t *out_info);

static hal_status_t info(hal_plugin_info_t *out_info) {
  const hal_status_t status = base_info(out_info);
  out_info->name = "owns_all";
  return status;
}

static hal_status_t decline(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return HAL_UNIMPLEMENTED;
}

static hal_status_t find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device, (void)name;
  out_op->fn = decline;
  out_op->dtypes = HAL_ALL_DTYPES;
  out_op->layouts = HAL_TAKES_ALL;
  out_op->flags = strcmp(getenv("OWNS"), "alike") == 0 ? HAL_OP_DECLINES_ALIKE : 0;
  return HAL_OK;
}

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
  void *const base = dlopen(getenv("OWNS_BASE"), RTLD_NOW | RTLD_LOCAL);
  hal_plugin_entry_fn_t entry = NULL;
  if (base) *(void **)&entry = dlsym(base, "hal_plugin_entry");
  if (!entry) return host->error_set(HAL_NOT_FOUND, 0, "owns_all: OWNS_BASE names no plugin");
  const hal_status_t status = entry(host, api);
  if (status) return status;
  base_info = api->info;
  api->info = info;
  if (getenv("OWNS")) api->op_find = find;
  return HAL_OK;
}
