/* plugin_transfer.h: for plugins: common parts of copies and fills: checks of rectangles, and fills by copies for
 * patterns that the driver does not support. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_TRANSFER_H_
#define HAL_PLUGIN_TRANSFER_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns HAL_COPY_* for a copy between two sides of memory_copy. Since 0.2. */
uint32_t hal_copy_direction(int32_t dst_device, int32_t src_device);

/* Checks the pitches, extent and pointers of a rectangle; `plugin` begins messages. Errors: HAL_INVALID_ARGUMENT. Since
 * 0.3. */
hal_status_t hal_copy_2d_check(const char *plugin, const hal_copy_2d_t *copy);

/* Checks the arguments of memory_fill; `plugin` begins messages. Errors: HAL_INVALID_ARGUMENT. Since 0.2. */
hal_status_t hal_fill_check(const char *plugin, const void *dst, const void *pattern, size_t pattern_size, size_t size);

/* Returns the size in bytes of the shortest pattern with the same result: 1 if all bytes are equal, else the number of
 * its bytes. Since 0.2. */
size_t hal_fill_shortest(const void *pattern, size_t pattern_size);

/* Queues a fill with a pattern, and at an address, that the driver supports; arguments as of memory_fill. */
typedef hal_status_t (*hal_fill_fn_t)(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                      size_t pattern_size, size_t size);

/* Fills by writing the pattern once, with `fill`, in pieces of at most `most` bytes, a power of two. Copies
 * (hal_plugin_memory_copy) then repeat it over ranges that double in size. Errors: theirs. Since 0.2. */
hal_status_t hal_fill_by_copies(hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
                                size_t pattern_size, size_t size, size_t most, hal_fill_fn_t fill);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_TRANSFER_H_ */
