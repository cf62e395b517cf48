// device_index.cpp: the error messages for invalid devices, outside of the fast path.
#include "aten/prepare/device_index.h"

namespace torch_backend {

void throw_bad_index(c10::DeviceIndex index) {
  const int32_t count = hal_device_count();
  const std::string name = c10::DeviceTypeName(kDevice, /*lower_case=*/true);
  if (count == 0) {
    TORCH_CHECK(false, "invalid device ", name, ":", static_cast<int>(index), ": there are 0 devices of type '", name,
                "'; name a plugin in TORCH_BACKEND or with torch_backend.use()");
  }
  TORCH_CHECK(count != 1, "invalid device ", name, ":", static_cast<int>(index), ": there is 1 device of type '", name,
              "', ", name, ":0");
  TORCH_CHECK(false, "invalid device ", name, ":", static_cast<int>(index), ": there are ", count, " devices of type '",
              name, "', ", name, ":0 to ", name, ":", count - 1);
}

void throw_two_devices(c10::Device first, c10::Device second) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first, " and ",
              second, "!");
}

}  // namespace torch_backend
