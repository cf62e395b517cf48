// call.h: the one way of calling a kernel: operands are prepared as the operator's rule says (rules.h), results are written in
// place or by way of temporaries.
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

// The values of a tensor in `dtype` and `layout`, without lazy conjugate, negative or zero bits: the tensor itself where it is so
// already. Of a CPU tensor: its one element.
at::Tensor prepared(const at::Tensor &tensor, c10::ScalarType dtype, Layout layout, c10::DeviceIndex device);

// The values of a tensor without lazy conjugate and negative bits.
inline at::Tensor resolved(const at::Tensor &tensor) {
  return C10_UNLIKELY(tensor.is_conj() || tensor.is_neg()) ? tensor.resolve_conj().resolve_neg() : tensor;
}

// A number as a tensor without dimensions, of `like`'s dtype on its device.
at::Tensor element_of(const c10::Scalar &number, const at::Tensor &like);

// True when the tensors' memory overlaps, or may, without their being the same view, or when `same_view_too`, in any way.
bool overlaps(const c10::TensorImpl *a, const c10::TensorImpl *b, bool same_view_too);
inline bool overlaps(const at::Tensor &a, const at::Tensor &b, bool same_view_too) {
  return overlaps(a.unsafeGetTensorImpl(), b.unsafeGetTensorImpl(), same_view_too);
}

// Where a kernel writes: the result itself, or a temporary that is copied into it. The latter for a result of another dtype or
// layout than the kernel's, and for one that an operand still reads from in another order (`aliased`). `keeps`: elements that the
// kernel leaves alone, or reads, are the result's.
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

// Reserves words of the generator, or of the device's own, for `count` elements of a dtype: one each, two for one of 8 bytes.
PhiloxState reserve_words(const std::optional<at::Generator> &generator, c10::DeviceIndex device, int64_t count,
                          c10::ScalarType dtype);

// A kernel that one of ATen's functions asks for by its DispatchStub has no other way to say that there is none: the fallback answers
// the operator then (overload.h).
struct NoKernel : std::runtime_error {
  NoKernel() : std::runtime_error("the device has no kernel for this call") {}
};
inline void must(bool done) {
  if (C10_UNLIKELY(!done)) throw NoKernel();
}

// One call of an operator. Arguments are given in the order of its frozen list, then the results.
class Call {
 public:
  // In what the operator computes in where ATen computes in `dtype`. Without a kernel for it nothing is prepared, and run() says so.
  Call(uint32_t op, c10::DeviceIndex device, c10::ScalarType dtype);
  Call(uint32_t op, const at::Tensor &like) : Call(op, like.device().index(), like.scalar_type()) {}
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  bool possible() const { return possible_; }
  // What operands are cast to, where there is a kernel.
  c10::ScalarType dtype() const { return computing_.dtype; }

  // An operand of the computing dtype; one that is not defined or absent is none. Temporaries are kept.
  Call &in(const at::Tensor &tensor) { return read(tensor, computing_); }
  Call &in(at::Tensor &&tensor) { return read(std::move(tensor), computing_); }
  Call &in(const at::Tensor &&tensor) { return in(at::Tensor(tensor)); }  // what `condition ? temporary : lvalue` is
  Call &in(const OptionalTensor &tensor) { return tensor ? in(*tensor) : none(); }
  // The same of another dtype than the computing one.
  Call &in(const at::Tensor &tensor, c10::ScalarType dtype) { return read(tensor, as_is(dtype)); }
  Call &in(at::Tensor &&tensor, c10::ScalarType dtype) { return read(std::move(tensor), as_is(dtype)); }
  Call &in(const OptionalTensor &tensor, c10::ScalarType dtype) { return tensor ? in(*tensor, dtype) : none(); }
  // An index: int64.
  Call &index(const at::Tensor &tensor) { return in(tensor, c10::ScalarType::Long); }
  Call &index(at::Tensor &&tensor) { return in(std::move(tensor), c10::ScalarType::Long); }
  Call &none();
  // A number, a list, a dtype.
  template <class T>
  Call &put(const T &argument) {
    if (possible_) values_.push_back(value(argument));
    return *this;
  }

  // A result, in place where it may be; undefined = not wanted.
  Call &out(const at::Tensor &result) { return write(result, computing_, false); }
  Call &out(const at::Tensor &result, c10::ScalarType dtype) { return write(result, as_is(dtype), false); }
  // A result that the kernel reads, too, or writes in part.
  Call &update(const at::Tensor &result) { return write(result, computing_, true); }
  // A result of indices: int64.
  Call &indices(const at::Tensor &result) { return out(result, c10::ScalarType::Long); }

  // The operand or result that was given last, to be described otherwise: operand.h.
  Operand &last() { return operands_.back(); }
  template <class... Args>
  Call &with(Operand &(Operand::*describe)(Args...), const std::type_identity_t<Args> &...args) {
    if (possible_) (last().*describe)(args...);
    return *this;
  }
  Call &as(c10::IntArrayRef sizes) { return with(&Operand::as, sizes); }
  Call &expand(c10::IntArrayRef sizes) { return with(&Operand::expand, sizes); }

  // From here on operands and results are taken in this layout instead of the rule's.
  Call &layout(Layout layout) {
    layout_ = layout;
    return *this;
  }
  // A result may be one of the operands: each element is read before it is written.
  Call &elementwise() {
    elementwise_ = true;
    return *this;
  }
  // The state of the generator that the kernel draws from.
  Call &random(PhiloxState state) {
    philox_ = state;
    return *this;
  }

  // Runs the operator and brings the results where they belong. False = no kernel, nothing was written.
  bool run(uint32_t flags = 0);
  // The same for the kernel that one of ATen's functions asks for by its DispatchStub: throws NoKernel.
  void must_run() { must(run()); }

 private:
  static Computing as_is(c10::ScalarType dtype) { return {dtype, static_cast<hal_dtype_t>(dtype)}; }
  bool is_ready(const at::Tensor &tensor, c10::ScalarType dtype) const;
  bool aliases(const at::Tensor &result) const;
  template <class Tensor>
  Call &read(Tensor &&tensor, Computing as);  // a temporary is kept
  Call &write(const at::Tensor &result, Computing as, bool keeps);
  template <class Tensor>
  Call &add(Tensor &&tensor, Computing as);

  uint32_t op_;
  c10::DeviceIndex device_;
  Layout layout_;
  bool possible_, elementwise_ = false;
  Computing computing_{};
  PhiloxState philox_{0, 0, nullptr};
  size_t inputs_ = 0;  // of the operands, those before the results
  c10::SmallVector<Operand, 8> operands_;
  c10::SmallVector<hal_value_t, 12> values_;  // an operand's pointer is set when the call runs
  c10::SmallVector<Destination, 3> results_;
};

}  // namespace torch_backend
