// structured_iterator.h: elementwise operators. Fast path: dense operands of one shape, dtype and device go to the
// kernel without TensorIterator, boxing or an additional allocation. General path: ATen's meta function determines
// shapes and dtypes, and operands are cast and broadcast.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "aten/prepare/broadcast.h"
#include "aten/prepare/structured.h"

namespace torch_backend {

// Marks an operand of the fast path that may also be a one-element CPU tensor, such as the 2 in x + 2.
struct OrNumber {
  const at::Tensor &tensor;
};

namespace dense {

// Key sets: an ordinary strided tensor of the device, and of the CPU, without lazy bits.
constexpr c10::DispatchKeySet kLazyBits =
    c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
constexpr c10::DispatchKeySet kHostKeySet{c10::DispatchKey::CPU};

C10_ALWAYS_INLINE bool has_keys(const c10::TensorImpl *impl, c10::DispatchKeySet keys) {
  return (impl->key_set() & (keys | kLazyBits)) == keys;
}

// Integers that every computing dtype can represent are passed unchanged; others only if no check is required.
inline bool put_int(int64_t number, c10::ScalarType dtype, hal_value_t &out) {
  const bool fits =
      dtype == c10::ScalarType::Bool ? (number == 0 || number == 1)
      : dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double || dtype == c10::ScalarType::Long
          ? true
          : number >= 0 && number < 128;
  out = value(number);
  return fits;
}

// With half precision, torch rounds the number for some operators. This path accepts only numbers that need no
// rounding.
inline bool is_half_number(double number, c10::ScalarType dtype) {
  const auto single = static_cast<float>(number);
  return dtype == c10::ScalarType::Half       ? static_cast<double>(static_cast<float>(c10::Half(single))) == number
         : dtype == c10::ScalarType::BFloat16 ? static_cast<double>(static_cast<float>(c10::BFloat16(single))) == number
                                              : false;
}

inline bool put_double(double number, c10::ScalarType dtype, hal_value_t &out) {
  using c10::ScalarType;
  out = value(number);
  if (dtype == ScalarType::Float || dtype == ScalarType::ComplexFloat) return std::fabs(number) <= FLT_MAX;
  return dtype == ScalarType::Double || dtype == ScalarType::ComplexDouble || is_half_number(number, dtype);
}

// The fast path's state: the first operand; all others must have the same shape, dtype and device.
struct Reference {
  const c10::TensorImpl *impl;
  c10::IntArrayRef sizes;
  const int64_t *strides;
  c10::ScalarType dtype;
  c10::DeviceIndex device;
  int32_t ordinal;  // the plugin's number of the device
  int64_t itemsize;
};

// Returns the first byte of a tensor's storage.
C10_ALWAYS_INLINE char *base_of(const c10::TensorImpl *impl) {
  return static_cast<char *>(impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
}

// Describes a dense tensor by the reference's shape: contiguous tensors of one shape have equal strides wherever they
// matter. Faster than describe(), which queries every tensor again.
C10_ALWAYS_INLINE hal_tensor_t describe_at(const Reference &reference, void *data, c10::ScalarType dtype) {
  return {sizeof(hal_tensor_t),
          data,
          reference.sizes.data(),
          reference.strides,
          static_cast<int32_t>(reference.sizes.size()),
          static_cast<int32_t>(dtype),
          reference.ordinal,
          0};
}
C10_ALWAYS_INLINE hal_tensor_t describe_like(const Reference &reference, const c10::TensorImpl *impl,
                                             c10::ScalarType dtype, int64_t itemsize) {
  return describe_at(reference, base_of(impl) + impl->storage_offset() * itemsize, dtype);
}

C10_ALWAYS_INLINE bool same_sizes(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); d++)
    if (a[d] != b[d]) return false;
  return true;
}

// Returns whether the strides of a contiguous tensor are those of a new one. Dimensions of size 1 may have others, and
// TensorIterator sorts dimensions by them unless all operands have one shape.
C10_ALWAYS_INLINE bool has_default_strides(const c10::TensorImpl *impl) {
  const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0; expected *= std::max<int64_t>(sizes[d], 1))
    if (strides[d] != expected) return false;
  return true;
}

// Returns whether a tensor is dense and has the reference's shape and device.
C10_ALWAYS_INLINE bool matches(const Reference &reference, const c10::TensorImpl *impl) {
  return impl == reference.impl ||
         (has_keys(impl, kKeySet) && impl->is_contiguous() && impl->device().index() == reference.device &&
          same_sizes(impl->sizes(), reference.sizes));
}

