/* driver_api.h: the declarations of the CUDA driver (libcuda.so.1) that the plugin uses. They are repeated here,
 * because the header is part of the vendor's toolkit, which few machines have. The names and the lists are the
 * vendor's. test/doubles/cuda_mock/check_headers.py compares them with the real cuda.h: if that is included before,
 * it provides the types, and only the lists are defined here. */
#ifndef DRIVER_API_H_
#define DRIVER_API_H_

#include <stddef.h>
#include <stdint.h>

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* X(name, number): errors of the driver. */
#define CUDA_RESULTS(X)                             \
  X(CUDA_SUCCESS, 0)                                \
  X(CUDA_ERROR_INVALID_VALUE, 1)                    \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                  \
  X(CUDA_ERROR_DEINITIALIZED, 4)                    \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                    \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)              \
  X(CUDA_ERROR_NO_DEVICE, 100)                      \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                 \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                  \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                \
  X(CUDA_ERROR_MAP_FAILED, 205)                     \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)              \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)              \
  X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)        \
  X(CUDA_ERROR_INVALID_PTX, 218)                    \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)           \
  X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)         \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)        \
  X(CUDA_ERROR_INVALID_SOURCE, 300)                 \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304)               \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                 \
  X(CUDA_ERROR_NOT_FOUND, 500)                      \
  X(CUDA_ERROR_NOT_READY, 600)                      \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)        \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                 \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)    \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)           \
  X(CUDA_ERROR_ASSERT, 710)                         \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)     \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)           \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)            \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)             \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)          \
  X(CUDA_ERROR_INVALID_PC, 718)                     \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                  \
  X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720)   \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                  \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                  \
  X(CUDA_ERROR_SYSTEM_NOT_READY, 802)               \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)         \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)     \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)     \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)       \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)        \
  X(CUDA_ERROR_CAPTURED_EVENT, 907)                 \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)    \
  X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910)      \
  X(CUDA_ERROR_UNKNOWN, 999)

#define CUDA_DEVICE_ATTRIBUTES(X)                                         \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                         \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 2)                               \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 3)                               \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 4)                               \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5)                                \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 6)                                \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 7)                                \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                   \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                    \
  X(CU_DEVICE_ATTRIBUTE_MAX_PITCH, 11)                                    \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                         \
  X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                   \
  X(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                \
  X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                \
  X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                           \
  X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                           \
  X(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                     \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                     \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)                       \
  X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                    \
  X(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95)                           \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)            \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)         \
  X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                      \
  X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)

#define CUDA_POINTER_ATTRIBUTES(X)             \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)       \
  X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)        \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)    \
  X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)

#define CUDA_FUNCTION_ATTRIBUTES(X)             \
  X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0) \
  X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)     \
  X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)      \
  X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)              \
  X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)

#define CUDA_JIT_OPTIONS(X)     \
  X(CU_JIT_ERROR_LOG_BUFFER, 5) \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)

#define CUDA_FLAGS(X)             \
  X(CU_STREAM_DEFAULT, 0)         \
  X(CU_STREAM_NON_BLOCKING, 1)    \
  X(CU_EVENT_DEFAULT, 0)          \
  X(CU_EVENT_BLOCKING_SYNC, 1)    \
  X(CU_EVENT_DISABLE_TIMING, 2)   \
  X(CU_EVENT_INTERPROCESS, 4)     \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)  \
  X(CU_MEMHOSTALLOC_DEVICEMAP, 2) \
  X(CU_MEMHOSTREGISTER_PORTABLE, 1)

#define CUDA_ACCESSES(X)              \
  X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0) \
  X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1) \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)

#define CUDA_HANDLE_TYPES(X)    \
  X(CU_MEM_HANDLE_TYPE_NONE, 0) \
  X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)

#define CUDA_POOL_ATTRIBUTES(X)              \
  X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)    \
  X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5) \
  X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)

