// lazy_floor.cpp: an add.Tensor of the device that creates a tensor without memory and computes nothing: the minimum
// cost of a call in Python and PyTorch, for any device. Built by lazy_step.py --only floor; it replaces the device's
// own operator for the rest of the process.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace {

at::Tensor add(const at::Tensor &self, const at::Tensor &, const at::Scalar &) {
  const auto bytes = static_cast<int64_t>(self.nbytes());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       at::DataPtr(nullptr, self.device()), nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), self.dtype());
  result.unsafeGetTensorImpl()->set_sizes_contiguous(self.sizes());
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("add.Tensor", TORCH_FN(add)); }
