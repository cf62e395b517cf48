/* error.c: the names of the driver's errors, and their conversion to the host's status. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda_plugin.h"

enum { MESSAGE_BYTES = 4096 }; /* build logs are long */

const char *cuda_error_name(CUresult code) {
  const char *text = NULL;
  return drv.cuGetErrorName && !drv.cuGetErrorName(code, &text) && text ? text : "an error without a name";
}

int cuda_error_is_fatal(CUresult code) {
  switch (code) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return 1;
    default:
      return 0;
  }
}

hal_status_t cuda_error_status(CUresult code) {
  if (cuda_error_is_fatal(code)) return HAL_UNAVAILABLE;
  switch (code) {
    case CUDA_SUCCESS:
      return HAL_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return HAL_RESOURCE_EXHAUSTED;
    case CUDA_ERROR_NOT_READY:
      return HAL_NOT_READY;
    case CUDA_ERROR_NOT_FOUND:
      return HAL_NOT_FOUND;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return HAL_UNIMPLEMENTED;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_MAP_FAILED: /* an invalid handle of another process */
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
      return HAL_INVALID_ARGUMENT;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE: /* another process uses it exclusively at the moment */
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return HAL_UNAVAILABLE;
    default:
      return HAL_INTERNAL;
  }
}

hal_status_t cuda_error(hal_status_t status, int64_t native_code, const char *format, ...) {
  char message[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(status, native_code, message);
}

hal_status_t cuda_driver_error(CUresult code, const char *format, ...) {
  char message[MESSAGE_BYTES - 256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return cuda_error(cuda_error_status(code), (int64_t)code, "%s: the driver returned %s (%d)%s", message,
                    cuda_error_name(code), (int)code,
                    cuda_error_is_fatal(code) ? "; the device remains lost, restart the process" : "");
}