/* Types with one enumerator that is used. */
#define CUDA_KINDS(X)                    \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)    \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)      \
  X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) \
  X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)

#define CUDA_MEMORY_TYPES(X) X(CU_MEMORYTYPE_HOST, 1) X(CU_MEMORYTYPE_DEVICE, 2)

#define CUDA_ADVICE(X)                         \
  X(CU_MEM_ADVISE_SET_READ_MOSTLY, 1)          \
  X(CU_MEM_ADVISE_UNSET_READ_MOSTLY, 2)        \
  X(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3)   \
  X(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 4) \
  X(CU_MEM_ADVISE_SET_ACCESSED_BY, 5)          \
  X(CU_MEM_ADVISE_UNSET_ACCESSED_BY, 6)

#define CUDA_CAPTURE_MODES(X)               \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)       \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#define CUDA_CAPTURE_STATUSES(X)        \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)   \
  X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) \
  X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)

#define CUDA_UPDATE_RESULTS(X)       \
  X(CU_GRAPH_EXEC_UPDATE_SUCCESS, 0) \
  X(CU_GRAPH_EXEC_UPDATE_ERROR, 1)

#define CUDA_LAUNCH_ATTRIBUTES(X)                             \
  X(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2)                       \
  X(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                 \
  X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6) \
  X(CU_LAUNCH_ATTRIBUTE_PRIORITY, 8)                          \
  X(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 14)

#define CUDA_ATTRIBUTES(X) \
  CUDA_DEVICE_ATTRIBUTES(X) CUDA_POINTER_ATTRIBUTES(X) CUDA_FUNCTION_ATTRIBUTES(X) CUDA_LAUNCH_ATTRIBUTES(X)
#define CUDA_CAPTURES(X) CUDA_CAPTURE_MODES(X) CUDA_CAPTURE_STATUSES(X) CUDA_UPDATE_RESULTS(X)
#define CUDA_MEMORIES(X) \
  CUDA_MEMORY_TYPES(X) CUDA_ADVICE(X) CUDA_ACCESSES(X) CUDA_HANDLE_TYPES(X) CUDA_POOL_ATTRIBUTES(X) CUDA_KINDS(X)
#define CUDA_ALL_NUMBERS(X) \
  CUDA_RESULTS(X) CUDA_ATTRIBUTES(X) CUDA_JIT_OPTIONS(X) CUDA_FLAGS(X) CUDA_CAPTURES(X) CUDA_MEMORIES(X)

/* ---- types, unless the vendor's header defined them ------------------------------------------------------------- */
#ifndef CUDA_VERSION
#define CUDA_ENUMERATOR(name, number) name = number,
typedef enum cudaError_enum { CUDA_RESULTS(CUDA_ENUMERATOR) } CUresult;
typedef enum { CUDA_DEVICE_ATTRIBUTES(CUDA_ENUMERATOR) } CUdevice_attribute;
typedef enum { CUDA_POINTER_ATTRIBUTES(CUDA_ENUMERATOR) } CUpointer_attribute;
typedef enum { CUDA_FUNCTION_ATTRIBUTES(CUDA_ENUMERATOR) } CUfunction_attribute;
typedef enum { CUDA_JIT_OPTIONS(CUDA_ENUMERATOR) } CUjit_option;
typedef enum { CUDA_LAUNCH_ATTRIBUTES(CUDA_ENUMERATOR) } CUlaunchAttributeID;
typedef enum { CUDA_CAPTURE_MODES(CUDA_ENUMERATOR) } CUstreamCaptureMode;
typedef enum { CUDA_CAPTURE_STATUSES(CUDA_ENUMERATOR) } CUstreamCaptureStatus;
typedef enum { CUDA_UPDATE_RESULTS(CUDA_ENUMERATOR) } CUgraphExecUpdateResult;
typedef enum CUmem_advise_enum { CUDA_ADVICE(CUDA_ENUMERATOR) } CUmem_advise;
enum { CUDA_FLAGS(CUDA_ENUMERATOR) CU_DEVICE_CPU = -1 };

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
typedef void (*CUhostFn)(void *user_data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *user_data);
typedef enum { CU_GET_PROC_ADDRESS_SUCCESS = 0 } CUdriverProcAddressQueryResult;

