// kernels.h: the device type "lazy": every operator unwraps its tensors, runs on the device tensors, and wraps its
// results.
#pragma once

namespace torch_backend {

// Registers the kernels and the device guard of the type, once. Throws if another backend has registered them.
void enable_lazy_device();

}  // namespace torch_backend
