/* nccl_api.h: the constants, layouts and functions of NCCL that the plugin uses; compared with the real header, as
 * driver_api.h. */
#ifndef NCCL_API_H_
#define NCCL_API_H_

#include <limits.h>
#include <stddef.h>

#include "driver_api.h"

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

#define NCCL_RESULTS(X)        \
  X(ncclSuccess, 0)            \
  X(ncclUnhandledCudaError, 1) \
  X(ncclSystemError, 2)        \
  X(ncclInternalError, 3)      \
  X(ncclInvalidArgument, 4)    \
  X(ncclInvalidUsage, 5)       \
  X(ncclRemoteError, 6)        \
  X(ncclInProgress, 7)
#define NCCL_TYPES(X) \
  X(ncclInt8, 0)      \
  X(ncclUint8, 1)     \
  X(ncclInt32, 2)     \
  X(ncclUint32, 3)    \
  X(ncclInt64, 4)     \
  X(ncclUint64, 5)    \
  X(ncclFloat16, 6)   \
  X(ncclFloat32, 7)   \
  X(ncclFloat64, 8)   \
  X(ncclBfloat16, 9)
#define NCCL_REDUCTIONS(X) X(ncclSum, 0) X(ncclProd, 1) X(ncclMax, 2) X(ncclMin, 3) X(ncclAvg, 4)
#define NCCL_RESIDENCES(X) X(ncclScalarDevice, 0) X(ncclScalarHostImmediate, 1)
#define NCCL_ALL_NUMBERS(X) NCCL_RESULTS(X) NCCL_TYPES(X) NCCL_REDUCTIONS(X) NCCL_RESIDENCES(X)

/* ---- types, unless the vendor's header defined them ------------------------------------------------------------- */
#ifndef NCCL_UNIQUE_ID_BYTES
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define NCCL_ENUMERATOR(name, number) name = number,
typedef enum { NCCL_RESULTS(NCCL_ENUMERATOR) } ncclResult_t;
typedef enum { NCCL_TYPES(NCCL_ENUMERATOR) } ncclDataType_t;
typedef enum { NCCL_REDUCTIONS(NCCL_ENUMERATOR) ncclMaxRedOp = INT_MAX } ncclRedOp_t;
typedef enum { NCCL_RESIDENCES(NCCL_ENUMERATOR) } ncclScalarResidence_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclConfig_s ncclConfig_t;
typedef CUstream cudaStream_t;
#endif

/* The configuration of version 2.19, which later libraries accept and extend: `size` and `version` identify it. */
typedef struct nccl_config_s {
  size_t size;
  unsigned int magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
  int trafficClass; /* of later versions, in former padding */
} nccl_config_t;
#define NCCL_CONFIG_VERSION 21900

/* X(member) */
#define NCCL_CONFIG_MEMBERS(X) \
  X(size)                      \
  X(magic) X(version) X(blocking) X(cgaClusterSize) X(minCTAs) X(maxCTAs) X(netName) X(splitShare) X(trafficClass)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* X(name, parameters): functions of version 2.19 and later. */
#define NCCL_CALLS(X)                                                                                                  \
  X(ncclGetVersion, (int *version))                                                                                    \
  X(ncclGetUniqueId, (ncclUniqueId * id))                                                                              \
  X(ncclCommInitRankConfig, (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))            \
  X(ncclCommFinalize, (ncclComm_t comm))                                                                               \
  X(ncclCommDestroy, (ncclComm_t comm))                                                                                \
  X(ncclCommAbort, (ncclComm_t comm))                                                                                  \
  X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config))                      \
  X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                                    \
  X(ncclCommCount, (ncclComm_t comm, int *count))                                                                      \
  X(ncclCommUserRank, (ncclComm_t comm, int *rank))                                                                    \
  X(ncclCommRegister, (ncclComm_t comm, void *ptr, size_t size, void **handle))                                        \
  X(ncclCommDeregister, (ncclComm_t comm, void *handle))                                                               \
  X(ncclRedOpCreatePreMulSum,                                                                                          \
    (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm))           \
  X(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                                                               \
  X(ncclAllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,  \
                    cudaStream_t stream))                                                                              \
  X(ncclReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,            \
                 ncclComm_t comm, cudaStream_t stream))                                                                \
  X(ncclBroadcast,                                                                                                     \
    (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclReduceScatter, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,               \
                        ncclComm_t comm, cudaStream_t stream))                                                         \
  X(ncclAllGather,                                                                                                     \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))           \
  X(ncclSend, (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))   \
  X(ncclRecv, (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))         \
  X(ncclGroupStart, (void))                                                                                            \
  X(ncclGroupEnd, (void))

/* Functions of later versions; NULL if the library lacks them. */
#define NCCL_LATER_CALLS(X) \
  X(ncclCommShrink, (ncclComm_t comm, int *ranks, int count, ncclComm_t *made, ncclConfig_t *config, int flags))

/* X(name, parameters): functions that return text. */
#define NCCL_TEXT_CALLS(X)                   \
  X(ncclGetErrorString, (ncclResult_t code)) \
  X(ncclGetLastError, (ncclComm_t comm))

#endif /* NCCL_API_H_ */
