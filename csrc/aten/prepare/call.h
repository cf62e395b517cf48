// call.h: the class for calls of kernels. It prepares operands according to the operator's rule (rules.h). Results are
// written in place or through temporaries.
//
//   return Call(HAL_OP_ID_CUMSUM, self).in(self).put(dim).out(result).run();
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <stdexcept>
#include <type_traits>

#include "aten/prepare/op_call.h"
#include "aten/prepare/operand.h"
#include "aten/prepare/rules.h"

namespace torch_backend {

// Returns the values of a tensor in `dtype` and `layout`, without lazy conjugate, negative or zero bits: the tensor
// itself if it has this form already. For a CPU tensor: its one element.
at::Tensor prepared(const at::Tensor &tensor, c10::ScalarType dtype, Layout layout, c10::DeviceIndex device);

// Returns the values of a tensor without lazy conjugate and negative bits.
inline at::Tensor resolved(const at::Tensor &tensor) {
  return C10_UNLIKELY(tensor.is_conj() || tensor.is_neg()) ? tensor.resolve_conj().resolve_neg() : tensor;
}

// Returns a number as a tensor without dimensions, with the dtype and on the device of `like`.
at::Tensor element_of(const c10::Scalar &number, const at::Tensor &like);

// Returns whether the tensors' memory overlaps, or may, without being the same view; with `same_view_too`, also if it
// is.
bool overlaps(const c10::TensorImpl *a, const c10::TensorImpl *b, bool same_view_too);
inline bool overlaps(const at::Tensor &a, const at::Tensor &b, bool same_view_too) {
  return overlaps(a.unsafeGetTensorImpl(), b.unsafeGetTensorImpl(), same_view_too);
}

// The memory that a kernel writes: the result itself, or a temporary that is copied into it. A temporary is used for a
// result of another dtype or layout than the kernel's, and for one that an operand reads in another order (`aliased`).
// `keeps`: the result's elements that the kernel does not write, or reads, are preserved.
class Destination {
 public:
  Destination(const at::Tensor &result, c10::ScalarType dtype, bool aliased, Layout layout = Layout::kStrided,
              bool keeps = false);

  const at::Tensor &tensor() const { return temporary_.defined() ? temporary_ : result_; }
  void finish() const {
    if (temporary_.defined()) result_.copy_(temporary_);
  }

 private:
  at::Tensor result_, temporary_;
};

// Reserves words of the generator, or of the device's default one, for `count` elements of a dtype: one each, two for
// an element of 8 bytes.
PhiloxState reserve_words(const std::optional<at::Generator> &generator, c10::DeviceIndex device, int64_t count,
                          c10::ScalarType dtype);

// Thrown by a kernel that ATen calls by its DispatchStub to report that it does not support the call. The fallback then
// runs the operator (overload.h).
struct NoKernel : std::runtime_error {
  NoKernel() : std::runtime_error("the device has no kernel for this call") {}
};
inline void must(bool done) {
  if (C10_UNLIKELY(!done)) throw NoKernel();
}

// One call of an operator. Arguments are added in the order of its frozen list, then the results.
class Call {
 public:
  // Uses the dtype in which the operator computes if ATen computes in `dtype`. If there is no kernel for it, nothing is
  // prepared, and run() returns false.
  Call(uint32_t op, c10::DeviceIndex device, c10::ScalarType dtype);
  Call(uint32_t op, const at::Tensor &like) : Call(op, like.device().index(), like.scalar_type()) {}
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  bool possible() const { return possible_; }
  // Returns the dtype to which operands are cast, if there is a kernel.
  c10::ScalarType dtype() const { return computing_.dtype; }

