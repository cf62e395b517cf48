// structured.cpp: results, operands and numbers of the generated operators off the fast path.
#include "aten/prepare/structured.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/zeros.h>

#include <cfloat>
#include <cmath>
#include <limits>

namespace torch_backend {

namespace {

void check_result(bool same, const char *what, const char *got_what, const auto &wanted, const auto &got) {
  TORCH_CHECK(same, "Expected out tensor to have ", what, " ", wanted, ", but got ", got_what, got, " instead");
}

void resize_out(const at::Tensor &out, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                const c10::TensorOptions &options) {
  check_result(options.dtype() == out.dtype(), "dtype", "", options.dtype(), out.dtype());
  check_result(options.device() == out.device(), "device", "", options.device(), out.device());
  // The meta function's strides are advice: they hold only when the tensor had to be resized.
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty())
    out.as_strided_(sizes, strides);
  else if (options.memory_format_opt())
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
}

void check_inplace(const at::Tensor &self, c10::IntArrayRef sizes, const c10::TensorOptions &options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ",
              sizes, " should match");
}

}  // namespace

void Outputs::set(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions &options) {
  switch (form_) {
    case Form::kFunctional: {
      const auto dtype = c10::typeMetaToScalarType(options.dtype());
      const auto device = options.device().index();
      made_[index] = strides.empty() ? make_empty(sizes, dtype, device, options.memory_format_opt())
                                     : make_empty_strided(sizes, strides, dtype, device);
      return;
    }
    case Form::kOut:
      return resize_out(*given_[index], sizes, strides, options);
    case Form::kInplace:
      return check_inplace(*given_[index], sizes, options);
  }
}

std::optional<c10::ScalarType> kernel_dtype(uint64_t kernels, c10::ScalarType dtype) {
  using c10::ScalarType;
  const auto has = [kernels](ScalarType candidate) { return (kernels >> static_cast<unsigned>(candidate)) & 1; };
  if (C10_LIKELY(has(dtype))) return dtype;
  if (c10::isReducedFloatingType(dtype) && has(ScalarType::Float)) return ScalarType::Float;
  if (c10::isReducedFloatingType(dtype) || dtype == ScalarType::Float)
    return has(ScalarType::Double) ? std::optional(ScalarType::Double) : std::nullopt;
  const bool narrow =
      dtype == ScalarType::Byte || dtype == ScalarType::Char || dtype == ScalarType::Short || dtype == ScalarType::Int;
  return narrow && has(ScalarType::Long) ? std::optional(ScalarType::Long) : std::nullopt;
}

bool may_run_natively(uint32_t op, c10::ArrayRef<Argument> arguments) {
  uint64_t dtypes = 0;
  for (const Argument &argument : arguments)
    if (argument.tensor && is_device_tensor(*argument.tensor))
      dtypes |= hal_op_dtypes(argument.tensor->device().index(), op);
  if (!dtypes) return false;
  for (const Argument &argument : arguments) {
    if (!argument.tensor) continue;
    const at::Tensor &tensor = *argument.tensor;
    if (!tensor.defined() || tensor.layout() != c10::kStrided) return false;
    const auto dtype = tensor.scalar_type();
    if (tensor.device().type() == c10::kCPU && tensor.dim() == 0) continue;
    if (!c10::isIntegralType(dtype, true) && !kernel_dtype(dtypes, dtype)) return false;
  }
  return true;
}

void check_one_device(const Outputs &outputs, c10::ArrayRef<Argument> arguments) {
  const at::Tensor *first = nullptr;
  const auto look = [&first](const at::Tensor *tensor) {
    if (!tensor || !tensor->defined()) return;
    if (!first) first = tensor;
    if (tensor->device() != first->device()) throw_two_devices(first->device(), tensor->device());
  };
  for (const Argument &argument : arguments) look(argument.tensor);
  for (size_t i = 0; i < 2; i++) look(outputs.given(i));
}

