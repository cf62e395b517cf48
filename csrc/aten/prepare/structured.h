// structured.h: what the generated registrations share: the results that a structured meta function asks for, and the
// description of a call's arguments. The generated code is one short function per form of an operator.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {

enum class Form : uint8_t { kFunctional, kOut, kInplace };

// The results of one call: made on demand, or given by the caller (out=, in-place).
class Outputs {
 public:
  Outputs() = default;
  Outputs(Form form, const at::Tensor &first) : form_(form), given_{&first, nullptr} {}
  Outputs(Form form, const at::Tensor &first, const at::Tensor &second) : form_(form), given_{&first, &second} {}

  // What set_output_* of a meta function does: allocates, resizes out=, or checks an in-place call.
  void set(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions &options);

  // Undefined until the meta function has set a functional result.
  const at::Tensor &operator[](int64_t index) const {
    return form_ == Form::kFunctional ? made_[index] : *given_[index];
  }
  // The tensor that the caller has given, nullptr when there is none.
  const at::Tensor *given(size_t index) const { return given_[index]; }
  at::Tensor take(size_t index) { return std::move(made_[index]); }

 private:
  Form form_ = Form::kFunctional;
  std::array<at::Tensor, 2> made_;
  std::array<const at::Tensor *, 2> given_{};
};

// A structured operator of ATen whose meta function fills `Outputs`.
template <class Meta>
class Structured final : public Meta {
 public:
  explicit Structured(Outputs &outputs) : outputs_(outputs) {}

  void set_output_strided(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          c10::TensorOptions options) override {
    set(index, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              c10::TensorOptions options) override {
    set(index, sizes, strides, options);
  }
  const at::Tensor &maybe_get_output(int64_t index) override { return outputs_[index]; }

 private:
  void set(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions &options) {
    outputs_.set(index, sizes, strides, options);
    // The iterator reads the result back through maybe_get_output, so this comes last.
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options);
  }

  Outputs &outputs_;
};

// One argument of the operator's frozen list, as ATen gave it.
struct Argument {
  const at::Tensor *tensor = nullptr;   // an operand
  const c10::Scalar *number = nullptr;  // a number; both NULL = an optional number that is absent
  bool may_be_number = false;           // the kernel also takes the value of a one-element CPU operand
};
inline Argument operand(const at::Tensor &tensor) { return {&tensor, nullptr, false}; }
inline Argument operand_or_number(const at::Tensor &tensor) { return {&tensor, nullptr, true}; }
inline Argument number(const c10::Scalar &scalar) { return {nullptr, &scalar, false}; }
inline Argument number(const std::optional<c10::Scalar> &scalar) {
  return {nullptr, scalar ? &*scalar : nullptr, false};
}

// The dtype to compute in where ATen computes in `dtype`, given the dtypes with a kernel (bit = dtype): that dtype, or a
// wider one in which every result is the same once it is cast back. nullopt when there is none.
std::optional<c10::ScalarType> kernel_dtype(uint64_t kernels, c10::ScalarType dtype);

// False when the operator cannot run natively on these operands whatever the meta function says, so that nothing is
// allocated in vain: no kernel on the device, an operand that is not strided, a floating dtype without a kernel.
bool may_run_natively(uint32_t op, c10::ArrayRef<Argument> arguments);

// Raises as TensorIterator does unless all operands and given results are on one device. For operators without an
// iterator.
void check_one_device(const Outputs &outputs, c10::ArrayRef<Argument> arguments);

// The two parts of a complex number, which must live as long as the value that points to them.
using NumberParts = std::array<double, 2>;

// A number for a kernel that computes in `dtype`; nullopt when the value does not fit (the CPU kernel decides what
// then). Complex numbers are put into `parts`.
std::optional<hal_value_t> number_value(const c10::Scalar &scalar, c10::ScalarType dtype, NumberParts &parts);

// An operand as a kernel sees it: on the device, of the computing dtype, without lazy conjugate, negative or zero bits.
// Returns the tensor itself when it is so already.
at::Tensor prepare_operand(const at::Tensor &tensor, c10::ScalarType dtype, c10::DeviceIndex device);

// An operand in the shape of a result: missing and one-element dimensions get stride 0. The descriptor borrows from
// this object and from `sizes`.
class ExpandedOperand {
 public:
  void expand(at::Tensor &&prepared, c10::IntArrayRef sizes);
  const at::Tensor &tensor() const { return tensor_; }
  const hal_tensor_t &descriptor() const { return descriptor_; }

 private:
  at::Tensor tensor_;
  c10::SmallVector<int64_t, 6> strides_;
  hal_tensor_t descriptor_{};
};

// True when both tensors lie in one storage without being the same view, or when `same_view_too`, in any way.
bool shares_storage(const at::Tensor &a, const at::Tensor &b, bool same_view_too);

// Where a kernel writes: the result itself, or a temporary that is copied into it. The latter for a result of another
// dtype than the kernel's, and for one that an operand still reads from in another order.
class Destination {
 public:
  Destination(const at::Tensor &result, c10::ScalarType dtype, bool aliased)
      : result_(result),
        direct_(!aliased && result.scalar_type() == dtype && !result.is_neg() && !result.is_conj()),
        temporary_(direct_ ? at::Tensor() : make_empty(result.sizes(), dtype, result.device().index())) {}

  const at::Tensor &tensor() const { return direct_ ? result_ : temporary_; }
  void finish() const {
    if (!direct_) result_.copy_(temporary_);
  }

 private:
  const at::Tensor &result_;
  const bool direct_;
  const at::Tensor temporary_;
};

}  // namespace torch_backend