C10_ALWAYS_INLINE bool put(const Reference &reference, const at::Tensor &tensor, hal_tensor_t &descriptor,
                           hal_value_t &out) {
  const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  if (!matches(reference, impl) || tensor.scalar_type() != reference.dtype) return false;
  descriptor = describe_like(reference, impl, reference.dtype, reference.itemsize);
  out = value(descriptor);
  return true;
}

C10_ALWAYS_INLINE bool put(const Reference &reference, const c10::Scalar &scalar, hal_tensor_t &, hal_value_t &out) {
  switch (scalar.type()) {
    case c10::ScalarType::Long:
      return put_int(scalar.toLong(), reference.dtype, out);
    case c10::ScalarType::Double:
      return put_double(scalar.toDouble(), reference.dtype, out);
    default:
      return false;
  }
}

inline bool put(const Reference &reference, const std::optional<c10::Scalar> &scalar, hal_tensor_t &descriptor,
                hal_value_t &out) {
  return scalar.has_value() && put(reference, *scalar, descriptor, out);
}

// Converts a one-element CPU tensor to a number if its dtype does not promote the reference's.
inline bool put_host_number(const Reference &reference, const at::Tensor &tensor, hal_value_t &out) {
  const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  if (!has_keys(impl, kHostKeySet) || impl->dim() != 0) return false;
  if (!impl->is_wrapped_number() && reference.impl->dim() == 0) return false;
  const void *data = impl->data();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Double:
      return put_double(*static_cast<const double *>(data), reference.dtype, out);
    case c10::ScalarType::Float:
      return put_double(*static_cast<const float *>(data), reference.dtype, out);
    case c10::ScalarType::Long:
      return reference.dtype != c10::ScalarType::Bool &&
             put_int(*static_cast<const int64_t *>(data), reference.dtype, out);
    default:  // bool: some operators refuse it
      return false;
  }
}

C10_ALWAYS_INLINE bool put(const Reference &reference, const OrNumber &operand, hal_tensor_t &descriptor,
                           hal_value_t &out) {
  return put(reference, operand.tensor, descriptor, out) || put_host_number(reference, operand.tensor, out);
}

// Returns false if writing `out` could overwrite elements of `tensor` that are still to be read. Both are dense and of
// one size.
inline bool independent(const at::Tensor &out, const at::Tensor &tensor) {
  const c10::TensorImpl *a = out.unsafeGetTensorImpl(), *b = tensor.unsafeGetTensorImpl();
  return a == b || a->unsafe_storage().unsafeGetStorageImpl() != b->unsafe_storage().unsafeGetStorageImpl() ||
         (a->storage_offset() == b->storage_offset() && a->dtype() == b->dtype());
}
inline bool independent(const at::Tensor &out, const OrNumber &operand) { return independent(out, operand.tensor); }
inline bool independent(const at::Tensor &, const c10::Scalar &) { return true; }
inline bool independent(const at::Tensor &, const std::optional<c10::Scalar> &) { return true; }

}  // namespace dense

// An elementwise operator. Its paths are compiled once for each kind of arguments, not for each operator.
struct Elementwise {
  uint32_t op;
  uint64_t
      dtypes;  // that torch computes in when all operands have them (bit = dtype): an additional limit for plugins that
               // support every dtype
  bool bool_result;

  // Runs the operator into a new result. Returns false, without any effect, if the fast paths do not support the call.
  // The code is flat, because calls of c10's small accessors take longer than their work.
  template <class... Rest>
  [[gnu::flatten]] bool make(at::Tensor &result, const at::Tensor &self, const Rest &...rest) const {
    dense::Reference reference;
    Call<sizeof...(Rest)> call;
    if (C10_UNLIKELY(!accepts(reference, self) || !call.gather(reference, self, rest...)))
      return broadcast(nullptr, result, self, rest...);
    if (call.template has_number<Rest...>() && C10_UNLIKELY(!dense::has_default_strides(reference.impl)))
      return not_called();
    at::Tensor made =
        make_dense(reference.sizes, reference.impl->numel(), bool_result ? c10::ScalarType::Bool : reference.dtype,
                   bool_result ? 1 : reference.itemsize, reference.device);
    if (C10_UNLIKELY(!call.run(*this, reference, dense::base_of(made.unsafeGetTensorImpl())))) return was_declined(op);
    result = std::move(made);
    return true;
  }