namespace {

// The largest number of a floating or complex dtype.
double largest_of(c10::ScalarType dtype) {
  const auto real = c10::toRealValueType(dtype);
  return real == c10::ScalarType::Double ? DBL_MAX : real == c10::ScalarType::Half ? 65504.0 : FLT_MAX;
}

bool fits_floating(double number, c10::ScalarType dtype) {
  return !std::isfinite(number) || std::fabs(number) <= largest_of(dtype);
}

bool fits_integer(int64_t number, c10::ScalarType dtype) {
  const size_t bits = 8 * c10::elementSize(dtype);
  const bool is_unsigned = dtype == c10::ScalarType::Byte;
  const int64_t largest =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (INT64_C(1) << (is_unsigned ? bits : bits - 1)) - 1;
  return number <= largest && number >= (is_unsigned ? 0 : -largest - 1);
}

}  // namespace

std::optional<hal_value_t> number_value(const c10::Scalar &scalar, c10::ScalarType dtype, NumberParts &parts) {
  const bool floating = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  switch (scalar.type()) {
    case c10::ScalarType::Bool:
      return value(scalar.toBool());
    case c10::ScalarType::Double: {
      const double number = scalar.toDouble();
      if (dtype == c10::ScalarType::Bool) return value(number != 0);
      if (!floating || !fits_floating(number, dtype)) return std::nullopt;
      return value(number);
    }
    case c10::ScalarType::Long: {
      const int64_t number = scalar.toLong();
      if (dtype == c10::ScalarType::Bool) return value(number != 0);
      if (floating ? dtype == c10::ScalarType::Half && (number > 65504 || number < -65504)
                   : !fits_integer(number, dtype))
        return std::nullopt;
      return value(number);
    }
    case c10::ScalarType::ComplexDouble: {
      const c10::complex<double> number = scalar.toComplexDouble();
      if (!c10::isComplexType(dtype) || !fits_floating(number.real(), dtype) || !fits_floating(number.imag(), dtype))
        return std::nullopt;
      parts = {number.real(), number.imag()};
      hal_value_t result{};
      result.tag = HAL_VALUE_COMPLEX;
      result.u.dl = parts.data();
      return result;
    }
    default:  // an unsigned number beyond int64
      return std::nullopt;
  }
}

at::Tensor prepare_operand(const at::Tensor &tensor, c10::ScalarType dtype, c10::DeviceIndex device) {
  if (tensor.device().type() == c10::kCPU) {  // one element, or the meta function would have refused it
    const at::Tensor moved = make_empty({}, dtype, device);
    moved.fill_(tensor.to(dtype).item());
    return moved;
  }
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options().dtype(dtype));
  at::Tensor prepared = tensor;
  if (prepared.is_conj()) prepared = prepared.resolve_conj();
  if (prepared.is_neg()) prepared = prepared.resolve_neg();
  return prepared.scalar_type() == dtype ? prepared : prepared.to(dtype);
}

void ExpandedOperand::expand(at::Tensor &&prepared, c10::IntArrayRef sizes) {
  tensor_ = std::move(prepared);
  descriptor_ = describe(tensor_);
  if (tensor_.sizes() == sizes) return;
  const size_t missing = sizes.size() - static_cast<size_t>(tensor_.dim());
  strides_.assign(sizes.size(), 0);
  for (size_t d = missing; d < sizes.size(); d++) {
    const auto own = static_cast<int64_t>(d - missing);
    strides_[d] = tensor_.size(own) == 1 ? 0 : tensor_.stride(own);
  }
  descriptor_.sizes = sizes.data();
  descriptor_.strides = strides_.data();
  descriptor_.ndim = static_cast<int32_t>(sizes.size());
}

bool shares_storage(const at::Tensor &a, const at::Tensor &b, bool same_view_too) {
  if (a.storage().unsafeGetStorageImpl() != b.storage().unsafeGetStorageImpl()) return false;
  if (same_view_too) return true;
  return a.storage_offset() != b.storage_offset() || a.dtype() != b.dtype() || a.sizes() != b.sizes() ||
         a.strides() != b.strides();
}

}  // namespace torch_backend
