// structured.h: the classes that generated registrations share: the results that a structured meta function sets, and
// the description of a call's arguments. The generated code has one short function per overload of an operator.
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

#include "aten/prepare/call.h"
#include "aten/prepare/fallback_call.h"

namespace torch_backend {

enum class Form : uint8_t { kFunctional, kOut, kInplace };

constexpr size_t kMostOutputs = 3;

// The results of one call: allocated on demand, or passed by the caller (out=, in-place).
class Outputs {
 public:
  Outputs() = default;
  template <class... Tensors>
  explicit Outputs(Form form, const Tensors &...given) : form_(form), given_{&given...} {}

  // Implements set_output_* of a meta function: allocates, resizes out=, or checks an in-place call.
  void set(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions &options);

  // The same for operators without a meta function: a result with the dtype of `like`, in C's order or in a memory
  // format.
  const at::Tensor &make(int64_t index, c10::IntArrayRef sizes, const at::Tensor &like,
                         c10::MemoryFormat format = c10::MemoryFormat::Contiguous);
  const at::Tensor &make(int64_t index, c10::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device,
                         c10::MemoryFormat format = c10::MemoryFormat::Contiguous);
  // Sets the memory format of the first result, before any of its elements is written.
  void lay_out(c10::MemoryFormat format) const {
    if (format != c10::MemoryFormat::Contiguous) (*this)[0].unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  // Sets a functional result that a kernel function has computed otherwise; resizes out= and in-place ones and copies
  // into them.
  void put(int64_t index, at::Tensor result);

  // Returns a result with the elements of `self`, for functions that change some of them.
  const at::Tensor &start(int64_t index, const at::Tensor &self) const {
    const at::Tensor &result = (*this)[index];
    if (!result.is_same(self)) result.copy_(self);
    return result;
  }

  // Undefined until the meta function has set a functional result.
  const at::Tensor &operator[](int64_t index) const {
    return form_ == Form::kFunctional ? made_[index] : *given_[index];
  }
  template <class Function>
  void for_each_given(const Function &function) const {
    for (const at::Tensor *given : given_)
      if (given) function(*given);
  }
  // Returns the tensor that the caller has passed, nullptr if there is none.
  const at::Tensor *given(size_t index) const { return given_[index]; }
  at::Tensor take(size_t index) { return std::move(made_[index]); }

 private:
  Form form_ = Form::kFunctional;
  std::array<at::Tensor, kMostOutputs> made_;
  std::array<const at::Tensor *, kMostOutputs> given_{};
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

// One argument of the operator's frozen list, as ATen passed it.
struct KernelArgument {
  const at::Tensor *tensor = nullptr;   // an operand
  const c10::Scalar *number = nullptr;  // a number; both nullptr = an optional number that is absent
  bool may_be_number = false;           // the kernel also accepts the value of a one-element CPU operand
  bool rounded =
      // A number used with half precision loses the digits that the dtype does not have, as the first one always does
      true;
};
inline KernelArgument operand(const at::Tensor &tensor) { return {&tensor, nullptr, false}; }
inline KernelArgument operand_or_number(const at::Tensor &tensor) { return {&tensor, nullptr, true}; }
inline KernelArgument operand_or_precise_number(const at::Tensor &tensor) { return {&tensor, nullptr, true, false}; }
inline KernelArgument rounded_number(const c10::Scalar &scalar) { return {nullptr, &scalar, false}; }
inline KernelArgument number(const c10::Scalar &scalar) { return {nullptr, &scalar, false, false}; }
inline KernelArgument number(const std::optional<c10::Scalar> &scalar) {
  return {nullptr, scalar ? &*scalar : nullptr, false, false};
}

// Set when a fast path returns false: the operator whose call the plugin's own operator has declined there, or kNoOp.
// The general path that follows does not call the plugin again with the same operands, and does not allocate a result
// if the operator has no portable kernel.
extern thread_local uint32_t fast_path_declined;
C10_NOINLINE bool not_called();               // sets it to kNoOp, returns false
C10_NOINLINE bool was_declined(uint32_t op);  // sets it to `op`, returns false

// Returns false if the operator cannot run natively on these operands whatever the meta function returns, so that
// nothing is allocated in vain: no kernel on the device, an operand that is not strided, a floating dtype without a
// kernel.
bool may_run_natively(uint32_t op, c10::ArrayRef<KernelArgument> arguments);

// Throws TensorIterator's error unless all operands and passed results are on one device. For operators without an
// iterator.
void check_one_device(const Outputs &outputs, c10::ArrayRef<KernelArgument> arguments);

// Returns a number as ATen's kernels in `dtype` convert it: any number for bool becomes one, a complex number for a
// real dtype becomes its real part. Throws the error of these kernels if it has an imaginary part.
c10::Scalar as_number_of(const c10::Scalar &scalar, c10::ScalarType dtype);

// The two parts of a complex number, which must exist as long as the value that points to them.
using NumberParts = std::array<double, 2>;

// Returns a number for a kernel that computes in `dtype`; nullopt if the value is out of range (the CPU kernel then
// decides). Complex numbers are stored in `parts`; without an imaginary part they are also numbers of real dtypes.
std::optional<hal_value_t> number_value(const c10::Scalar &scalar, c10::ScalarType dtype, NumberParts &parts);

}  // namespace torch_backend
