/* plugin_flags.h: for plugins: checks of flags, of descriptors, and of handles for other processes (bytes, whose number
 * the driver determines). A call with a flag that the plugin does not know, such as one of a later minor version,
 * returns HAL_UNIMPLEMENTED; the flag is never ignored.
 *
 *   hal_status_t hal_plugin_host_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
 *     hal_status_t status = hal_flags_check("acme: host_alloc", flags, 0);
 *     if (status) return status; */
#ifndef HAL_PLUGIN_FLAGS_H_
#define HAL_PLUGIN_FLAGS_H_

#include <stdio.h>
#include <string.h>

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

/* Returns HAL_OK if stream_create supports the flags and the engine class of a descriptor; otherwise as
 * hal_flags_check. Since 0.3. */
static inline hal_status_t hal_stream_desc_check(const char *where, const hal_stream_desc_t *desc, uint32_t known) {
  char message[192];
  const hal_status_t status = hal_flags_check(where, desc->flags, known);
  if (status || desc->engine <= HAL_ENGINE_COPY) return status;
  snprintf(message, sizeof message, "%s: unsupported engine class %u; use HAL_ENGINE_ANY", where,
           (unsigned)desc->engine);
  return hal_host->error_set(HAL_UNIMPLEMENTED, 0, message);
}

/* Returns HAL_OK if memory_advise supports the advice; otherwise as hal_flags_check. Since 0.4. */
static inline hal_status_t hal_advice_check(const char *where, uint32_t advice) {
  char message[192];
  if (advice >= HAL_ADVICE_READ_MOSTLY && advice <= HAL_ADVICE_NOT_ACCESSED) return HAL_OK;
  snprintf(message, sizeof message, "%s: unsupported advice %u; expected one of HAL_ADVICE_*, 1 to %d", where,
           (unsigned)advice, (int)HAL_ADVICE_NOT_ACCESSED);
  return hal_host->error_set(HAL_UNIMPLEMENTED, 0, message);
}

/* Returns HAL_OK if object_name_set supports the kind; otherwise as hal_flags_check. Since 0.4. */
static inline hal_status_t hal_object_check(const char *where, uint32_t kind) {
  char message[192];
  if (kind <= HAL_OBJECT_MEMORY) return HAL_OK;
  snprintf(message, sizeof message, "%s: unsupported kind of object %u; expected one of HAL_OBJECT_*, 0 to %d", where,
           (unsigned)kind, (int)HAL_OBJECT_MEMORY);
  return hal_host->error_set(HAL_UNIMPLEMENTED, 0, message);
}

/* Implements ipc_export and event_ipc_export: writes `size` to `out_size`, and the bytes to `handle` if `capacity` is
 * at least that. Since 0.3. */
static inline void hal_handle_write(const void *made, size_t size, void *handle, size_t capacity, size_t *out_size) {
  if (capacity >= size) memcpy(handle, made, size);
  *out_size = size;
}

/* Reads a handle that was passed to ipc_open or event_ipc_open. Errors: HAL_INVALID_ARGUMENT = it has another number of
 * bytes; the message begins with `where`. Since 0.3. */
static inline hal_status_t hal_handle_read(const char *where, const void *handle, size_t handle_size, void *made,
                                           size_t size) {
  char message[192];
  if (handle && handle_size == size) {
    memcpy(made, handle, size);
    return HAL_OK;
  }
  snprintf(message, sizeof message, "%s: invalid handle of %zu bytes: expected %zu bytes of the same plugin's export",
           where, handle_size, size);
  return hal_host->error_set(HAL_INVALID_ARGUMENT, 0, message);
}

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_FLAGS_H_ */
