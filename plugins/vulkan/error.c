/* error.c: the names of the driver's results, and their conversion to the host's status. */
#include <stdarg.h>
#include <stdio.h>

#include "vulkan_plugin.h"

enum { MESSAGE_BYTES = 2048 };

const char *vulkan_result_name(VkResult code) {
  switch (code) {
#define NAME(name, number) \
  case name:               \
    return #name;
    VULKAN_RESULTS(NAME)
    default:
      return "a result that the plugin does not know";
  }
}

hal_status_t vulkan_status(VkResult code) {
  switch (code) {
    case VK_SUCCESS:
      return HAL_OK;
    case VK_NOT_READY:
    case VK_TIMEOUT:
      return HAL_NOT_READY;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_FRAGMENTATION:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return HAL_RESOURCE_EXHAUSTED;
    case VK_ERROR_DEVICE_LOST:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
    case VK_ERROR_LAYER_NOT_PRESENT:
      return HAL_UNAVAILABLE;
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return HAL_UNIMPLEMENTED;
    case VK_ERROR_INVALID_SHADER_NV:
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
      return HAL_INVALID_ARGUMENT;
    default:
      return HAL_INTERNAL;
  }
}

hal_status_t vulkan_error(hal_status_t status, int64_t native_code, const char *format, ...) {
  char message[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return hal_host->error_set(status, native_code, message);
}

hal_status_t vulkan_driver_error(VkResult code, const char *format, ...) {
  char message[MESSAGE_BYTES - 128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return vulkan_error(vulkan_status(code), (int64_t)code, "%s: the driver returned %s (%d)%s", message,
                      vulkan_result_name(code), (int)code,
                      code == VK_ERROR_DEVICE_LOST ? "; the device remains lost, restart the process" : "");
}
