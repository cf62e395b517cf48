// op_call.h: the few lines that every native operator shares: allocate a result, describe operands, call the HAL.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

#include "aten/prepare/device_index.h"
#include "aten/prepare/tensor.h"
#include "core/allocator/allocator.h"
#include "core/generator/generator.h"
#include "core/status.h"
#include "hal/hal.h"

namespace torch_backend {

// Makes `device` the thread's current one for a scope; costs a comparison when it is already. Not c10::DeviceGuard,
// which goes through two virtual calls.
class CurrentDevice {
 public:
  explicit CurrentDevice(c10::DeviceIndex device) : previous_(hal_device_current()) {
    if (C10_UNLIKELY(device != previous_)) {
      check(hal_device_set_current(device));
      changed_ = true;
    }
  }
  ~CurrentDevice() {
    if (C10_UNLIKELY(changed_)) hal_device_exchange(previous_);
  }
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

 private:
  int32_t previous_;
  bool changed_ = false;
};

// The operator whose call by this thread the plugin has seen as the user gave it, and declined (vendor_call.h): it is not asked for
// its own operator again, with operands that were prepared for the portable kernel.
constexpr uint32_t kNoOp = UINT32_MAX;
extern thread_local uint32_t declined_op;

// Runs operator `op` on the device's current stream: `flags` HAL_CALL_*, `philox` for random operators. false = the device
// has no kernel for it and nothing was touched: take the fallback. Throws on every other failure.
inline bool run_op(c10::DeviceIndex device, uint32_t op, c10::ArrayRef<hal_value_t> args,
                   c10::ArrayRef<const hal_tensor_t *> results, uint32_t flags = 0,
                   PhiloxState philox = {0, 0, nullptr}) {
  hal_op_call_t call{};
  call.struct_size = sizeof call;
  call.arg_count = static_cast<uint32_t>(args.size());
  call.result_count = static_cast<uint32_t>(results.size());
  call.flags = flags;
  if (!(flags & HAL_CALL_DENSE) && C10_UNLIKELY(declined_op == op)) call.flags |= HAL_RUN_PORTABLE;
  call.args = args.data();
  call.results = results.data();
  call.seed = philox.seed;
  call.offset = philox.offset;
  call.random_state = philox.state;
  const hal_status_t status = hal_op_run(device, op, nullptr, &call);
  if (C10_LIKELY(status == HAL_OK)) return true;
  if (status == HAL_UNIMPLEMENTED) return false;
  throw_work_status(status);
}

// Whether the device's current stream puts work off. There, copies and fills of whole tensors are operators, as all else is: they have a place in
// the program and in a compiler's graphs.
inline bool is_put_off(c10::DeviceIndex device) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(device, &stream));
  return hal_lazy_of_stream(stream) != nullptr;
}

// The dtypes in which the operator may run natively when it computes in them; an array look-up. Once the plugin has declined what the
// user gave, they are those of the portable kernel.
inline uint64_t native_dtypes(c10::DeviceIndex device, uint32_t op) {
  return C10_UNLIKELY(declined_op == op) ? hal_op_portable_dtypes(device, op) : hal_op_dtypes(device, op);
}
inline bool has_kernel(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype) {
  return (native_dtypes(device, op) >> static_cast<unsigned>(dtype)) & 1;
}

// Whether the device's plugin has its own operator.
inline bool has_vendor_op(c10::DeviceIndex device, uint32_t op) {
  return C10_UNLIKELY(hal_op_own_dtypes(device, op) != 0);
}

// A new contiguous (or `format`) tensor on a device, uninitialised.
inline at::Tensor make_empty(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device,
                             std::optional<c10::MemoryFormat> format = std::nullopt) {
  const CurrentDevice current(device);
  return at::Tensor(at::detail::empty_generic(sizes, allocator(), kKeySet, dtype, format));
}

// The same of a result that may not be wanted; undefined then.
inline at::Tensor make_wanted(bool wanted, c10::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device,
                              std::optional<c10::MemoryFormat> format = std::nullopt) {
  return wanted ? make_empty(sizes, dtype, device, format) : at::Tensor();
}

// The dimensions but one.
inline at::DimVector dims_but(int64_t ndim, int64_t dim) {
  at::DimVector dims;
  for (int64_t d = 0; d < ndim; d++)
    if (d != dim) dims.push_back(d);
  return dims;
}

// A new contiguous tensor of the sizes of one that exists, whose elements were counted then: without the checks of the sizes and
// without a change of the current device.
inline at::Tensor make_dense(c10::IntArrayRef sizes, int64_t numel, c10::ScalarType dtype, int64_t itemsize,
                             c10::DeviceIndex device) {
  const auto bytes = static_cast<size_t>(numel * itemsize);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                                       allocate(bytes, device), allocator(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), kKeySet,
                                                         c10::scalarTypeToTypeMeta(dtype));
  if (sizes.size() != 1 || sizes[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

// A new tensor with the given strides, uninitialised.
inline at::Tensor make_empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                                     c10::DeviceIndex device) {
  const CurrentDevice current(device);
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, allocator(), kKeySet, dtype));
}

// True for a defined strided tensor of ours.
inline bool is_device_tensor(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDevice && tensor.layout() == c10::kStrided;
}

}  // namespace torch_backend
