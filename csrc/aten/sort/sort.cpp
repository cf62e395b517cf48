// sort.cpp: operators that order elements: sort, topk, kthvalue, median and searches in sorted rows. Sorting is stable,
// and NaN is the largest element.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/ops/full.h>

#include <tuple>

#include "aten/prepare/structured.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Sorts along `dim` into both results, of self's shape. false = no kernel.
bool sort_into(const at::Tensor &self, int64_t dim, bool descending, const at::Tensor &values,
               const at::Tensor &indices) {
  if (self.numel() == 0) return true;
  Call call(HAL_OP_ID_SORT_LINES, self);
  // The size of the keys. uint8 and bool need one bit more than their size for values below zero.
  const bool narrow = call.possible() && call.dtype() == at::kLong && self.itemsize() < 8;
  const int64_t bits =
      narrow ? 8 * static_cast<int64_t>(self.itemsize()) + (self.scalar_type() == at::kByte ? 1 : 0) : 64;
  call.in(self).put(at::maybe_wrap_dim(dim, self.dim())).put(static_cast<int64_t>(descending)).put(bits);
  return call.out(values).indices(indices).run();
}

struct Sorted {
  at::Tensor values, indices;
};

// Sorts into new tensors; nullopt = no kernel.
std::optional<Sorted> sorted(const at::Tensor &self, int64_t dim, bool descending) {
  const c10::DeviceIndex device = self.device().index();
  Sorted result{make_empty(self.sizes(), self.scalar_type(), device), make_empty(self.sizes(), at::kLong, device)};
  if (!sort_into(self, dim, descending, result.values, result.indices)) return std::nullopt;
  return result;
}

// Returns the selected elements along `dim`, which has size 1.
void give(Outputs &outputs, const Sorted &chosen, int64_t dim, bool keepdim) {
  const auto shaped = [&](const at::Tensor &all) { return keepdim || all.dim() == 0 ? all : all.squeeze(dim); };
  const at::Tensor values = shaped(chosen.values), indices = shaped(chosen.indices);
  outputs.make(0, values.sizes(), values).copy_(values);
  outputs.make(1, indices.sizes(), indices).copy_(indices);
  at::assert_no_overlap(outputs[0], outputs[1]);
}

bool kthvalue(Outputs &outputs, const at::Tensor &self, int64_t k, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.dim() ? self.size(dim) : 1;
  TORCH_CHECK_INDEX(size != 0, "kthvalue(): Expected reduction dim ", dim, " to have non-zero size.");
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ", dim);
  const auto order = self.numel() && !self.is_complex() ? sorted(self, dim, false) : std::nullopt;
  if (!order) return false;
  const auto pick = [&](const at::Tensor &all) { return all.dim() ? all.narrow(dim, k - 1, 1) : all; };
  give(outputs, {pick(order->values), pick(order->indices)}, dim, keepdim);
  return true;
}

// ---- medians: the lower one of two, NaN first or ignored ----

// Returns the index of each row's median among the sorted elements, size 1 along `dim`.
at::Tensor median_index(const at::Tensor &self, int64_t dim, bool ignore_nan) {
  const int64_t n = self.size(dim);
  at::DimVector sizes(self.sizes());
  sizes[static_cast<size_t>(dim)] = 1;
  const auto options = self.options().dtype(at::kLong);
  if (!self.is_floating_point()) return at::full(sizes, (n - 1) / 2, options);
  const at::Tensor nans = self.ne(self).sum(dim, /*keepdim=*/true);
  if (ignore_nan) return nans.neg().add(n - 1).to(at::kDouble).mul(0.5).floor().to(at::kLong).clamp_min(0);
  return at::full(sizes, (n - 1) / 2, options).masked_fill(nans.gt(0), 0).add(nans.neg().add(n).mul(nans.gt(0)));
}

// nullopt = no kernel.
std::optional<Sorted> median_along(const at::Tensor &self, int64_t dim, bool ignore_nan) {
  if (self.numel() == 0 || self.is_complex() || self.scalar_type() == at::kBool) return std::nullopt;
  const auto order = sorted(self, dim, false);
  if (!order) return std::nullopt;
  const at::Tensor index = median_index(self, dim, ignore_nan);
  return Sorted{order->values.gather(dim, index), order->indices.gather(dim, index)};
}

