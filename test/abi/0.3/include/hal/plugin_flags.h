/* plugin_flags.h: for plugins: the check of flags and descriptors. A flag that a plugin does not know, such as one of
 * a later minor version, makes the call HAL_UNIMPLEMENTED; it is never ignored.
 *
 *   hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
 *     hal_status_t status = hal_flags_check("acme: host_alloc", flags, 0);
 *     if (status) return status; */
#ifndef HAL_PLUGIN_FLAGS_H_
#define HAL_PLUGIN_FLAGS_H_

#include <stdio.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns HAL_OK when `flags` has no bit outside `known`, else HAL_UNIMPLEMENTED with a message that begins with
 * `where`. Since 0.3. */
static inline hal_status_t hal_flags_check(const char *where, uint32_t flags, uint32_t known) {
  char message[192];
  if (!(flags & ~known)) return HAL_OK;
  snprintf(message, sizeof message, "%s: unsupported flags 0x%x; supported flags are 0x%x", where,
           (unsigned)(flags & ~known), (unsigned)known);
  return hal_host->error_set(HAL_UNIMPLEMENTED, 0, message);
}

/* The same for the descriptor of stream_create: checks its flags and its engine class. Since 0.3. */
static inline hal_status_t hal_stream_desc_check(const char *where, const hal_stream_desc_t *desc, uint32_t known) {
  char message[192];
  const hal_status_t status = hal_flags_check(where, desc->flags, known);
  if (status || desc->engine <= HAL_ENGINE_COPY) return status;
  snprintf(message, sizeof message, "%s: unsupported engine class %u; use HAL_ENGINE_ANY", where,
           (unsigned)desc->engine);
  return hal_host->error_set(HAL_UNIMPLEMENTED, 0, message);
}

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_FLAGS_H_ */
