/* other.c: functions of the driver that the plugin does not call, and other programs do, such as the launcher that
 * Triton compiles. */
#include "mock.h"

enum { DEVICE_POINTER = 3 }; /* CU_POINTER_ATTRIBUTE_DEVICE_POINTER */

API CUresult cuModuleLoadData(CUmodule *module, const void *image);
API CUresult cuFuncSetCacheConfig(CUfunction function, int config);
API CUresult cuGetErrorString(CUresult code, const char **text);
API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address);
API CUresult cuCtxGetLimit(size_t *value, int limit);
API CUresult cuCtxSetLimit(int limit, size_t value);

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
  (void)config;
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  if (attribute != DEVICE_POINTER) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_device_range(address, 1) && !is_locked_range((const void *)(uintptr_t)address, 1))
    return CUDA_ERROR_INVALID_VALUE;
  *(CUdeviceptr *)data = address;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
  (void)limit;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
  (void)limit;
  (void)value;
  return CUDA_SUCCESS;
}
