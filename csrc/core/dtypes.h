// dtypes.h: the dtypes that tensors of ours may have.
#pragma once

#include <c10/core/DeviceCapability.h>

#include <cstdint>

namespace torch_backend {

// What torch.accelerator.get_device_capability reports of a device. Throws for an index out of range.
c10::DeviceCapability capability(int32_t device);

}  // namespace torch_backend
