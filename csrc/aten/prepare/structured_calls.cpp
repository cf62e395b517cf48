// structured_calls.cpp: reductions, softmax and matrix products behind their meta functions.
#include "aten/prepare/structured_calls.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include <algorithm>

namespace torch_backend {

namespace {

constexpr size_t kMaxResults = 2;
constexpr size_t kMaxStructuredArguments = 5;

// A reduction's result with the reduced dimensions kept, which is how kernels see it.
struct KeptShape {
  DimVector sizes, strides;
  hal_tensor_t descriptor;

  KeptShape(const at::Tensor &result, const at::Tensor &self, const DimVector &dims) : descriptor(describe(result)) {
    const bool kept = result.dim() == self.dim();
    for (int64_t d = 0, next = 0; d < self.dim(); d++) {
      const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
      sizes.push_back(reduced ? 1 : self.size(d));
      strides.push_back(reduced ? 1 : result.stride(kept ? d : next));
      next += reduced ? 0 : 1;
    }
    descriptor.sizes = sizes.data();
    descriptor.strides = strides.data();
    descriptor.ndim = static_cast<int32_t>(sizes.size());
  }
};

// A one-dimensional view of a tensor without dimensions: softmax along dimension 0 of it is defined.
struct AtLeastOneDim {
  static constexpr int64_t kOne = 1;
  hal_tensor_t descriptor;

