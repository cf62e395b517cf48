// structured.cpp: results, operands and numbers of the generated operators outside of the fast path.
#include "aten/prepare/structured.h"

#include <ATen/Dispatch.h>
#include <ATen/native/Resize.h>

#include <cfloat>
#include <cmath>
#include <limits>

namespace torch_backend {

thread_local uint32_t fast_path_declined = kNoOp;

bool not_called() { return was_declined(kNoOp); }

bool was_declined(uint32_t op) {
  fast_path_declined = op;
  return false;
}

namespace {

void check_result(bool same, const char *what, const char *got_what, const auto &wanted, const auto &got) {
  TORCH_CHECK(same, "Expected out tensor to have ", what, " ", wanted, ", but got ", got_what, got, " instead");
}

void resize_out(const at::Tensor &out, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                const c10::TensorOptions &options) {
  check_result(options.dtype() == out.dtype(), "dtype", "", options.dtype(), out.dtype());
  check_result(options.device() == out.device(), "device", "", options.device(), out.device());
  // The meta function's strides apply only if the tensor had to be resized.
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

const at::Tensor &Outputs::make(int64_t index, c10::IntArrayRef sizes, const at::Tensor &like,
                                c10::MemoryFormat format) {
  return make(index, sizes, like.scalar_type(), like.device(), format);
}

const at::Tensor &Outputs::make(int64_t index, c10::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device,
                                c10::MemoryFormat format) {
  set(index, sizes, {}, c10::TensorOptions().dtype(dtype).device(device).memory_format(format));
  return (*this)[index];
}

void Outputs::put(int64_t index, at::Tensor result) {
  if (form_ == Form::kFunctional) {
    made_[index] = std::move(result);
    return;
  }
  const at::Tensor &out = *given_[index];
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

namespace {

// Returns the dtypes in which an operator may still run.
uint64_t dtypes_after_fast_path(c10::DeviceIndex device, uint32_t op) {
  return C10_UNLIKELY(fast_path_declined == op) ? hal_op_portable_dtypes(device, op) : hal_op_dtypes(device, op);
}

bool has_native_dtypes(uint32_t op, c10::ArrayRef<KernelArgument> arguments) {
  uint64_t dtypes = 0;
  for (const KernelArgument &argument : arguments)
    if (argument.tensor && is_device_tensor(*argument.tensor))
      dtypes |= dtypes_after_fast_path(argument.tensor->device().index(), op);
  if (!dtypes) return false;
  for (const KernelArgument &argument : arguments) {
    if (!argument.tensor) continue;
    const at::Tensor &tensor = *argument.tensor;
    if (!tensor.defined() || tensor.layout() != c10::kStrided) return false;
    const auto dtype = tensor.scalar_type();
    if (tensor.device().type() == c10::kCPU && tensor.dim() == 0) continue;
    const bool any = c10::isIntegralType(dtype, true) || rule_of(op).policy == Policy::kElementSize;
    if (!any && !kernel_dtype(dtypes, dtype)) return false;
  }
  return true;
}

}  // namespace

bool may_run_natively(uint32_t op, c10::ArrayRef<KernelArgument> arguments) {
  if (C10_LIKELY(has_native_dtypes(op, arguments))) return true;
  fast_path_declined = kNoOp;
  return false;
}

void check_one_device(const Outputs &outputs, c10::ArrayRef<KernelArgument> arguments) {
  const at::Tensor *first = nullptr;
  const auto look = [&first](const at::Tensor *tensor) {
    if (!tensor || !tensor->defined()) return;
    if (!first) first = tensor;
    if (tensor->device() != first->device()) throw_two_devices(first->device(), tensor->device());
  };
  for (const KernelArgument &argument : arguments) look(argument.tensor);
  for (size_t i = 0; i < kMostOutputs; i++) look(outputs.given(i));
}

namespace {

// Returns the largest number of a floating or complex dtype.
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

c10::Scalar as_number_of(const c10::Scalar &scalar, c10::ScalarType dtype) {
  if (dtype != c10::kBool && (!scalar.isComplex() || c10::isComplexType(dtype))) return scalar;
  return AT_DISPATCH_ALL_TYPES_AND3(c10::kBool, c10::kHalf, c10::kBFloat16, dtype, "number",
                                    [&] { return c10::Scalar(scalar.to<scalar_t>()); });
}

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
      if (!c10::isComplexType(dtype) && number.imag() == 0) return number_value(number.real(), dtype, parts);
      if (!c10::isComplexType(dtype) || !fits_floating(number.real(), dtype) || !fits_floating(number.imag(), dtype))
        return std::nullopt;
      parts = {number.real(), number.imag()};
      hal_value_t result{};
      result.tag = HAL_VALUE_COMPLEX;
      result.u.dl = parts.data();
      return result;
    }
    default:  // an unsigned number above the maximum of int64
      return std::nullopt;
  }
}

}  // namespace torch_backend
