/* plugin_transfer.h: for plugins: what copies and fills of most drivers have in common: checks of rectangles, patterns that the driver has no call for
 * become copies. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_TRANSFER_H_
#define HAL_PLUGIN_TRANSFER_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* HAL_COPY_* of a copy between two sides as of memory_copy. Since 0.2. */
uint32_t hal_copy_direction(int32_t dst_device, int32_t src_device);

/* Checks a rectangle with bytes, its pitches, extent and pointers; `plugin` begins messages. Errors: HAL_INVALID_ARGUMENT. Since 0.3. */
hal_status_t hal_copy_2d_check(const char *plugin, const hal_copy_2d_t *copy);

/* Looks at the arguments of memory_fill; `plugin` begins messages. Errors: HAL_INVALID_ARGUMENT. Since 0.2. */
hal_status_t hal_fill_check(const char *plugin, const void *dst, const void *pattern, size_t pattern_size, size_t size);

/* The bytes of the shortest pattern that fills the same: 1 when all bytes are one, else as many as it has. Since 0.2. */
size_t hal_fill_shortest(const void *pattern, size_t pattern_size);

/* Queues a fill with a pattern, and at an address, that the driver takes; arguments as of memory_fill. */
typedef hal_status_t (*hal_fill_fn_t)(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                      size_t pattern_size, size_t size);

/* Fills by one turn of the pattern, which `fill` writes in pieces of at most `most` bytes, a power of two, and by copies of what is there
 * to ever longer ranges behind it (hal_plugin_memory_copy). Errors: theirs. Since 0.2. */
hal_status_t hal_fill_by_copies(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                size_t pattern_size, size_t size, size_t most, hal_fill_fn_t fill);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_TRANSFER_H_ */
