// structured_calls.cpp: reductions, softmax and matrix products after their meta functions.
#include "aten/prepare/structured_calls.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include <algorithm>

namespace torch_backend {

DimVector reduced_dims(int64_t ndim, c10::OptionalIntArrayRef dims) {
  DimVector reduced;
  if (!dims.has_value() || dims->empty()) {
    for (int64_t d = 0; d < ndim; d++) reduced.push_back(d);
    return reduced;
  }
  const auto mask = at::dim_list_to_bitset(dims, static_cast<size_t>(ndim));
  for (int64_t d = 0; d < ndim; d++)
    if (mask[static_cast<size_t>(d)]) reduced.push_back(d);
  return reduced;
}

DimVector listed_dims(int64_t ndim, c10::OptionalIntArrayRef dims) {
  return dims.has_value() && dims->empty() ? DimVector() : reduced_dims(ndim, dims);
}

bool run_reduction(uint32_t op, c10::ScalarType computing, const Outputs &outputs, size_t results,
                   const at::Tensor &self, const DimVector &dims, const std::optional<c10::Scalar> &number) {
  const c10::DeviceIndex device = self.device().index();
  Call call(op, device, computing);
  if (!call.possible()) return false;
  if (dims.empty() && self.dim() > 0) {  // a list without dimensions
    outputs[0].copy_(prepared(self, call.dtype(), Layout::kStrided, device));
    return true;
  }
  // An empty list means all dimensions, also for the flattened tensor of argmax.
  const bool all = static_cast<int64_t>(dims.size()) == self.dim();
  call.in(self).put(all ? c10::IntArrayRef() : c10::IntArrayRef(dims));
  if (number) {
    NumberParts unused;
    const auto converted = number_value(*number, at::kDouble, unused);
    if (!converted) return false;
    call.put(*converted);
  }
  for (size_t i = 0; i < results; i++) {
    const at::Tensor &result = outputs[static_cast<int64_t>(i)];
    const bool counts = result.scalar_type() == at::kLong;  // indices and counts, whatever the kernel computes in
    (counts ? call.indices(result) : call.out(result)).with(&Operand::keep, self.sizes(), dims);
  }
  return call.run();
}

bool run_softmax(uint32_t op, const Outputs &outputs, c10::ArrayRef<KernelArgument> operands, int64_t dim) {
  const at::Tensor &result = outputs[0];
  Call call(op, result);
  for (const KernelArgument &operand : operands) {
    if (operand.tensor->sizes() != result.sizes()) return false;
    call.in(*operand.tensor);
  }
  return call.put(at::maybe_wrap_dim(dim, result.dim())).out(result).run();
}

bool run_matrix_product(uint32_t op, const Outputs &outputs, c10::ArrayRef<KernelArgument> arguments) {
  const at::Tensor &result = outputs[0];
  Call call(op, result);
  const bool adds = arguments.size() > 2;  // the first operand is added to the product
  NumberParts parts[2];
  for (size_t i = 0; call.possible() && i < arguments.size(); i++) {
    if (const c10::Scalar *scalar = arguments[i].number) {
      const auto number = number_value(*scalar, call.dtype(), parts[i % 2]);
      if (!number) return false;
      call.put(*number);
      continue;
    }
    const at::Tensor &tensor = *arguments[i].tensor;
    if (tensor.scalar_type() != result.scalar_type()) return false;  // the CPU kernel reports the error
    call.in(tensor);
    if (!adds || i > 0) continue;
    if (!at::is_expandable_to(tensor.sizes(), result.sizes())) return false;
    call.expand(result.sizes());
  }
  return call.out(result).run();
}

}  // namespace torch_backend