template <bool kIgnoreNan>
bool median(Outputs &outputs, const at::Tensor &self, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const auto found = median_along(self.dim() ? self : self.unsqueeze(0), dim, kIgnoreNan);
  if (found) give(outputs, *found, dim, keepdim && self.dim());
  return found.has_value();
}

template <bool kIgnoreNan>
bool median_of_all(Outputs &outputs, const at::Tensor &self) {
  const auto found = median_along(self.reshape(-1), 0, kIgnoreNan);
  if (found) outputs.put(0, found->values.squeeze(0));
  return found.has_value();
}

// Returns results for the plugin's own operator; undefined ones for an invalid call, whose error the CPU's function
// reports.
std::tuple<at::Tensor, at::Tensor> empty_mode(const at::Tensor &self, int64_t dim, bool keepdim) {
  if (self.numel() == 0) return {};
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector sizes(self.sizes());
  if (self.dim() && keepdim) sizes[static_cast<size_t>(dim)] = 1;
  if (self.dim() && !keepdim) sizes.erase(sizes.begin() + dim);
  const c10::DeviceIndex device = self.device().index();
  return {make_empty(sizes, self.scalar_type(), device), make_empty(sizes, at::kLong, device)};
}

// ATen's function refuses out-of-tree devices, so the fallback runs.
bool mode(Outputs &, const at::Tensor &, int64_t, bool) { return false; }

// ---- searchsorted, bucketize ----

// `self` may be a number on the host.
bool search(Outputs &outputs, const at::Tensor &sequence, const at::Tensor &self, bool out_int32, bool right,
            std::optional<std::string_view> side, const OptionalTensor &sorter) {
  const at::Tensor order = given_or_undefined(sorter);
  const c10::ScalarType index_dtype = out_int32 ? at::kInt : at::kLong;
  const at::Tensor *given = outputs.given(0);
  const at::Tensor &out = given ? *given : outputs.make(0, self.sizes(), index_dtype, sequence.device());
  at::native::searchsorted_pre_check(sequence, self, out, out_int32, right, side, order);
  if (given) outputs.make(0, self.sizes(), index_dtype, sequence.device());
  if (sequence.dim() == 0) return false;
  if (out.numel() == 0) return true;
  at::Tensor values, ends,
      ranks;  // defined if the argument is not contiguous, which causes a warning, or has another dtype
  at::native::searchsorted_maybe_trim_input_tensors(values, ends, ranks, self, sequence, order);
  if (!values.defined()) values = self;
  if (!ends.defined()) ends = sequence;
  if (!ranks.defined()) ranks = order;
  Call call(HAL_OP_ID_SEARCHSORTED_LINES, ends);
  call.in(ranks.defined() ? ends.gather(-1, ranks) : ends)
      .in(values)
      .put(static_cast<int64_t>(side ? *side == "right" : right));
  return call.indices(out).run();
}

bool search_number(Outputs &outputs, const at::Tensor &sequence, const at::Scalar &self, bool out_int32, bool right,
                   std::optional<std::string_view> side, const OptionalTensor &sorter) {
  return search(outputs, sequence, element_of(self, sequence), out_int32, right, side, sorter);
}

bool bucketize(Outputs &outputs, const at::Tensor &self, const at::Tensor &boundaries, bool out_int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return search(outputs, boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

bool run_sort_stable(const Outputs &outputs, const at::Tensor &self, std::optional<bool>, int64_t dim,
                     bool descending) {
  return !self.is_complex() && sort_into(self, dim, descending, outputs[0], outputs[1]);
}

bool run_topk(const Outputs &outputs, const at::Tensor &self, int64_t k, int64_t dim, bool largest, bool ordered) {
  if (self.is_complex() || self.scalar_type() == at::kBool) return false;
  if (outputs[0].numel() == 0) return true;
  Call call(HAL_OP_ID_TOPK, self);
  call.in(self).put(k).put(at::maybe_wrap_dim(dim, self.dim())).put(int64_t{largest}).put(int64_t{ordered});
  return call.out(outputs[0]).indices(outputs[1]).run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/sort/sort.inc"  // registrations: codegen/operators