  // Adds an operand of the computing dtype; an undefined or absent one is passed as none. The call holds references to
  // temporaries.
  Call &in(const at::Tensor &tensor) { return read(tensor, computing_); }
  Call &in(at::Tensor &&tensor) { return read(std::move(tensor), computing_); }
  // The type of `condition ? temporary : lvalue`
  Call &in(const at::Tensor &&tensor) { return in(at::Tensor(tensor)); }
  Call &in(const OptionalTensor &tensor) { return tensor ? in(*tensor) : none(); }
  // Adds an operand of another dtype than the computing one.
  Call &in(const at::Tensor &tensor, c10::ScalarType dtype) { return read(tensor, as_is(dtype)); }
  Call &in(at::Tensor &&tensor, c10::ScalarType dtype) { return read(std::move(tensor), as_is(dtype)); }
  Call &in(const OptionalTensor &tensor, c10::ScalarType dtype) { return tensor ? in(*tensor, dtype) : none(); }
  // Adds an index: int64.
  Call &index(const at::Tensor &tensor) { return in(tensor, c10::ScalarType::Long); }
  Call &index(at::Tensor &&tensor) { return in(std::move(tensor), c10::ScalarType::Long); }
  Call &none();
  // Adds a number, a list or a dtype.
  template <class T>
  Call &put(const T &argument) {
    if (possible_) values_.push_back(value(argument));
    return *this;
  }

  // Adds a result, in place if possible; undefined = not requested.
  Call &out(const at::Tensor &result) { return write(result, computing_, false); }
  Call &out(const at::Tensor &result, c10::ScalarType dtype) { return write(result, as_is(dtype), false); }
  // Adds a result that the kernel also reads, or writes in part.
  Call &update(const at::Tensor &result) { return write(result, computing_, true); }
  // Adds a result of indices: int64.
  Call &indices(const at::Tensor &result) { return out(result, c10::ScalarType::Long); }

  // Returns the operand or result that was added last, to change its description: operand.h.
  Operand &last() { return operands_.back(); }
  template <class... Args>
  Call &with(Operand &(Operand::*describe)(Args...), const std::type_identity_t<Args> &...args) {
    if (possible_) (last().*describe)(args...);
    return *this;
  }
  Call &as(c10::IntArrayRef sizes) { return with(&Operand::as, sizes); }
  Call &expand(c10::IntArrayRef sizes) { return with(&Operand::expand, sizes); }

  // Uses this layout instead of the rule's for the operands and results that follow.
  Call &layout(Layout layout) {
    layout_ = layout;
    return *this;
  }
  // Allows a result to be one of the operands: each element is read before it is written.
  Call &elementwise() {
    elementwise_ = true;
    return *this;
  }
  // Sets the state of the generator for the kernel.
  Call &random(PhiloxState state) {
    philox_ = state;
    return *this;
  }

  // Runs the operator and copies temporaries into the results. Returns false if there is no kernel; then nothing was
  // written.
  bool run(uint32_t flags = 0);
  // The same for a kernel that ATen calls by its DispatchStub: throws NoKernel.
  void must_run() { must(run()); }

 private:
  static Computing as_is(c10::ScalarType dtype) { return {dtype, static_cast<hal_dtype_t>(dtype)}; }
  bool is_ready(const at::Tensor &tensor, c10::ScalarType dtype) const;
  bool aliases(const at::Tensor &result) const;
  template <class Tensor>
  Call &read(Tensor &&tensor, Computing as);  // a temporary, which the call owns
  Call &write(const at::Tensor &result, Computing as, bool keeps);
  template <class Tensor>
  Call &add(Tensor &&tensor, Computing as);

  uint32_t op_;
  c10::DeviceIndex device_;
  Layout layout_;
  bool possible_, elementwise_ = false;
  Computing computing_{};
  PhiloxState philox_{0, 0, nullptr};
  size_t inputs_ = 0;  // number of operands before the results
  c10::SmallVector<Operand, 8> operands_;
  c10::SmallVector<hal_value_t, 12> values_;  // an operand's pointer is set when the call runs
  c10::SmallVector<Destination, 3> results_;
};

}  // namespace torch_backend
