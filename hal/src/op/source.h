/* source.h: the sources of the portable kernels. Private to hal/src/op. */
#ifndef HAL_SRC_OP_SOURCE_H_
#define HAL_SRC_OP_SOURCE_H_

#include <stddef.h>

#include "hal/plugin.h"

/* Gives the whole source of one portable kernel, for compilers of OpenCL C and CUDA C, as a new text that the caller frees with
 * hal_free. Errors: HAL_NOT_FOUND = there is no kernel of that name; HAL_RESOURCE_EXHAUSTED. */
hal_status_t hal_op_source(const char *kernel, char **out_text, size_t *out_size);

#endif /* HAL_SRC_OP_SOURCE_H_ */
