// index_composite.cpp: operators that are a few calls of indexing, sorting and running sums: unfold_backward,
// repeat_interleave, bincount and the search for unique elements. Results whose size depends on the data wait for the
// device, as on CUDA.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/unique_consecutive_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "aten/fallback/fallback_call.h"

namespace torch_backend {
namespace {

// Windows overlap: each element's gradient is the sum over its windows, in their order.
at::Tensor unfold_gradient(const at::Tensor &grad, c10::IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  at::Tensor result = at::zeros(sizes, grad.options());
  if (sizes.empty()) return result.copy_(grad.squeeze());
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  if (grad.numel() == 0) return result;
  const auto options = grad.options().dtype(at::kLong);
  const at::Tensor starts = at::arange(grad.size(dim), options).mul(step).unsqueeze(1);
  const at::Tensor places = starts.add(at::arange(size, options)).reshape(-1);
  return result.index_add_(dim, places, grad.movedim(-1, dim + 1).flatten(dim, dim + 1));
}

at::Tensor interleave(const at::Tensor &repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0);
  TORCH_CHECK(!repeats.lt(0).any().item<bool>(), "repeats can not be negative");
  const int64_t total = output_size ? *output_size : ends.select(0, -1).item<int64_t>();
  const at::Tensor places = at::arange(total, ends.options());
  return at::searchsorted(ends, places, /*out_int32=*/false, /*right=*/true).to(repeats.scalar_type());
}

at::Tensor count_numbers(const at::Tensor &self, const std::optional<at::Tensor> &weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  const bool weighted = weights && weights->defined();
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  TORCH_CHECK(self.dim() == 1 && c10::isIntegralType(self.scalar_type(), false) && self.min().item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const int64_t bins = std::max(self.max().item<int64_t>() + 1, minlength);
  const c10::ScalarType dtype = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const at::Tensor counts = at::zeros({bins}, self.options().dtype(dtype));
  const at::Tensor values = weighted ? weights->to(dtype) : at::ones({1}, counts.options()).expand(self.sizes());
  return at::Tensor(counts).index_add_(0, self.to(at::kLong), values);
}

// ---- unique elements ----

struct Groups {
  at::Tensor starts, numbers;  // where each run of equal elements starts; each element's run
};

Groups runs_of(const at::Tensor &values) {
  const int64_t n = values.size(0);
  const at::Tensor first = at::ones({n}, values.options().dtype(at::kBool));
  first.narrow(0, 1, n - 1).copy_(values.narrow(0, 1, n - 1).ne(values.narrow(0, 0, n - 1)));
  return {first.nonzero().squeeze(1), first.cumsum(0).sub(1)};
}

at::Tensor lengths_of(const Groups &groups) {
  const at::Tensor &numbers = groups.numbers;
  at::Tensor counts = at::zeros(groups.starts.sizes(), numbers.options());
  return counts.index_add_(0, numbers, at::ones({1}, numbers.options()).expand(numbers.sizes()));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique(const at::Tensor &self, bool sorted, bool return_inverse,
                                                      bool return_counts) {
  if (self.numel() == 0 || self.is_complex())
    return call_fallback<at::_ops::_unique2>(self, sorted, return_inverse, return_counts);
  const auto [values, order] = self.reshape(-1).sort(/*stable=*/true, 0, false);
  const Groups groups = runs_of(values);
  const auto options = self.options().dtype(at::kLong);
  at::Tensor inverse = at::empty({0}, options), counts = at::empty({0}, options);
  if (return_inverse)
    inverse = at::empty({self.numel()}, options).scatter_(0, order, groups.numbers).view(self.sizes());
  if (return_counts) counts = lengths_of(groups);
  return {values.index_select(0, groups.starts), inverse, counts};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_runs(const at::Tensor &self, bool return_inverse,
                                                           bool return_counts, std::optional<int64_t> dim) {
  if (self.numel() == 0 || (dim && self.dim() != 1))
    return call_fallback<at::_ops::unique_consecutive>(self, return_inverse, return_counts, dim);
  const at::Tensor values = self.reshape(-1);
  const Groups groups = runs_of(values);
  const auto options = self.options().dtype(at::kLong);
  at::Tensor inverse = at::empty({0}, options), counts = at::empty({0}, options);
  if (return_inverse) inverse = groups.numbers.view(self.sizes());
  if (return_counts) counts = lengths_of(groups);
  return {values.index_select(0, groups.starts), inverse, counts};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("unfold_backward", TORCH_FN(unfold_gradient));
  m.impl("repeat_interleave.Tensor", TORCH_FN(interleave));
  m.impl("bincount", TORCH_FN(count_numbers));
  m.impl("_unique2", TORCH_FN(unique));
  m.impl("unique_consecutive", TORCH_FN(unique_runs));
}

}  // namespace torch_backend
