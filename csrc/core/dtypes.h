// dtypes.h: the dtypes of device tensors.
#pragma once

#include <c10/core/DeviceCapability.h>

#include <cstdint>

namespace torch_backend {

// Returns the capability for torch.accelerator.get_device_capability. Throws for an index out of range.
c10::DeviceCapability capability(int32_t device);

}  // namespace torch_backend