  explicit AtLeastOneDim(const at::Tensor &tensor) : descriptor(describe(tensor)) {
    if (descriptor.ndim) return;
    descriptor.ndim = 1;
    descriptor.sizes = descriptor.strides = &kOne;
  }
};

}  // namespace

DimVector reduced_dims(int64_t ndim, c10::OptionalIntArrayRef dims) {
  const auto mask = at::dim_list_to_bitset(dims, static_cast<size_t>(ndim));
  const bool all = !dims.has_value() || dims->empty();
  DimVector reduced;
  for (int64_t d = 0; d < ndim; d++)
    if (all || mask[static_cast<size_t>(d)]) reduced.push_back(d);
  return reduced;
}

DimVector listed_dims(int64_t ndim, c10::OptionalIntArrayRef dims) {
  return dims.has_value() && dims->empty() ? DimVector() : reduced_dims(ndim, dims);
}

std::optional<c10::ScalarType> reduction_dtype(c10::DeviceIndex device, uint32_t op, c10::ScalarType wanted) {
  if (has_kernel(device, op, wanted)) return wanted;
  if (wanted == at::kBool && has_kernel(device, op, at::kByte)) return wanted;  // its bytes are 0 and 1
  if (c10::isIntegralType(wanted, true) && has_kernel(device, op, at::kLong)) return at::kLong;
  if (c10::isReducedFloatingType(wanted) && has_kernel(device, op, at::kFloat)) return at::kFloat;
  return std::nullopt;
}

bool run_reduction(uint32_t op, c10::ScalarType computing, const Outputs &outputs, size_t results,
                   const at::Tensor &self, const DimVector &dims, const std::optional<c10::Scalar> &number) {
  const c10::DeviceIndex device = self.device().index();
  const auto dtype = reduction_dtype(device, op, computing);
  if (!dtype) return false;
  const at::Tensor operand = prepare_operand(self, *dtype, device);
  if (dims.empty() && self.dim() > 0) {  // a list that names no dimension
    outputs[0].copy_(operand);
    return true;
  }
  const bool as_bytes = *dtype == at::kBool && !has_kernel(device, op, at::kBool);
  hal_tensor_t descriptor = describe(operand);
  if (as_bytes) descriptor.dtype = HAL_UINT8;
  const bool all =
      static_cast<int64_t>(dims.size()) == self.dim();  // an empty list: also the flattened tensor of argmax
  hal_value_t values[] = {value(descriptor), value(all ? c10::IntArrayRef() : c10::IntArrayRef(dims)), none_value()};
  if (number) {
    NumberParts unused;
    const auto converted = number_value(*number, at::kDouble, unused);
    if (!converted) return false;
    values[2] = *converted;
  }

  std::optional<Destination> destinations[kMaxResults];
  std::optional<KeptShape> shapes[kMaxResults];
  const hal_tensor_t *pointers[kMaxResults];
  for (size_t i = 0; i < results; i++) {
    const at::Tensor &result = outputs[static_cast<int64_t>(i)];
    const bool counts = result.scalar_type() == at::kLong;  // indices and counts, whatever the kernel computes in
    destinations[i].emplace(result, counts ? at::kLong : *dtype, shares_storage(result, operand, true));
    shapes[i].emplace(destinations[i]->tensor(), operand, dims);
    if (as_bytes && !counts) shapes[i]->descriptor.dtype = HAL_UINT8;
    pointers[i] = &shapes[i]->descriptor;
  }
  if (!run_op(device, op, {values, number ? 3u : 2u}, {pointers, results})) return false;
  for (size_t i = 0; i < results; i++) destinations[i]->finish();
  return true;
}

bool run_softmax(uint32_t op, const Outputs &outputs, c10::ArrayRef<Argument> operands, int64_t dim) {
  const at::Tensor &result = outputs[0];
  const c10::DeviceIndex device = result.device().index();
  const auto dtype = result.scalar_type();
  if (!has_kernel(device, op, dtype)) return false;

  at::Tensor prepared[kMaxStructuredArguments];
  std::optional<AtLeastOneDim> descriptors[kMaxStructuredArguments];
  hal_value_t values[kMaxStructuredArguments];
  bool aliased = false;
  for (size_t i = 0; i < operands.size(); i++) {
    if (operands[i].tensor->sizes() != result.sizes()) return false;
    prepared[i] = prepare_operand(*operands[i].tensor, dtype, device);
    aliased |= shares_storage(result, prepared[i], true);
    descriptors[i].emplace(prepared[i]);
    values[i] = value(descriptors[i]->descriptor);
  }
  values[operands.size()] = value(at::maybe_wrap_dim(dim, result.dim()));

  const Destination destination(result, dtype, aliased);
  const AtLeastOneDim descriptor(destination.tensor());
  const hal_tensor_t *const results[] = {&descriptor.descriptor};
  if (!run_op(device, op, {values, operands.size() + 1}, results)) return false;
  destination.finish();
  return true;
}

bool run_matrix_product(uint32_t op, const Outputs &outputs, c10::ArrayRef<Argument> arguments) {
  const at::Tensor &result = outputs[0];
  const c10::DeviceIndex device = result.device().index();
  const auto dtype = result.scalar_type();
  if (!has_kernel(device, op, dtype)) return false;
  const bool adds = arguments.size() > 2;  // the first operand is added to the product

  ExpandedOperand operands[kMaxStructuredArguments];
  NumberParts parts[kMaxStructuredArguments];
  hal_value_t values[kMaxStructuredArguments];
  bool aliased = false;
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument &argument = arguments[i];
    if (argument.number) {
      const auto number = number_value(*argument.number, dtype, parts[i]);
      if (!number) return false;
      values[i] = *number;
      continue;
    }
    const at::Tensor &tensor = *argument.tensor;
    if (tensor.scalar_type() != dtype) return false;  // the CPU kernel words the error
    const bool added = adds && i == 0;
    if (added && !at::is_expandable_to(tensor.sizes(), result.sizes())) return false;
    operands[i].expand(prepare_operand(tensor, dtype, device), added ? result.sizes() : tensor.sizes());
    aliased |= shares_storage(result, operands[i].tensor(), true);
    values[i] = value(operands[i].descriptor());
  }

  const Destination destination(result, dtype, aliased);
  const hal_tensor_t descriptor = describe(destination.tensor());
  const hal_tensor_t *const results[] = {&descriptor};
  if (!run_op(device, op, {values, arguments.size()}, results)) return false;
  destination.finish();
  return true;
}

}  // namespace torch_backend
