/* source.h: the sources of the portable kernels. Private to hal/src/op. */
#ifndef HAL_SRC_OP_SOURCE_H_
#define HAL_SRC_OP_SOURCE_H_

#include <stddef.h>

#include "hal/plugin.h"

/* Returns the complete source of one portable kernel, for compilers of OpenCL C and CUDA C, as a new text that the
 * caller frees with hal_free; *out_size is its length in bytes, without the terminating 0. Any thread. Errors:
 * HAL_NOT_FOUND = there is no kernel with that name; HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_op_source(const char *kernel, char **out_text, size_t *out_size);

/* Returns the source of a kernel of the application: the dialect's headers followed by its text, for those compilers
 * or, if `host` is set, for the host's C compiler. Errors: HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_op_source_of_text(const char *text, int host, char **out_text, size_t *out_size);

/* Writes the text that defines the function of one element of an element-wise instance ("add_f32_"), for kernels of
 * several operators, unless `to` is NULL. Returns its size without a terminating 0; 0 = there is none. */
size_t hal_op_source_step(const char *instance, char *to);

/* Returns whether the host's kernel of that instance is a loop over that function, which the host's compiler may
 * compile again, with the same results and as vector code. */
int hal_op_source_step_is_plain(const char *instance);

/* Returns a hash of all sources of this library. */
void hal_op_source_version(uint64_t out_version[2]);

/* Return the number of kernels, and the name of each, in the order of strcmp; NULL past the last one. */
size_t hal_op_source_count(void);
const char *hal_op_source_name(size_t index);

#endif /* HAL_SRC_OP_SOURCE_H_ */
