// status.cpp: converts failed HAL calls to the exceptions that PyTorch uses.
#include "core/status.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "core/device.h"

namespace torch_backend {
namespace {

// Returns the device type's name in capitals, as in torch's messages.
std::string device_type() {
  std::string name = c10::DeviceTypeName(kDevice, /*lower_case=*/true);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

// Libraries that retry with a smaller size detect this failure by its text: "CUDA out of memory. Tried to allocate 2.00
// GiB".
std::string out_of_memory_message(const std::string &message) {
  const std::string words = "out of memory.";
  return device_type() + " " + (message.compare(0, words.size(), words) == 0 ? message : words + " " + message);
}

// The message of torch.cuda._lazy_init, which users of every accelerator search for.
std::string bad_fork_message() {
  const std::string name = device_type();
  return "Cannot re-initialize " + name + " in forked subprocess. To use " + name +
         " with multiprocessing, you must use the 'spawn' start method";
}

}  // namespace

void throw_status(hal_status_t status) {
  std::string message = hal_error_message();
  if (message.empty()) message = std::string("the device failed with ") + hal_status_name(status);
  switch (status) {
    case HAL_RESOURCE_EXHAUSTED:
      TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory_message(message));
    case HAL_UNIMPLEMENTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case HAL_FAILED_PRECONDITION:
      if (hal_device_in_bad_fork()) message = bad_fork_message();
      [[fallthrough]];
    default:
      TORCH_CHECK(false, message);
  }
}

void throw_work_status(hal_status_t status) {
  if (status == HAL_OUT_OF_RANGE) TORCH_CHECK_INDEX(false, hal_error_message());
  throw_status(status);
}

void warn_status(hal_status_t status, const char *what) noexcept {
  hal_log(HAL_LOG_WARNING, "%s: %s (%s)", what, hal_error_message(), hal_status_name(status));
}

}  // namespace torch_backend
