/* check_nccl_headers.c: like check_headers.c, for NCCL. */
#include <cuda.h>
/* The order matters: types that CUDA declares are not declared again. */
#include <nccl.h>
#include <stdint.h>

#include "comm/nccl_api.h"

#define NUMBER(name, number) _Static_assert((long long)(name) == (number), #name);
NCCL_ALL_NUMBERS(NUMBER)
_Static_assert(sizeof(ncclUniqueId) == 128 && sizeof(ncclRedOp_t) == 4 && sizeof(ncclResult_t) == 4, "sizes");
_Static_assert(NCCL_API_MAGIC == 0xcafebeef && NCCL_CONFIG_UNDEF_INT == INT_MIN, "marks of a configuration");
#if NCCL_VERSION_CODE >= 22700
_Static_assert(NCCL_SHRINK_DEFAULT == 0 && NCCL_SHRINK_ABORT == 1, "flags of ncclCommShrink");
#endif

/* The plugin's struct is a prefix of the real one; trafficClass replaced padding in 2.26. */
#define MEMBER(name)                                                                          \
  _Static_assert(offsetof(nccl_config_t, name) == offsetof(ncclConfig_t, name) &&             \
                     sizeof(((nccl_config_t *)0)->name) == sizeof(((ncclConfig_t *)0)->name), \
                 #name);
#if NCCL_VERSION_CODE >= 22600
NCCL_CONFIG_MEMBERS(MEMBER)
#endif
_Static_assert(sizeof(nccl_config_t) <= sizeof(ncclConfig_t), "a beginning");

#define CALL(name, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), ncclResult_t(*) parameters), #name);
NCCL_CALLS(CALL)
#if NCCL_VERSION_CODE >= 22700
NCCL_LATER_CALLS(CALL)
#endif
#define TEXT(name, parameters) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), const char *(*)parameters), #name);
NCCL_TEXT_CALLS(TEXT)
