/* compiler_api.h: the functions of NVRTC, NVIDIA's run-time compiler, that the plugin uses; compared with the real
 * nvrtc.h by the same test as driver_api.h. */
#ifndef COMPILER_API_H_
#define COMPILER_API_H_

#include <stddef.h>

#define NVRTC_RESULTS(X)                      \
  X(NVRTC_SUCCESS, 0)                         \
  X(NVRTC_ERROR_OUT_OF_MEMORY, 1)             \
  X(NVRTC_ERROR_PROGRAM_CREATION_FAILURE, 2)  \
  X(NVRTC_ERROR_INVALID_INPUT, 3)             \
  X(NVRTC_ERROR_INVALID_PROGRAM, 4)           \
  X(NVRTC_ERROR_INVALID_OPTION, 5)            \
  X(NVRTC_ERROR_COMPILATION, 6)               \
  X(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, 7) \
  X(NVRTC_ERROR_INTERNAL_ERROR, 11)

#ifndef __NVRTC_H__
#define NVRTC_ENUMERATOR(name, number) name = number,
typedef enum { NVRTC_RESULTS(NVRTC_ENUMERATOR) } nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
#endif

/* X(name, parameters): functions of NVRTC 11.2 and later. */
#define NVRTC_CALLS(X)                                                                                   \
  X(nvrtcVersion, (int *major, int *minor))                                                              \
  X(nvrtcGetNumSupportedArchs, (int *count))                                                             \
  X(nvrtcGetSupportedArchs, (int *architectures))                                                        \
  X(nvrtcCreateProgram, (nvrtcProgram * program, const char *source, const char *name, int header_count, \
                         const char *const *headers, const char *const *include_names))                  \
  X(nvrtcDestroyProgram, (nvrtcProgram * program))                                                       \
  X(nvrtcCompileProgram, (nvrtcProgram program, int option_count, const char *const *options))           \
  X(nvrtcGetPTXSize, (nvrtcProgram program, size_t * bytes))                                             \
  X(nvrtcGetPTX, (nvrtcProgram program, char *ptx))                                                      \
  X(nvrtcGetCUBINSize, (nvrtcProgram program, size_t * bytes))                                           \
  X(nvrtcGetCUBIN, (nvrtcProgram program, char *cubin))                                                  \
  X(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t * bytes))                                      \
  X(nvrtcGetProgramLog, (nvrtcProgram program, char *log))

#endif /* COMPILER_API_H_ */
