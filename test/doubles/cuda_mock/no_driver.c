/* no_driver.c: a libcuda.so.1 for check_dnn_graphs.py only, without a device, that loads each module, so that
 * NVIDIA's libraries compile kernels without a driver. It has no cuInit: their runtime detects that there is no
 * driver. */
#define ANSWERS(name)                                          \
  __attribute__((visibility("default"))) int name(void **out); \
  int name(void **out) { return (void)out, 0; }
#define GIVES(name)                                            \
  __attribute__((visibility("default"))) int name(void **out); \
  int name(void **out) { return *out = (void *)64, 0; }

GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuKernelGetFunction)
GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction)
ANSWERS(cuCtxGetCurrent)
ANSWERS(cuCtxGetLimit)
ANSWERS(cuCtxPopCurrent)
ANSWERS(cuCtxPushCurrent)
ANSWERS(cuDeviceGet)
ANSWERS(cuDeviceGetAttribute)
ANSWERS(cuFuncGetAttribute)
ANSWERS(cuFuncSetAttribute)
ANSWERS(cuGetErrorName)
ANSWERS(cuGetErrorString)
ANSWERS(cuKernelGetAttribute)
ANSWERS(cuKernelSetAttribute)
ANSWERS(cuLaunchCooperativeKernel)
ANSWERS(cuLaunchKernel)
ANSWERS(cuLaunchKernelEx)
ANSWERS(cuLibraryLoadFromFile)
ANSWERS(cuLibraryUnload)
ANSWERS(cuLinkAddData)
ANSWERS(cuLinkComplete)
ANSWERS(cuLinkCreate)
ANSWERS(cuLinkDestroy)
ANSWERS(cuModuleLoadDataEx)
ANSWERS(cuModuleUnload)
ANSWERS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ANSWERS(cuOccupancyMaxActiveClusters)
ANSWERS(cuOccupancyMaxPotentialClusterSize)
ANSWERS(cuStreamGetCtx)
ANSWERS(cuTensorMapEncodeIm2col)
ANSWERS(cuTensorMapEncodeTiled)

__attribute__((visibility("default"))) int cuDriverGetVersion(int *out);
int cuDriverGetVersion(int *out) { return *out = 12080, 0; }
__attribute__((visibility("default"))) int cuDeviceGetCount(int *out);
int cuDeviceGetCount(int *out) { return *out = 1, 0; }
