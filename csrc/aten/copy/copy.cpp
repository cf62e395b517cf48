// copy.cpp: the copy operators, which select the kind of copy, and reading one element.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/copy/copy.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_copy_from.h>
#include <torch/library.h>

#include "core/lazy/tensor.h"
#include "core/stream/stream.h"
#include "core/sync_debug.h"
#include "core/tensor_kind.h"

namespace torch_backend {
namespace {

bool on_device(const at::Tensor &tensor) { return tensor.device().type() == kDevice; }

void check_copyable(const at::Tensor &src, const at::Tensor &dst) {
  const auto fits = [](const at::Tensor &t) {
    return t.layout() == c10::kStrided && !t.is_quantized() && !t.is_nested() && (t.is_cpu() || on_device(t));
  };
  TORCH_CHECK_NOT_IMPLEMENTED(fits(src) && fits(dst), "copy from ", src.device(), " (", tensor_kind(src), ", ",
                              src.scalar_type(), ") to ", dst.device(), " (", tensor_kind(dst), ", ", dst.scalar_type(),
                              ") is not supported: copies go between the CPU and '", kDevice,
                              "' devices, and between plain strided tensors only");
}

// The messages are those of TensorIterator, which copies CPU tensors.
void check_broadcast(const at::Tensor &src, const at::Tensor &dst) {
  if (src.sizes() == dst.sizes()) return;
  const at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
  TORCH_CHECK(shape == dst.sizes(), "output with shape ", dst.sizes(), " doesn't match the broadcast shape ", shape);
}

at::Tensor copy_from(const at::Tensor &src, const at::Tensor &dst, bool non_blocking) {
  if (C10_UNLIKELY(is_lazy(src) || is_lazy(dst))) { /* between the eager and the lazy type: what the wrapper holds */
    at::_copy_from(is_lazy(src) ? lazy_inner(src) : src, is_lazy(dst) ? lazy_inner(dst) : dst, non_blocking);
    return dst;
  }
  check_copyable(src, dst);
  if (dst.is_same(src)) return dst;
  check_broadcast(src, dst);
  at::assert_no_internal_overlap(dst);
  if (!on_device(src)) {
    copy_from_host(src, dst, non_blocking);
  } else if (!on_device(dst)) {
    copy_to_host(src, dst, non_blocking);
  } else {
    const at::Tensor fitting = src.sizes() == dst.sizes() ? src : src.expand(dst.sizes());
    at::assert_no_partial_overlap(dst, src);  // checked before it is expanded: the tensors that TensorIterator checks
    if (dst.numel() == 0) return dst;
    if (src.device() == dst.device()) {
      copy_on_device(fitting, dst);
    } else {
      copy_across_devices(fitting, dst);
    }
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor &src, const at::Tensor &dst) {
  if (dst.sizes() != src.sizes()) dst.resize_(src.sizes());
  return copy_from(src, dst, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor &self) {
  const c10::DeviceIndex device = self.device().index();
  hal_stream_t *stream = current_stream(device);
  note_host_wait(device, "item()");
  at::Scalar result;
  AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense", AT_WRAP([&] {
                   scalar_t one;
                   check_read(hal_memory_copy(stream, &one, HAL_HOST, address_of(self), device, sizeof one), "item()");
                   check_work(hal_stream_synchronize(stream));
                   result = at::Scalar(one);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kComplexHalf, at::kHalf, at::kBFloat16, at::kBool,
                 AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return result;
}

}  // namespace

// Copies handle the conjugate and negative bits themselves. ATen's handlers for them clone the operand, which calls
// copy again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace torch_backend

#include "aten/copy/copy.inc"  // registrations: codegen/operators
