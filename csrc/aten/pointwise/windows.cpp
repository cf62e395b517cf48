// windows.cpp: torch.kaiser_window, for whose values ATen calls a function of the device type.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/scalar_tensor.h>

#include "core/compat.h"

namespace torch_backend {
namespace {

void kaiser_window(at::TensorIteratorBase &it, const int64_t length, const double beta) {
  const double middle = static_cast<double>(length - 1) / 2;
  const at::Tensor place = it.tensor(1).sub(middle).div(middle);
  const auto most = at::i0(at::scalar_tensor(beta, at::kDouble)).item<double>();  // on the CPU
  it.tensor(0).copy_(at::i0(place.mul(place).neg().add(1).clamp_min(0).sqrt().mul(beta)).div(most));
}

}  // namespace
}  // namespace torch_backend

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &torch_backend::kaiser_window)
}  // namespace at::native
