/* plugin_binary.h: for plugins: a header ("seal") before a driver's binary, for module_export and module_load in the
 * dialect "binary". Drivers do not check reliably whether a binary fits them. The seal identifies the device and driver
 * for which it was compiled, and detects damage. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_BINARY_H_
#define HAL_PLUGIN_BINARY_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Size of the seal, which precedes the driver's binary, and of the maker's text in it including the NUL, in bytes. */
enum { HAL_BINARY_MAKER = 360, HAL_BINARY_SEAL = HAL_BINARY_MAKER + 24 };

/* Writes the seal for the `size` bytes that begin HAL_BINARY_SEAL bytes after `data`. `maker` identifies the device and
 * driver that the binary fits, such as "'Device 9' (driver 1.2)". Since 0.2. */
void hal_binary_seal(void *data, size_t size, const char *maker);

/* Checks a module in the dialect "binary" and returns the driver's bytes in it, borrowed. `plugin` begins messages.
 * Errors: HAL_INVALID_ARGUMENT = not sealed, another maker's, or damaged, with the cause in the message. Since 0.2. */
hal_status_t hal_binary_open(const char *plugin, const hal_module_desc_t *desc, const char *maker,
                             const void **out_data, size_t *out_size);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_BINARY_H_ */
