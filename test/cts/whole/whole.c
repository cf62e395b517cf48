/* whole.c: see whole.h. The entry. */
#include "whole.h"

#include <dlfcn.h>

#include "own_ops.h"

hal_plugin_api_t whole_good;
static const hal_host_api_t *host;

hal_status_t whole_refuse(hal_status_t status, const char *why) { return host->error_set(status, 0, why); }

hal_status_t whole_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  hal_device_info_t info = {.struct_size = sizeof info};
  own_synchronize = whole_good.stream_synchronize;
  if (whole_good.device_info(device, &info) || !(info.flags & HAL_DEVICE_HOST_VISIBLE)) return HAL_NOT_FOUND;
  return own_find(name, OWN_NO_FAULT, out_op);
}

enum {
#define HAL_OP(since, kind, group, need, name, params, args) SLOT_##name,
#include "hal/plugin_ops.def"
#undef HAL_OP
  SLOT_COUNT
};

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *of, hal_plugin_api_t *api) {
  static uint64_t provided[8];
  const char *const path = getenv("HAL_WHOLE_OF");
  hal_plugin_entry_fn_t entry;
  host = of;
  void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *const symbol = library ? dlsym(library, "hal_plugin_entry") : NULL;
  if (!symbol) return of->error_set(HAL_INCOMPATIBLE, 0, "whole: HAL_WHOLE_OF names no plugin");
  memcpy(&entry, &symbol, sizeof entry);
  const hal_status_t status = entry(of, api);
  if (status) return status;
  memcpy(&whole_good, api, sizeof whole_good);
  for (uint64_t i = 0; i < api->provided_words && i < 8; i++) provided[i] = api->provided[i];
#define WHOLE(name) api->name = whole_##name, provided[SLOT_##name / 64] |= UINT64_C(1) << (SLOT_##name % 64);
#include "whole.def"
#undef WHOLE
  api->provided = provided;
  return HAL_OK;
}
