/* check_headers.c: compiled with the vendor's headers (check_headers.py): the plugin's declarations of numbers,
   layouts and functions must equal them. */
#define __CUDA_API_VERSION_INTERNAL /* names as they are in the library */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvrtc.h>
/* The lists' names are not renamed to those of the newest versions. */
#include "compiler_api.h"
#include "driver_api.h"

#define NUMBER(name, number) _Static_assert((long long)(name) == (number), #name);
CUDA_ALL_NUMBERS(NUMBER)
NVRTC_RESULTS(NUMBER)
CUDA_LAYOUTS(NUMBER)

/* The parameters are those of the requested version; const and names of types may differ. */
#define CALL(name, version, parameters) \
  _Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, CUresult(*) parameters), #name);
CUDA_CALLS(CALL)
CUDA_LATER_CALLS(CALL)

#define COMPILER_CALL(name, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), nvrtcResult(*) parameters), #name);
NVRTC_CALLS(COMPILER_CALL)

_Static_assert(__builtin_types_compatible_p(PFN_cuGetProcAddress_v11030, cuda_find_old_fn), "cuGetProcAddress");
_Static_assert(__builtin_types_compatible_p(PFN_cuGetProcAddress_v12000, cuda_find_fn), "cuGetProcAddress_v2");
