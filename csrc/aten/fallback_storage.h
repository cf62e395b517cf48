// fallback_storage.h: memory that CPU kernels allocated becomes device memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace torch_backend {

// Moves the memory out of a CPU storage, which is left without any, as device memory: adopted without a copy where the
// device may use any host address, copied into a block of the device elsewhere.
c10::DataPtr take_memory(c10::StorageImpl &cpu, c10::DeviceIndex device);

// A tensor on `storage` with sizes, strides, offset, dtype, the conjugate, negative and zero bits, and the
// wrapped-number flag of `like`.
at::Tensor make_alias(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey backend, const at::Tensor &like);

}  // namespace torch_backend
