/* dtype.c: size and name of data types. */
#include "base/dtype.h"

#include <stddef.h>

static const struct {
  uint32_t size;
  const char *name;
} dtypes[] = {[HAL_UINT8] = {1, "uint8"},
              [HAL_INT8] = {1, "int8"},
              [HAL_INT16] = {2, "int16"},
              [HAL_INT32] = {4, "int32"},
              [HAL_INT64] = {8, "int64"},
              [HAL_FLOAT16] = {2, "float16"},
              [HAL_FLOAT32] = {4, "float32"},
              [HAL_FLOAT64] = {8, "float64"},
              [HAL_COMPLEX32] = {4, "complex32"},
              [HAL_COMPLEX64] = {8, "complex64"},
              [HAL_COMPLEX128] = {16, "complex128"},
              [HAL_BOOL] = {1, "bool"},
              [HAL_BFLOAT16] = {2, "bfloat16"},
              [HAL_FLOAT8_E5M2] = {1, "float8_e5m2"},
              [HAL_FLOAT8_E4M3FN] = {1, "float8_e4m3fn"},
              [HAL_UINT16] = {2, "uint16"},
              [HAL_UINT32] = {4, "uint32"},
              [HAL_UINT64] = {8, "uint64"},
              [HAL_FLOAT8_E5M2FNUZ] = {1, "float8_e5m2fnuz"},
              [HAL_FLOAT8_E4M3FNUZ] = {1, "float8_e4m3fnuz"},
              [HAL_FLOAT8_E8M0FNU] = {1, "float8_e8m0fnu"},
              [HAL_FLOAT4_E2M1FN_X2] = {1, "float4_e2m1fn_x2"},
              [HAL_UINT4] = {1, "uint4"},
              [HAL_INT4] = {1, "int4"}};

uint32_t hal_dtype_size(hal_dtype_t dtype) {
  return (size_t)dtype < sizeof dtypes / sizeof dtypes[0] ? dtypes[dtype].size : 0;
}

const char *hal_dtype_name(hal_dtype_t dtype) {
  const char *const name = (size_t)dtype < sizeof dtypes / sizeof dtypes[0] ? dtypes[dtype].name : NULL;
  return name ? name : "an unknown dtype";
}
