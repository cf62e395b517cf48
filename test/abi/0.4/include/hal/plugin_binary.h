/* plugin_binary.h: for plugins: a driver's binary with a seal, for module_export and module_load in the dialect "binary". Drivers are no
 * judges of whose binary they are given: the seal says for which device and driver it was made, and whether it is whole. Linked from
 * libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_BINARY_H_
#define HAL_PLUGIN_BINARY_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the seal, which stands before the driver's binary, and of the maker's text in it, NUL included. */
enum { HAL_BINARY_MAKER = 360, HAL_BINARY_SEAL = HAL_BINARY_MAKER + 24 };

/* Writes the seal for the `size` bytes that lie HAL_BINARY_SEAL bytes behind `data`. `maker` tells people and this file what the binary
 * fits, such as "'Device 9' (driver 1.2)". Since 0.2. */
void hal_binary_seal(void *data, size_t size, const char *maker);

/* Looks at a module in the dialect "binary" and gives the driver's bytes in it, borrowed. `plugin` begins messages. Errors:
 * HAL_INVALID_ARGUMENT = not sealed, another maker's, or damaged; the message says which. Since 0.2. */
hal_status_t hal_binary_open(const char *plugin, const hal_module_desc_t *desc, const char *maker,
                             const void **out_data, size_t *out_size);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_BINARY_H_ */
