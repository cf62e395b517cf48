/* error.c: the names of the driver's errors, and their conversion to the host's status. */
#include <stdarg.h>
#include <stdio.h>

#include "opencl.h"

enum { MESSAGE_BYTES = 4096 }; /* build logs are long */

#define ERRORS(X)                                 \
  X(CL_DEVICE_NOT_FOUND)                          \
  X(CL_DEVICE_NOT_AVAILABLE)                      \
  X(CL_COMPILER_NOT_AVAILABLE)                    \
  X(CL_MEM_OBJECT_ALLOCATION_FAILURE)             \
  X(CL_OUT_OF_RESOURCES)                          \
  X(CL_OUT_OF_HOST_MEMORY)                        \
  X(CL_PROFILING_INFO_NOT_AVAILABLE)              \
  X(CL_MEM_COPY_OVERLAP)                          \
  X(CL_BUILD_PROGRAM_FAILURE)                     \
  X(CL_MAP_FAILURE)                               \
  X(CL_MISALIGNED_SUB_BUFFER_OFFSET)              \
  X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) \
  X(CL_COMPILE_PROGRAM_FAILURE)                   \
  X(CL_LINKER_NOT_AVAILABLE)                      \
  X(CL_LINK_PROGRAM_FAILURE)                      \
  X(CL_KERNEL_ARG_INFO_NOT_AVAILABLE)             \
  X(CL_INVALID_VALUE)                             \
  X(CL_INVALID_DEVICE_TYPE)                       \
  X(CL_INVALID_PLATFORM)                          \
  X(CL_INVALID_DEVICE)                            \
  X(CL_INVALID_CONTEXT)                           \
  X(CL_INVALID_QUEUE_PROPERTIES)                  \
  X(CL_INVALID_COMMAND_QUEUE)                     \
  X(CL_INVALID_MEM_OBJECT)                        \
  X(CL_INVALID_BINARY)                            \
  X(CL_INVALID_BUILD_OPTIONS)                     \
  X(CL_INVALID_PROGRAM)                           \
  X(CL_INVALID_PROGRAM_EXECUTABLE)                \
  X(CL_INVALID_KERNEL_NAME)                       \
  X(CL_INVALID_KERNEL_DEFINITION)                 \
  X(CL_INVALID_KERNEL)                            \
  X(CL_INVALID_ARG_INDEX)                         \
  X(CL_INVALID_ARG_VALUE)                         \
  X(CL_INVALID_ARG_SIZE)                          \
  X(CL_INVALID_KERNEL_ARGS)                       \
  X(CL_INVALID_WORK_DIMENSION)                    \
  X(CL_INVALID_WORK_GROUP_SIZE)                   \
  X(CL_INVALID_WORK_ITEM_SIZE)                    \
  X(CL_INVALID_GLOBAL_OFFSET)                     \
  X(CL_INVALID_EVENT_WAIT_LIST)                   \
  X(CL_INVALID_EVENT)                             \
  X(CL_INVALID_OPERATION)                         \
  X(CL_INVALID_BUFFER_SIZE)                       \
  X(CL_INVALID_GLOBAL_WORK_SIZE)                  \
  X(CL_INVALID_PROPERTY)                          \
  X(CL_INVALID_COMPILER_OPTIONS)                  \
  X(CL_PLATFORM_NOT_FOUND_KHR)

const char *ocl_error_name(cl_int code) {
  switch (code) {
#define NAME(error) \
  case error:       \
    return #error;
    ERRORS(NAME)
    default:
      return "an error without a name in OpenCL";
  }
}

hal_status_t ocl_error_status(cl_int code) {
  switch (code) {
    case CL_SUCCESS:
      return HAL_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return HAL_RESOURCE_EXHAUSTED;
    case CL_DEVICE_NOT_AVAILABLE:
      return HAL_UNAVAILABLE;
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_WORK_DIMENSION:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
    case CL_INVALID_GLOBAL_WORK_SIZE:
    case CL_INVALID_BINARY:
    case CL_INVALID_BUILD_OPTIONS:
    case CL_BUILD_PROGRAM_FAILURE:
      return HAL_INVALID_ARGUMENT;
    default:
      return HAL_INTERNAL;
  }
}

hal_status_t ocl_error(hal_status_t status, int64_t native_code, const char *format, ...) {
  char message[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(status, native_code, message);
}

hal_status_t ocl_driver_error(cl_int code, const char *format, ...) {
  char message[MESSAGE_BYTES - 128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return ocl_error(ocl_error_status(code), code, "%s: the driver returned %s (%d)", message, ocl_error_name(code),
                   (int)code);
}
