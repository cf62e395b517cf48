// histogram.cpp: how many elements lie in each of some bins of equal width (histc), of floating numbers and, as on CUDA, of integers.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "aten/prepare/structured.h"

namespace torch_backend {
namespace {

struct Range {
  double low, high;
};

// Of a call: what is given, or the least and the largest element, which waits for the device; never empty.
Range range_of(const at::Tensor &self, const c10::Scalar &min, const c10::Scalar &max) {
  Range range{min.toDouble(), max.toDouble()};
  if (range.low == range.high && self.numel() > 0) {
    const auto [low, high] = at::aminmax(self);
    range = {low.item<double>(), high.item<double>()};
  }
  TORCH_CHECK(std::isfinite(range.low) && std::isfinite(range.high), "torch.histc: range of [", range.low, ", ",
              range.high, "] is not finite");
  TORCH_CHECK(range.low <= range.high, "torch.histc: max must be larger than min");
  return range.low == range.high ? Range{range.low - 1, range.high + 1} : range;
}

bool histogram(Outputs &outputs, const at::Tensor &self, int64_t bins, const c10::Scalar &min, const c10::Scalar &max) {
  const c10::ScalarType dtype = self.scalar_type();
  if (self.is_complex() || dtype == at::kBool) return false;
  TORCH_CHECK(bins > 0, "torch.histc: bins must be > 0, but got ", bins);
  TORCH_CHECK(!outputs.given(0) || outputs.given(0)->scalar_type() == dtype,
              "torch.histogram: input tensor and hist tensor should have the same dtype, but got input ", dtype,
              " and hist ", outputs.given(0) ? outputs.given(0)->scalar_type() : dtype);
  const Range range = range_of(self, min, max);
  // In the order of the CPU's operations, so that elements at the edges fall into the CPU's bins. Integers are exact in double.
  const c10::ScalarType computing = self.is_floating_point() && dtype != at::kDouble ? at::kFloat : at::kDouble;
  const at::Tensor x = self.reshape(-1).to(computing);
  const at::Tensor inside = x.ge(range.low).logical_and(x.le(range.high));
  const double width =
      computing == at::kFloat ? static_cast<float>(range.high) - static_cast<float>(range.low) : range.high - range.low;
  const at::Tensor places = x.masked_fill(inside.logical_not(), range.low).sub(range.low).mul(bins).div(width);
  at::Tensor counts = at::zeros({bins}, self.options().dtype(at::kLong));
  counts.index_add_(0, places.to(at::kLong).clamp_max_(bins - 1), inside.to(at::kLong));
  outputs.put(0, counts.to(dtype));
  return true;
}

}  // namespace
}  // namespace torch_backend

#include "aten/reduce/histogram.inc"  // registrations: `bodies` of codegen/ops.yaml
