/* check_dnn_headers.c: like check_headers.c, for cuDNN, version 8 or 9. */
#include <cudnn.h>
/* cudnn.h includes CUDA's runtime, whose cudaStream_t is the driver's CUstream; cuda.h declares the driver's types. */
#include <cuda.h>

#include "dnn_api.h"

#define NUMBER(name, number) _Static_assert((long long)(name) == (number), #name);
#if CUDNN_MAJOR < 9
DNN_STATUSES_8(NUMBER)
#else
DNN_STATUSES(NUMBER)
#endif
DNN_CHOICES(NUMBER)
DNN_LAYOUTS(NUMBER)

#define CALL(name, result, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), #name);
DNN_CALLS(CALL)
