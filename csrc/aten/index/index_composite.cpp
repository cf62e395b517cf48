// index_composite.cpp: operators composed of indexing, sorting and running sums: unfold_backward, repeat_interleave,
// bincount and the search for unique elements. Results whose size depends on the data wait for the device, as on CUDA.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Windows overlap: each element's gradient is the sum over its windows, in order.
at::Tensor unfold_gradient(const at::Tensor &grad, c10::IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  at::Tensor result = at::zeros(sizes, grad.options());
  if (sizes.empty()) return result.copy_(grad.squeeze());
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  if (grad.numel() == 0) return result;
  const auto options = grad.options().dtype(at::kLong);
  const at::Tensor starts = at::arange(grad.size(dim), options).mul(step).unsqueeze(1);
  const at::Tensor positions = starts.add(at::arange(size, options)).reshape(-1);
  return result.index_add_(dim, positions, grad.movedim(-1, dim + 1).flatten(dim, dim + 1));
}

// Returns where each number's repetitions end.
at::Tensor ends_of(const at::Tensor &repeats) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  TORCH_CHECK(!repeats.lt(0).any().item<bool>(), "repeats can not be negative");
  return repeats.cumsum(0);
}

int64_t total_of(const at::Tensor &ends, std::optional<int64_t> known) {
  return ends.size(0) == 0 ? 0 : known ? *known : ends.select(0, -1).item<int64_t>();
}

at::Tensor empty_repeats(const at::Tensor &repeats, std::optional<int64_t> output_size) {
  return at::empty({total_of(ends_of(repeats), output_size)}, repeats.options());
}

at::Tensor interleave(const at::Tensor &repeats, std::optional<int64_t> output_size) {
  const at::Tensor ends = ends_of(repeats);
  const at::Tensor positions = at::arange(total_of(ends, output_size), ends.options());
  return at::searchsorted(ends, positions, /*out_int32=*/false, /*right=*/true).to(repeats.scalar_type());
}

// Checks a call; returns the counts, not computed yet.
at::Tensor empty_bins(const at::Tensor &self, const OptionalTensor &weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(self.scalar_type(), false), "\"bincount\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  const bool weighted = is_given(weights);
  if (self.dim() == 1 && self.numel() == 0) return at::empty({minlength}, self.options().dtype(at::kLong));
  TORCH_CHECK(self.dim() == 1 && self.min().item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const int64_t bins = std::max(self.max().item<int64_t>() + 1, minlength);
  const c10::ScalarType dtype = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return at::empty({bins}, self.options().dtype(dtype));
}

at::Tensor count_numbers(const at::Tensor &self, const OptionalTensor &weights, int64_t minlength) {
  at::Tensor counts = empty_bins(self, weights, minlength).zero_();
  if (self.numel() == 0) return counts;
  const at::Tensor values =
      is_given(weights) ? weights->to(counts.scalar_type()) : at::ones({1}, counts.options()).expand(self.sizes());
  return counts.index_add_(0, self.to(at::kLong), values);
}

// ---- unique elements ----

struct Groups {
  at::Tensor starts, numbers;  // where each run of equal elements starts; the run of each element
};

Groups runs_of(const at::Tensor &values) {
  const int64_t n = values.size(0);
  const at::Tensor first = at::ones({n}, values.options().dtype(at::kBool));
  first.narrow(0, 1, n - 1).copy_(values.narrow(0, 1, n - 1).ne(values.narrow(0, 0, n - 1)));
  return {first.nonzero().squeeze(1), first.cumsum(0).sub(1)};
}

using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Returns the first of each run of equal values, the run of each element of a tensor of `sizes`, and the lengths of the
// runs. `order`: the elements' positions before they were sorted, if they were.
Unique unique_of(const at::Tensor &values, const at::Tensor &order, c10::IntArrayRef sizes, bool return_inverse,
                 bool return_counts) {
  const auto [starts, numbers] = runs_of(values);
  const auto options = numbers.options();
  at::Tensor inverse = at::empty({0}, options), counts = at::empty({0}, options);
  if (return_inverse)
    inverse = (order.defined() ? at::empty(values.sizes(), options).scatter_(0, order, numbers) : numbers).view(sizes);
  if (return_counts)
    counts = at::zeros(starts.sizes(), options).index_add_(0, numbers, at::ones({1}, options).expand(numbers.sizes()));
  return {values.index_select(0, starts), inverse, counts};
}

// Returns the result of the plugin's own operator, allocated for the maximum number of elements; nullopt = the plugin
// has none, or it declines.
std::optional<Unique> found_by_plugin(uint32_t op, std::initializer_list<Argument> arguments, const at::Tensor &self,
                                      bool return_inverse, bool return_counts) {
  const c10::DeviceIndex device = self.device().index();
  if (self.numel() == 0 || !has_vendor_op(device, op)) return std::nullopt;
  at::Tensor values = make_empty(self.numel(), self.scalar_type(), device),
             inverse = make_wanted(return_inverse, self.sizes(), at::kLong, device),
             counts = make_wanted(return_counts, self.numel(), at::kLong, device),
             count = make_empty({}, at::kLong, device);
  if (!call_vendor_op(op, arguments, {values, inverse, counts, count})) return std::nullopt;
  const int64_t found = count.item<int64_t>();
  values.resize_(found);
  return_counts ? counts.resize_(found) : counts = make_empty(0, at::kLong, device);
  if (!return_inverse) inverse = make_empty(0, at::kLong, device);
  return Unique{std::move(values), std::move(inverse), std::move(counts)};
}

std::optional<Unique> unique(const at::Tensor &self, bool sort, bool return_inverse, bool return_counts) {
  if (auto found = found_by_plugin(HAL_OP_ID__UNIQUE2,
                                   {argument(self), argument(sort), argument(return_inverse), argument(return_counts)},
                                   self, return_inverse, return_counts))
    return found;
  if (self.numel() == 0 || self.is_complex()) return std::nullopt;
  const auto [values, order] = self.reshape(-1).sort(/*stable=*/true, 0, false);
  return unique_of(values, order, self.sizes(), return_inverse, return_counts);
}

std::optional<Unique> unique_runs(const at::Tensor &self, bool return_inverse, bool return_counts,
                                  std::optional<int64_t> dim) {
  if (auto found = !dim || self.dim() == 1 ? found_by_plugin(HAL_OP_ID_UNIQUE_CONSECUTIVE,
                                                             {argument(self), argument(return_inverse),
                                                              argument(return_counts), argument(dim)},
                                                             self, return_inverse, return_counts)
                                           : std::nullopt)
    return found;
  if (self.numel() == 0 || (dim && self.dim() != 1)) return std::nullopt;
  return unique_of(self.reshape(-1), {}, self.sizes(), return_inverse, return_counts);
}

}  // namespace
}  // namespace torch_backend

#include "aten/index/index_composite.inc"  // registrations: codegen/operators