typedef enum { CUDA_ACCESSES(CUDA_ENUMERATOR) } CUmemAccess_flags;
typedef enum { CUDA_HANDLE_TYPES(CUDA_ENUMERATOR) } CUmemAllocationHandleType;
typedef enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;
typedef enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 } CUmemAllocationGranularity_flags;
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUmemLocation_st {
  CUmemLocationType type;
  int id;
} CUmemLocation;
typedef struct CUmemAllocationProp_st {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
  CUmemLocation location;
  CUmemAccess_flags flags;
} CUmemAccessDesc;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef enum { CUDA_POOL_ATTRIBUTES(CUDA_ENUMERATOR) } CUmemPool_attribute;
typedef struct CUmemPoolProps_st {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
typedef enum { CUDA_MEMORY_TYPES(CUDA_ENUMERATOR) } CUmemorytype;
typedef struct CUDA_MEMCPY2D_st {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  struct CUarray_st *srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  struct CUarray_st *dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
typedef struct CUipcMemHandle_st {
  char reserved[64];
} CUipcMemHandle;
typedef struct CUipcEventHandle_st {
  char reserved[64];
} CUipcEventHandle;

typedef union CUlaunchAttributeValue_union {
  char pad[64];
  int cooperative;
  struct {
    unsigned int x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
  unsigned int sharedMemCarveout;
} CUlaunchAttributeValue;
typedef struct CUlaunchAttribute_st {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig_st {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned int numAttrs;
} CUlaunchConfig;
#endif

/* X(expression, number): the memory layout of the structs. */
#define CUDA_LAYOUTS(X)                                          \
  X(sizeof(CUresult), 4)                                         \
  X(sizeof(CUuuid), 16)                                          \
  X(sizeof(CUmemLocation), 8)                                    \
  X(offsetof(CUmemAllocationProp, location), 8)                  \
  X(offsetof(CUmemAllocationProp, win32HandleMetaData), 16)      \
  X(offsetof(CUmemAllocationProp, allocFlags.usage), 26)         \
  X(sizeof(CUmemAllocationProp), 32)                             \
  X(offsetof(CUmemAccessDesc, flags), 8)                         \
  X(sizeof(CUmemAccessDesc), 12)                                 \
  X(offsetof(CUmemPoolProps, location), 8)                       \
  X(offsetof(CUmemPoolProps, maxSize), 24)                       \
  X(sizeof(CUmemPoolProps), 88)                                  \
  X(offsetof(CUDA_MEMCPY2D, srcHost), 24)                        \
  X(offsetof(CUDA_MEMCPY2D, srcPitch), 48)                       \
  X(offsetof(CUDA_MEMCPY2D, dstMemoryType), 72)                  \
  X(offsetof(CUDA_MEMCPY2D, dstPitch), 104)                      \
  X(sizeof(CUDA_MEMCPY2D), 128)                                  \
  X(sizeof(CUipcMemHandle), 64)                                  \
  X(sizeof(CUipcEventHandle), 64)                                \
  X(sizeof(CUlaunchAttributeValue), 64)                          \
  X(sizeof(((CUlaunchAttributeValue *)0)->cooperative), 4)       \
  X(offsetof(CUlaunchAttributeValue, clusterDim.z), 8)           \
  X(sizeof(((CUlaunchAttributeValue *)0)->sharedMemCarveout), 4) \
  X(offsetof(CUlaunchAttribute, value), 8)                       \
  X(sizeof(CUlaunchAttribute), 72)                               \
  X(offsetof(CUlaunchConfig, sharedMemBytes), 24)                \
  X(offsetof(CUlaunchConfig, hStream), 32)                       \
  X(offsetof(CUlaunchConfig, attrs), 40)                         \
  X(offsetof(CUlaunchConfig, numAttrs), 48)                      \
  X(sizeof(CUlaunchConfig), 56)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* X(name, version, parameters): cuGetProcAddress is called with that version, in which the function has these
 * parameters: 3020 is CUDA 3.2. Functions that every driver since 11.3 has. */
#define CUDA_CALLS(X)                                                                                                  \
  X(cuInit, 2000, (unsigned int flags))                                                                                \
  X(cuDriverGetVersion, 2020, (int *version))                                                                          \
  X(cuDeviceGetCount, 2000, (int *count))                                                                              \
  X(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                                                               \
  X(cuDeviceGetName, 2000, (char *name, int room, CUdevice device))                                                    \
  X(cuDeviceGetUuid, 9020, (CUuuid * uuid, CUdevice device))                                                           \
  X(cuDeviceTotalMem, 3020, (size_t * bytes, CUdevice device))                                                         \
  X(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device))                           \
  X(cuDeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer))                                           \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                                            \
  X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                                               \
  X(cuDevicePrimaryCtxReset, 11000, (CUdevice device))                                                                 \
  X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                                      \
  X(cuCtxSetCurrent, 4000, (CUcontext context))                                                                        \
  X(cuCtxSynchronize, 2000, (void))                                                                                    \
  X(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))                                                    \
  X(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned int flags))                                                 \
  X(cuMemGetInfo, 3020, (size_t * free_bytes, size_t * total_bytes))                                                   \
  X(cuMemAlloc, 3020, (CUdeviceptr * address, size_t bytes))                                                           \
  X(cuMemFree, 3020, (CUdeviceptr address))                                                                            \
  X(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned int flags))                                          \
  X(cuMemHostGetDevicePointer, 3020, (CUdeviceptr * address, void *host, unsigned int flags))                          \
  X(cuMemFreeHost, 2000, (void *address))                                                                              \
  X(cuMemHostRegister, 6050, (void *address, size_t bytes, unsigned int flags))                                        \
  X(cuMemHostUnregister, 4000, (void *address))                                                                        \
  X(cuPointerGetAttributes, 7000,                                                                                      \
    (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))                           \
  X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                        \
  X(cuMemcpyDtoHAsync, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                              \
  X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                        \
  X(cuMemcpy2DAsync, 3020, (const CUDA_MEMCPY2D *copy, CUstream stream))                                               \
  X(cuMemcpyPeerAsync, 4000,                                                                                           \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream))   \
  X(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                       \
  X(cuMemsetD16Async, 3020, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))                     \
  X(cuMemsetD32Async, 3020, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream))                       \
  X(cuStreamCreateWithPriority, 5050, (CUstream * stream, unsigned int flags, int priority))                           \
  X(cuStreamDestroy, 4000, (CUstream stream))                                                                          \
  X(cuStreamSynchronize, 2000, (CUstream stream))                                                                      \
  X(cuStreamQuery, 2000, (CUstream stream))                                                                            \
  X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned int flags))                                     \
  X(cuStreamAddCallback, 5000, (CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags))      \
  X(cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void *user_data))                                    \
  X(cuEventCreate, 2000, (CUevent * event, unsigned int flags))                                                        \
  X(cuEventDestroy, 4000, (CUevent event))                                                                             \
  X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                                             \
  X(cuEventQuery, 2000, (CUevent event))                                                                               \
  X(cuEventSynchronize, 2000, (CUevent event))                                                                         \
  X(cuEventElapsedTime, 2000, (float *milliseconds, CUevent start, CUevent end))                                       \
  X(cuModuleLoadDataEx, 2010,                                                                                          \
    (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values))                  \
  X(cuModuleUnload, 2000, (CUmodule module))                                                                           \
  X(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))                             \
  X(cuFuncGetAttribute, 2020, (int *value, CUfunction_attribute attribute, CUfunction function))                       \
  X(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value))                        \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                                                                 \
    (int *blocks, CUfunction function, int block_threads, size_t shared_bytes))                                        \
  X(cuLaunchKernel, 4000,                                                                                              \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,         \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **arguments,         \
     void **extra))                                                                                                    \
  X(cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode))                                          \
  X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                                                     \
  X(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus * status))                                     \
  X(cuStreamGetCaptureInfo, 10010, (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id))                 \
  X(cuGraphInstantiate, 11000,                                                                                         \
    (CUgraphExec * exec, CUgraph graph, CUgraphNode * error_node, char *log, size_t log_bytes))                        \
  X(cuGraphExecUpdate, 10020,                                                                                          \
    (CUgraphExec exec, CUgraph graph, CUgraphNode * error_node, CUgraphExecUpdateResult * result))                     \
  X(cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))                                                         \
  X(cuGraphDestroy, 10000, (CUgraph graph))                                                                            \
  X(cuGraphExecDestroy, 10000, (CUgraphExec exec))                                                                     \
  X(cuMemGetAllocationGranularity, 10020,                                                                              \
    (size_t * bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags which))                   \
  X(cuMemAddressReserve, 10020,                                                                                        \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags))               \
  X(cuMemAddressFree, 10020, (CUdeviceptr address, size_t bytes))                                                      \
  X(cuMemCreate, 10020,                                                                                                \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,                       \
     unsigned long long flags))                                                                                        \
  X(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                                                        \
  X(cuMemMap, 10020,                                                                                                   \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemUnmap, 10020, (CUdeviceptr address, size_t bytes))                                                            \
  X(cuMemSetAccess, 10020, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count))             \
  X(cuMemExportToShareableHandle, 10020,                                                                               \
    (void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))     \
  X(cuMemImportFromShareableHandle, 10020,                                                                             \
    (CUmemGenericAllocationHandle * handle, void *shared, CUmemAllocationHandleType type))                             \
  X(cuMemPoolCreate, 11020, (CUmemoryPool * pool, const CUmemPoolProps *properties))                                   \
  X(cuMemPoolDestroy, 11020, (CUmemoryPool pool))                                                                      \
  X(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                     \
  X(cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                     \
  X(cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc *list, size_t count))                         \
  X(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep))                                                          \
  X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))         \
  X(cuMemFreeAsync, 11020, (CUdeviceptr address, CUstream stream))                                                     \
  X(cuIpcGetMemHandle, 4010, (CUipcMemHandle * handle, CUdeviceptr address))                                           \
  X(cuIpcOpenMemHandle, 11000, (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))                     \
  X(cuIpcCloseMemHandle, 4010, (CUdeviceptr address))                                                                  \
  X(cuIpcGetEventHandle, 4010, (CUipcEventHandle * handle, CUevent event))                                             \
  X(cuIpcOpenEventHandle, 4010, (CUevent * event, CUipcEventHandle handle))                                            \
  X(cuGetErrorName, 6000, (CUresult error, const char **text))

/* Functions of later drivers, and functions of hints: NULL if the driver lacks them. */
#define CUDA_LATER_CALLS(X)                                                                                       \
  X(cuMemPrefetchAsync, 8000, (CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream))                  \
  X(cuMemAdvise, 8000, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device))                 \
  X(cuLaunchKernelEx, 11060, (const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)) \
  X(cuFuncGetParamInfo, 12040, (CUfunction function, size_t index, size_t * offset, size_t * bytes))

/* The functions that find all others; in dlsym under the names of their versions. */
typedef CUresult (*cuda_find_old_fn)(const char *symbol, void **function, int version, cuuint64_t flags); /* 11.3 */
typedef CUresult (*cuda_find_fn)(const char *symbol, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *found); /* 12.0, "cuGetProcAddress_v2" */

#endif /* DRIVER_API_H_ */
