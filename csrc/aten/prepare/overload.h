// overload.h: the functions of the generated registrations (codegen/aten_functions.py writes them, from
// codegen/operators). The function of an overload
//
//   1. checks that all operands, also those in lists, are on one device, and makes it current;
//   2. calls the vendor's operator with the caller's arguments, if the plugin has one;
//   3. calls the function that its entry names, or ATen's;
//   4. calls the fallback if that function has no kernel for the call and has written nothing.
//
// The result of a function of csrc/aten depends on `register` of its entry:
//
//   functional   it has the arguments of its overload and returns the result, or std::optional of it; in place and with
//   out=, bool.
//                nullopt and false mean "no kernel".
//   out          bool function(Outputs &, <arguments of the functional overload>), for all overloads: Outputs::make
//   allocates a
//                result, resizes an out= argument, or checks an in-place one.
//   structured   bool function(const Outputs &, <arguments of the functional overload>), for all overloads: ATen's meta
//   function
//                has checked the call, and allocated or resized the results.
//   reuse        ATen's own function, or its implementation of a structured operator. Kernels of the device for its
//                DispatchStubs throw NoKernel if there is none.
//
// These functions are not templates, because the generated code is compiled for every operator.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <utility>

#include "aten/prepare/register.h"
#include "aten/prepare/structured.h"
#include "aten/prepare/vendor_op.h"

namespace torch_backend {

// The operands that must be on one device: all, as ATen requires of most operators; or only the device tensors, if ATen
// accepts indices and numbers on the CPU and the function checks its operands.
enum class Devices : uint8_t { kOne, kOurs };

// The device of an operator's operands. Throws if they are on two devices.
class OperandDevice {
 public:
  explicit OperandDevice(Devices devices = Devices::kOne) : devices_(devices) {}

  void add(const at::Tensor &tensor) {
    if (!tensor.defined()) return;
    const c10::Device device = tensor.device();
    if (devices_ == Devices::kOurs && device.type() != kDevice) return;
    if (!first_) first_ = device;
    if (C10_UNLIKELY(*first_ != device)) throw_two_devices(*first_, device);
  }
  void add(const std::optional<at::Tensor> &tensor) {
    if (tensor) add(*tensor);
  }
  void add(at::TensorList list) {
    for (const at::Tensor &tensor : list) add(tensor);
  }
  void add(const at::ITensorListRef &list);
  void add(const c10::List<std::optional<at::Tensor>> &list);
  // Adds the results that the caller has passed.
  void add(const Outputs &outputs) {
    outputs.for_each_given([this](const at::Tensor &given) { add(given); });
  }

  // Returns the device, or the current one if no operand is on a device.
  c10::DeviceIndex device() const {
    return is_ours() ? first_->index() : static_cast<c10::DeviceIndex>(hal_device_current());
  }
  bool has_vendor_op(uint32_t op) const { return is_ours() && torch_backend::has_vendor_op(first_->index(), op); }

 private:
  bool is_ours() const { return first_ && first_->type() == kDevice; }

  const Devices devices_;
  std::optional<c10::Device> first_;
};

// Returns whether the plugin of a result's device has its own operator.
inline bool has_vendor_op(const at::Tensor &result, uint32_t op) {
  return result.device().type() == kDevice && has_vendor_op(result.device().index(), op);
}

// Returns whether a kernel can read an operand or write a result: a strided device tensor, or an absent one. The CPU's
// function computes or refuses all others.
inline bool is_kernel_operand(const at::Tensor &tensor) { return is_device_tensor(tensor) && !tensor._is_zerotensor(); }
inline bool is_kernel_operand(const std::optional<at::Tensor> &tensor) {
  return !is_given(tensor) || is_kernel_operand(*tensor);
}
bool is_kernel_operand(const at::ITensorListRef &list);
bool is_kernel_operand(const Outputs &outputs);

// Called in a handler: returns if the kernel of an operator has declined (NoKernel), rethrows other exceptions. An
// error that occurs while the current stream is captured into a graph names the operator.
void decline_or_rethrow(const AtenOp &op);

// Adds results that a function of csrc/aten has allocated for the vendor's operator.
inline void append(Results &results, const at::Tensor &tensor) { results.push_back(tensor); }
template <class... Tensors>
void append(Results &results, const std::tuple<Tensors...> &tensors) {
  std::apply([&](const auto &...each) { (results.push_back(each), ...); }, tensors);
}

// Registers the device's kernel for a DispatchStub of ATen; the matching one of an overloaded function.
template <class Stub>
void register_stub(Stub &stub, typename Stub::FnPtr kernel) {
  stub.set_privateuse1_dispatch_ptr(kernel);
}

}  // namespace torch_backend