  // Writes a passed result; returns false as above.
  template <class... Rest>
  bool write(const at::Tensor &result, const at::Tensor &self, const Rest &...rest) const {
    dense::Reference reference;
    Call<sizeof...(Rest)> call;
    const bool dense = accepts(reference, self) && dense::matches(reference, result.unsafeGetTensorImpl()) &&
                       result.scalar_type() == (bool_result ? c10::ScalarType::Bool : reference.dtype) &&
                       (dense::independent(result, self) && ... && dense::independent(result, rest)) &&
                       call.gather(reference, self, rest...);
    if (C10_LIKELY(dense)) {
      const c10::TensorImpl *impl = result.unsafeGetTensorImpl();
      void *const data = dense::base_of(impl) + impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
      return C10_LIKELY(call.run(*this, reference, data)) || was_declined(op);
    }
    at::Tensor unused;
    return broadcast(&result, unused, self, rest...);
  }

 private:
  static KernelArgument argument(const at::Tensor &tensor) { return operand(tensor); }
  static KernelArgument argument(const OrNumber &operand) { return operand_or_number(operand.tensor); }
  static KernelArgument argument(const c10::Scalar &scalar) { return number(scalar); }
  static KernelArgument argument(const std::optional<c10::Scalar> &scalar) { return number(scalar); }

  template <class... Rest>
  C10_NOINLINE bool broadcast(const at::Tensor *given, at::Tensor &made, const at::Tensor &self,
                              const Rest &...rest) const {
    const KernelArgument arguments[] = {argument(self), argument(rest)...};
    return run_broadcast(op, dtypes, bool_result, given, made, arguments);
  }

  bool accepts(dense::Reference &reference, const at::Tensor &self) const {
    const c10::TensorImpl *impl = self.unsafeGetTensorImpl();
    if (!dense::has_keys(impl, kKeySet) || !impl->is_contiguous()) return false;
    reference.impl = impl;
    reference.dtype = self.scalar_type();
    reference.device = impl->device().index();
    reference.ordinal = ordinal_of(reference.device);
    reference.sizes = impl->sizes();
    reference.strides = impl->strides().data();
    reference.itemsize = static_cast<int64_t>(impl->itemsize());
    return ((hal_op_dtypes(reference.device, op) & dtypes) >> static_cast<unsigned>(reference.dtype)) & 1;
  }

  template <size_t kRest>
  struct Call {
    hal_tensor_t descriptors[kRest + 1];
    hal_value_t values[kRest + 1];

    template <class... Rest>
    C10_ALWAYS_INLINE bool gather(const dense::Reference &reference, const at::Tensor &self, const Rest &...rest) {
      descriptors[0] = dense::describe_like(reference, self.unsafeGetTensorImpl(), reference.dtype, reference.itemsize);
      values[0] = value(descriptors[0]);
      [[maybe_unused]] size_t i = 0;
      return (... && (++i, dense::put(reference, rest, descriptors[i], values[i])));
    }

    // Returns whether an operand may be a number, which counts as an operand of another shape. Scalars after an operand
    // that may be a number are attributes, such as alpha; others may be operands, as in gt.Scalar.
    template <class... Rest>
    C10_ALWAYS_INLINE bool has_number() const {
      constexpr bool kAttributes = (... || std::is_same_v<Rest, OrNumber>);
      [[maybe_unused]] size_t i = 0;
      return (... || (++i, (!kAttributes || std::is_same_v<Rest, OrNumber>)&&values[i].tag != HAL_VALUE_TENSOR));
    }

    // `data`: of the result.
    bool run(const Elementwise &of, const dense::Reference &reference, void *data) {
      const hal_tensor_t descriptor =
          dense::describe_at(reference, data, of.bool_result ? c10::ScalarType::Bool : reference.dtype);
      const hal_tensor_t *const results[] = {&descriptor};
      return run_op(reference.device, of.op, values, results, HAL_CALL_DENSE);
    }
  };
};

// The general path after a meta function that has set outputs[0]. `common` is the iterator's common dtype (nullopt if
// it has none: that of the only operand). Returns false if there is no kernel. Then operands and passed results have
// not changed (out= may have been resized), and the caller uses the fallback.
bool run_elementwise(uint32_t op, std::optional<c10::ScalarType> common, bool bool_result, const Outputs &outputs,
                     c10::ArrayRef<KernelArgument> arguments);

}  // namespace torch_backend
