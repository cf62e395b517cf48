/* check_nvml_headers.c: like check_headers.c, for NVML. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* names as they are in the library */
#include <nvml.h>
#include <stdint.h>

#include "nvml_api.h"

#define NUMBER(name, number) _Static_assert((long long)(name) == (number), #name);
NVML_ALL_NUMBERS(NUMBER)
NVML_LAYOUTS(NUMBER)

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* of later versions, which keep them in the library */
#define CALL(name, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), nvmlReturn_t(*) parameters), #name);
NVML_CALLS(CALL)
NVML_LATER_CALLS(CALL)
