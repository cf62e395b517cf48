/* error.c: the names of the driver's errors, and their conversion to the host's status. */
#include <stdarg.h>
#include <stdio.h>

#include "npu.h"

enum { MESSAGE_BYTES = 4096 }; /* build logs are long */

/* name, the host's status */
#define ERRORS(X)                                               \
  X(NOT_READY, HAL_NOT_READY)                                   \
  X(ERROR_DEVICE_LOST, HAL_UNAVAILABLE)                         \
  X(ERROR_OUT_OF_HOST_MEMORY, HAL_RESOURCE_EXHAUSTED)           \
  X(ERROR_OUT_OF_DEVICE_MEMORY, HAL_RESOURCE_EXHAUSTED)         \
  X(ERROR_MODULE_BUILD_FAILURE, HAL_INVALID_ARGUMENT)           \
  X(ERROR_MODULE_LINK_FAILURE, HAL_INVALID_ARGUMENT)            \
  X(ERROR_DEVICE_REQUIRES_RESET, HAL_UNAVAILABLE)               \
  X(ERROR_DEVICE_IN_LOW_POWER_STATE, HAL_UNAVAILABLE)           \
  X(ERROR_INSUFFICIENT_PERMISSIONS, HAL_UNAVAILABLE)            \
  X(ERROR_NOT_AVAILABLE, HAL_UNAVAILABLE)                       \
  X(ERROR_DEPENDENCY_UNAVAILABLE, HAL_UNAVAILABLE)              \
  X(ERROR_UNINITIALIZED, HAL_UNAVAILABLE)                       \
  X(ERROR_UNSUPPORTED_VERSION, HAL_UNAVAILABLE)                 \
  X(ERROR_UNSUPPORTED_FEATURE, HAL_UNIMPLEMENTED)               \
  X(ERROR_INVALID_ARGUMENT, HAL_INVALID_ARGUMENT)               \
  X(ERROR_INVALID_NULL_HANDLE, HAL_INTERNAL)                    \
  X(ERROR_HANDLE_OBJECT_IN_USE, HAL_INTERNAL)                   \
  X(ERROR_INVALID_NULL_POINTER, HAL_INVALID_ARGUMENT)           \
  X(ERROR_INVALID_SIZE, HAL_INVALID_ARGUMENT)                   \
  X(ERROR_UNSUPPORTED_SIZE, HAL_RESOURCE_EXHAUSTED)             \
  X(ERROR_UNSUPPORTED_ALIGNMENT, HAL_INVALID_ARGUMENT)          \
  X(ERROR_INVALID_SYNCHRONIZATION_OBJECT, HAL_INTERNAL)         \
  X(ERROR_INVALID_ENUMERATION, HAL_INTERNAL)                    \
  X(ERROR_UNSUPPORTED_ENUMERATION, HAL_UNIMPLEMENTED)           \
  X(ERROR_INVALID_NATIVE_BINARY, HAL_INVALID_ARGUMENT)          \
  X(ERROR_INVALID_GLOBAL_NAME, HAL_NOT_FOUND)                   \
  X(ERROR_INVALID_KERNEL_NAME, HAL_NOT_FOUND)                   \
  X(ERROR_INVALID_FUNCTION_NAME, HAL_NOT_FOUND)                 \
  X(ERROR_INVALID_GROUP_SIZE_DIMENSION, HAL_INVALID_ARGUMENT)   \
  X(ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, HAL_INVALID_ARGUMENT) \
  X(ERROR_INVALID_KERNEL_ARGUMENT_INDEX, HAL_INVALID_ARGUMENT)  \
  X(ERROR_INVALID_KERNEL_ARGUMENT_SIZE, HAL_INVALID_ARGUMENT)   \
  X(ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE, HAL_INVALID_ARGUMENT) \
  X(ERROR_INVALID_MODULE_UNLINKED, HAL_INVALID_ARGUMENT)        \
  X(ERROR_INVALID_COMMAND_LIST_TYPE, HAL_INTERNAL)              \
  X(ERROR_OVERLAPPING_REGIONS, HAL_INVALID_ARGUMENT)            \
  X(ERROR_UNKNOWN, HAL_INTERNAL)

const char *npu_error_name(ze_result_t code) {
  switch (code) {
#define NAME(error, status) \
  case ZE_RESULT_##error:   \
    return "ZE_RESULT_" #error;
    ERRORS(NAME)
    default:
      return "an error without a name in Level Zero 1.4";
  }
}

hal_status_t npu_error_status(ze_result_t code) {
  switch (code) {
#define STATUS(error, status) \
  case ZE_RESULT_##error:     \
    return status;
    ERRORS(STATUS)
    default:
      return code ? HAL_INTERNAL : HAL_OK;
  }
}

hal_status_t npu_error(hal_status_t status, int64_t native_code, const char *format, ...) {
  char message[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(status, native_code, message);
}

hal_status_t npu_driver_error(ze_result_t code, const char *format, ...) {
  char message[MESSAGE_BYTES - 128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return npu_error(npu_error_status(code), (int64_t)code, "%s: the driver returned %s (0x%x)%s", message,
                   npu_error_name(code), (unsigned)code,
                   code == ZE_RESULT_ERROR_DEVICE_LOST ? "; the device remains lost, restart the process" : "");
}
