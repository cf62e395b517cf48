/* dtype.h: data types of elements. Private to hal/src. */
#ifndef HAL_SRC_DTYPE_H_
#define HAL_SRC_DTYPE_H_

#include "hal/plugin.h"

/* Returns the size of an element in bytes, 0 for an unknown dtype. */
uint32_t hal_dtype_size(hal_dtype_t dtype);

/* Returns torch's name of a dtype, "float32". */
const char *hal_dtype_name(hal_dtype_t dtype);

#endif /* HAL_SRC_DTYPE_H_ */
