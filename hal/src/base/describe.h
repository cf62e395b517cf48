/* describe.h: tensors, values and launches as text, for the trace and for recordings. Each function appends to the
 * string in `text`, a buffer of `size` bytes; text that does not fit is cut. Private to hal/src. */
#ifndef HAL_SRC_DESCRIBE_H_
#define HAL_SRC_DESCRIBE_H_

#include <stddef.h>

#include "hal/plugin.h"

/* float32[2,3], and the strides unless they are those of a contiguous tensor; "none" for NULL. */
void hal_describe_tensor(char *text, size_t size, const hal_tensor_t *tensor);

/* A value; for a call, all its arguments or all its results, separated by commas. */
void hal_describe_value(char *text, size_t size, const hal_value_t *value);
void hal_describe_arguments(char *text, size_t size, const hal_op_call_t *call);
void hal_describe_results(char *text, size_t size, const hal_op_call_t *call);

#endif /* HAL_SRC_DESCRIBE_H_ */
