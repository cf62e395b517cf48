// kernels.h: the device type "lazy": every operator unwraps its tensors, runs on ours, and wraps what it gives.
#pragma once

namespace torch_backend {

// Registers the kernels and the device guard of the type, once. Throws when somebody else has.
void enable_lazy_device();

}  // namespace torch_backend
