/* plugin_handle.h: for plugins: handles that cross to other processes, as bytes whose number the driver determines. */
#ifndef HAL_PLUGIN_HANDLE_H_
#define HAL_PLUGIN_HANDLE_H_

#include <stdio.h>
#include <string.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Answers ipc_export and event_ipc_export: writes `size` to `out_size`, and the bytes to `handle` when `room` is at
 * least that. Since 0.3. */
static inline void hal_handle_write(const void *made, size_t size, void *handle, size_t room, size_t *out_size) {
  if (room >= size) memcpy(handle, made, size);
  *out_size = size;
}

/* Reads a handle that ipc_open and event_ipc_open are given. Errors: HAL_INVALID_ARGUMENT = it has another number of
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
#endif /* HAL_PLUGIN_HANDLE_H_ */
