// op_call.h: the few lines that every native operator shares: allocate a result, describe operands, call the HAL.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "aten/device_index.h"
#include "aten/tensor.h"
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

// Runs operator `op` on the device's current stream. false = the device has no kernel for it and nothing was touched:
// take the fallback. Throws on every other failure.
inline bool run_op(c10::DeviceIndex device, uint32_t op, hal_op_call_t &call) {
  const hal_status_t status = hal_op_run(device, op, nullptr, &call);
  if (C10_LIKELY(status == HAL_OK)) return true;
  if (status == HAL_UNIMPLEMENTED) return false;
  throw_work_status(status);
}

// The same from arrays: `flags` HAL_CALL_*, `philox` for random operators.
template <size_t kArgs, size_t kResults>
inline bool run_op(c10::DeviceIndex device, uint32_t op, const hal_value_t (&args)[kArgs],
                   const hal_tensor_t *const (&results)[kResults], uint32_t flags = 0, PhiloxState philox = {0, 0}) {
  hal_op_call_t call{};
  call.struct_size = sizeof call;
  call.arg_count = kArgs;
  call.result_count = kResults;
  call.flags = flags;
  call.args = args;
  call.results = results;
  call.seed = philox.seed;
  call.offset = philox.offset;
  return run_op(device, op, call);
}

// Tells whether the operator may run natively when it computes in `dtype`; an array look-up.
inline bool has_kernel(c10::DeviceIndex device, uint32_t op, c10::ScalarType dtype) {
  return (hal_op_dtypes(device, op) >> static_cast<unsigned>(dtype)) & 1;
}

// A new contiguous (or `format`) tensor on a device, uninitialised.
inline at::Tensor make_empty(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device,
                             std::optional<c10::MemoryFormat> format = std::nullopt) {
  const CurrentDevice current(device);
  return at::Tensor(at::detail::empty_generic(sizes, allocator(), kKeySet, dtype, format));
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
