// op_call.h: the functions that every native operator uses: allocate a result, describe operands, call the HAL.
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

// Makes `device` the thread's current device within a scope; takes one comparison if it is current already.
// c10::DeviceGuard would make two virtual calls.
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

// The operator that the plugin has declined in the thread's current call, with the caller's arguments (vendor_call.h).
// The plugin's own operator is then not queried again with operands that were prepared for the portable kernel.
constexpr uint32_t kNoOp = UINT32_MAX;
extern thread_local uint32_t declined_op;

// Runs operator `op` on the device's current stream. `flags`: HAL_CALL_*; `philox`: for random operators. Returns
// false, without any effect, if the device has no kernel for it: use the fallback. Throws on every other failure.
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

// Returns whether the device's current stream is lazy. Copies and fills of whole tensors are operators there, as
// everything else, because they have a position in the program and in a compiler's graphs.
inline bool is_put_off(c10::DeviceIndex device) {
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(device, &stream));
  return hal_lazy_of_stream(stream) != nullptr;
}

// Returns the dtypes in which the operator may run natively when it computes in them; an array look-up. After the
// plugin has declined the caller's arguments, they are those of the portable kernel.
inline uint64_t native_dtypes(c10::DeviceIndex device, uint32_t op) {
  return C10_UNLIKELY(declined_op == op) ? hal_op_portable_dtypes(device, op) : hal_op_dtypes(device, op);
}
inline bool has_kernel(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype) {
  return (native_dtypes(device, op) >> static_cast<unsigned>(dtype)) & 1;
}

// Returns whether the device's plugin has its own operator.
inline bool has_vendor_op(c10::DeviceIndex device, uint32_t op) {
  return C10_UNLIKELY(hal_op_own_dtypes(device, op) != 0);
}

// Returns a new contiguous (or `format`) tensor on a device, uninitialized.
inline at::Tensor make_empty(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device,
                             std::optional<c10::MemoryFormat> format = std::nullopt) {
  const CurrentDevice current(device);
  return at::Tensor(at::detail::empty_generic(sizes, allocator(), kKeySet, dtype, format));
}

// The same for a result that may not be requested; undefined then.
inline at::Tensor make_wanted(bool wanted, c10::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device,
                              std::optional<c10::MemoryFormat> format = std::nullopt) {
  return wanted ? make_empty(sizes, dtype, device, format) : at::Tensor();
}

// Returns all dimensions but one.
inline at::DimVector dims_but(int64_t ndim, int64_t dim) {
  at::DimVector dims;
  for (int64_t d = 0; d < ndim; d++)
    if (d != dim) dims.push_back(d);
  return dims;
}

// Returns a new contiguous tensor with the sizes of an existing one, whose number of elements is known. Skips the
// checks of the sizes and does not change the current device.
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

// Returns a new tensor with the given strides, uninitialized.
inline at::Tensor make_empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                                     c10::DeviceIndex device) {
  const CurrentDevice current(device);
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, allocator(), kKeySet, dtype));
}

// Returns whether a tensor is a defined strided tensor of the device.
inline bool is_device_tensor(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDevice && tensor.layout() == c10::kStrided;
}

}  // namespace torch_backend
