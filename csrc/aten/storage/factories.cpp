// factories.cpp: new tensors on the device. All other operators that create tensors (zeros, full, arange, ...) call
// these.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/native/TensorFactories.h>

#include "aten/prepare/device_index.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {
namespace {

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::kStrided, "Cannot make an empty tensor of layout ", *layout,
                              " on device type '", kDevice, "': only strided ones");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

// Under use_deterministic_algorithms, torch documents that uninitialized elements have a known value.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  return filled_if_deterministic(make_empty(size, c10::dtype_or_default(dtype), checked_index(device), format));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return filled_if_deterministic(make_empty_strided(size, stride, c10::dtype_or_default(dtype), checked_index(device)));
}

// Zeros without memory: autograd's placeholder for a missing tangent. The ZeroTensor key handles its operators.
at::Tensor efficientzerotensor(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::Device where(kDevice, checked_index(device));
  const CurrentDevice current(where.index());
  at::native::ZeroTensorAllocator nothing(where);
  at::Tensor result(at::detail::empty_generic(size, &nothing, kKeySet.add(c10::DispatchKey::ZeroTensor),
                                              c10::dtype_or_default(dtype), std::nullopt));
  // The storage stores its allocator's address, and this allocator is destroyed after the call.
  result.storage().unsafeGetStorageImpl()->set_allocator(allocator());
  return result;
}

}  // namespace
}  // namespace torch_backend

#include "aten/storage/factories.inc"  // registrations: codegen/operators
