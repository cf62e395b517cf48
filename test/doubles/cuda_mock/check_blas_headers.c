/* check_blas_headers.c: like check_headers.c, for cuBLASLt. */
/* Other calls use the short types, whose headers need those of another package. */
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
typedef struct {
  unsigned short x;
} __half;
typedef __half __nv_bfloat16;
#include <cublasLt.h>
/* cublasLt.h includes CUDA's runtime, whose cudaStream_t is the driver's CUstream; cuda.h declares the driver's
   types. */
#include <cuda.h>

#include "blas_api.h"

#define NUMBER(name, number) _Static_assert((long long)(name) == (number), #name);
BLAS_ALL_NUMBERS(NUMBER)
BLAS_LAYOUTS(NUMBER)

#define CALL(name, result, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), #name);
BLAS_CALLS(CALL)
