// sort.cpp: operators that order elements: sort, topk, kthvalue, median and searches in sorted rows. Sorting is stable,
// and NaN is the largest element.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/kthvalue_ops.h>
#include <ATen/ops/median_ops.h>
#include <ATen/ops/nanmedian_ops.h>
#include <ATen/ops/searchsorted_ops.h>
#include <torch/library.h>

#include <tuple>

#include "aten/fallback/fallback_call.h"
#include "aten/index/index_call.h"
#include "aten/prepare/shells.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Sorts along `dim` into both results, of self's shape. false = no kernel.
bool sort_into(const at::Tensor &self, int64_t dim, bool descending, const at::Tensor &values,
               const at::Tensor &indices) {
  const auto dtype = combining_dtype(self.scalar_type());
  const c10::DeviceIndex device = self.device().index();
  if (self.numel() == 0) return true;
  if (!dtype || !has_kernel(device, HAL_OP_ID_SORT_STABLE, *dtype)) return false;
  const at::Tensor operand = prepare_operand(self, *dtype, device);
  const Destination out(values, *dtype, shares_storage(values, operand, true));
  const Destination places(indices, at::kLong, shares_storage(indices, operand, true));
  Strided target(out.tensor()), source(operand), where(places.tensor());
  const bool narrow = *dtype == at::kLong;
  // uint8 and bool need a bit more than their size for what is below zero.
  const int64_t bits = narrow && self.itemsize() < 8
                           ? 8 * static_cast<int64_t>(self.itemsize()) + (self.scalar_type() == at::kByte)
                           : 64;
  const hal_value_t args[] = {value(source.descriptor()), value(at::maybe_wrap_dim(dim, self.dim())),
                              value(static_cast<int64_t>(descending)), value(bits)};
  const hal_tensor_t *const results[] = {&target.descriptor(), &where.descriptor()};
  if (!run_op(device, HAL_OP_ID_SORT_STABLE, args, results)) return false;
  out.finish();
  places.finish();
  return true;
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

// Puts what was chosen along `dim` (size 1 there) into given results.
void give(const at::Tensor &chosen, int64_t dim, bool keepdim, const at::Tensor &result) {
  const at::Tensor shaped = keepdim || chosen.dim() == 0 ? chosen : chosen.squeeze(dim);
  at::native::resize_output(result, shaped.sizes());
  result.copy_(shaped);
}

void check_results(const char *name, const at::Tensor &self, const at::Tensor &values, const at::Tensor &indices) {
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), name, "(): Expected out tensor to have dtype ",
              self.scalar_type(), ", but got ", values.scalar_type(), " instead");
  TORCH_CHECK(indices.scalar_type() == at::kLong, name, "(): Expected out tensor to have dtype Long, but got ",
              indices.scalar_type(), " instead");
  for (const at::Tensor *tensor : {&values, &indices})
    if (tensor->device() != self.device()) throw_two_devices(self.device(), tensor->device());
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
  at::assert_no_overlap(values, indices);
}

std::tuple<at::Tensor &, at::Tensor &> kthvalue_out(const at::Tensor &self, int64_t k, int64_t dim, bool keepdim,
                                                    at::Tensor &values, at::Tensor &indices) {
  const int64_t given = dim;
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.dim() ? self.size(dim) : 1;
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ", dim);
  check_results("kthvalue", self, values, indices);
  const auto order = self.numel() && !self.is_complex() ? sorted(self, dim, false) : std::nullopt;
  if (!order) return call_fallback<at::_ops::kthvalue_values>(self, k, given, keepdim, values, indices);
  const auto pick = [&](const at::Tensor &all) { return all.dim() ? all.narrow(dim, k - 1, 1) : all; };
  give(pick(order->values), dim, keepdim, values);
  give(pick(order->indices), dim, keepdim, indices);
  return {values, indices};
}

// ---- medians: the lower one of two, NaN first or ignored ----

// The sorted elements' place of each row's median, size 1 along `dim`.
at::Tensor median_place(const at::Tensor &self, int64_t dim, bool ignore_nan) {
  const int64_t n = self.size(dim);
  at::DimVector sizes(self.sizes());
  sizes[static_cast<size_t>(dim)] = 1;
  const auto options = self.options().dtype(at::kLong);
  if (!self.is_floating_point()) return at::full(sizes, (n - 1) / 2, options);
  const at::Tensor nans = self.ne(self).sum(dim, /*keepdim=*/true);
  if (ignore_nan) return nans.neg().add(n - 1).to(at::kDouble).mul(0.5).floor().to(at::kLong).clamp_min(0);
  return at::full(sizes, (n - 1) / 2, options).masked_fill(nans.gt(0), 0).add(nans.neg().add(n).mul(nans.gt(0)));
}

std::optional<Sorted> median_along(const at::Tensor &self, int64_t dim, bool ignore_nan) {
  const auto order = sorted(self, dim, false);
  if (!order) return std::nullopt;
  const at::Tensor place = median_place(self, dim, ignore_nan);
  return Sorted{order->values.gather(dim, place), order->indices.gather(dim, place)};
}

template <class Op>
std::tuple<at::Tensor &, at::Tensor &> median_dim_out(const at::Tensor &self, int64_t dim, bool keepdim,
                                                      at::Tensor &values, at::Tensor &indices, bool ignore_nan) {
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  check_results("median", self, values, indices);
  if (self.numel() == 0 || self.is_complex() || self.scalar_type() == at::kBool)
    return call_fallback<Op>(self, dim, keepdim, values, indices);
  const auto median = median_along(self.dim() ? self : self.unsqueeze(0), wrapped, ignore_nan);
  if (!median) return call_fallback<Op>(self, dim, keepdim, values, indices);
  const bool keeps = keepdim && self.dim();
  give(median->values, wrapped, keeps, values);
  give(median->indices, wrapped, keeps, indices);
  return {values, indices};
}

std::tuple<at::Tensor &, at::Tensor &> median_out(const at::Tensor &self, int64_t dim, bool keepdim, at::Tensor &values,
                                                  at::Tensor &indices) {
  return median_dim_out<at::_ops::median_dim_values>(self, dim, keepdim, values, indices, false);
}

std::tuple<at::Tensor &, at::Tensor &> nanmedian_out(const at::Tensor &self, int64_t dim, bool keepdim,
                                                     at::Tensor &values, at::Tensor &indices) {
  return median_dim_out<at::_ops::nanmedian_dim_values>(self, dim, keepdim, values, indices, true);
}

template <class Op>
at::Tensor median_of_all(const at::Tensor &self, bool ignore_nan) {
  if (self.numel() == 0 || self.is_complex() || self.scalar_type() == at::kBool) return call_fallback<Op>(self);
  const auto median = median_along(self.reshape(-1), 0, ignore_nan);
  return median ? median->values.squeeze(0) : call_fallback<Op>(self);
}

at::Tensor median(const at::Tensor &self) { return median_of_all<at::_ops::median>(self, false); }
at::Tensor nanmedian(const at::Tensor &self) { return median_of_all<at::_ops::nanmedian>(self, true); }

// ---- searchsorted, bucketize ----

// The places of `self` in rows that are sorted; nullopt = no kernel.
std::optional<at::Tensor> search(const at::Tensor &sequence, const at::Tensor &self, bool right, bool out_int32) {
  const auto dtype = combining_dtype(sequence.scalar_type());
  const c10::DeviceIndex device = sequence.device().index();
  if (!dtype || self.device() != sequence.device() || sequence.dim() == 0) return std::nullopt;
  at::Tensor result = make_empty(self.sizes(), at::kLong, device);
  if (self.numel() != 0) {
    const at::Tensor rows = prepare_operand(sequence, *dtype, device), values = prepare_operand(self, *dtype, device);
    Strided from(rows), what(values), out(result);
    const hal_value_t args[] = {value(from.descriptor()), value(what.descriptor()), value(static_cast<int64_t>(right))};
    const hal_tensor_t *const results[] = {&out.descriptor()};
    if (!run_op(device, HAL_OP_ID_SEARCHSORTED_TENSOR, args, results)) return std::nullopt;
  }
  return out_int32 ? result.to(at::kInt) : result;
}

bool searches_right(bool right, std::optional<std::string_view> side) { return side ? *side == "right" : right; }

at::Tensor search_in_rows(const at::Tensor &sequence, const at::Tensor &self, bool out_int32, bool right,
                          std::optional<std::string_view> side, const std::optional<at::Tensor> &sorter) {
  const at::Tensor order = sorter && sorter->defined() ? *sorter : at::Tensor();
  const at::Tensor out = make_empty({0}, out_int32 ? at::kInt : at::kLong, sequence.device().index());
  at::native::searchsorted_pre_check(sequence, self, out, out_int32, right, side, order);
  const at::Tensor rows = order.defined() ? sequence.gather(-1, order) : sequence;
  if (auto result = search(rows, self, searches_right(right, side), out_int32)) return *result;
  return call_fallback<at::_ops::searchsorted_Tensor>(sequence, self, out_int32, right, side, sorter);
}

at::Tensor &searchsorted_out(const at::Tensor &sequence, const at::Tensor &self, bool out_int32, bool right,
                             std::optional<std::string_view> side, const std::optional<at::Tensor> &sorter,
                             at::Tensor &result) {
  const at::Tensor order = sorter && sorter->defined() ? *sorter : at::Tensor();
  at::native::searchsorted_pre_check(sequence, self, result, out_int32, right, side, order);
  const at::Tensor places = search_in_rows(sequence, self, out_int32, right, side, sorter);
  at::native::resize_output(result, places.sizes());
  return result.copy_(places);
}

at::Tensor searchsorted_scalar(const at::Tensor &sequence, const at::Scalar &self, bool out_int32, bool right,
                               std::optional<std::string_view> side, const std::optional<at::Tensor> &sorter) {
  at::Tensor element = make_empty({}, sequence.scalar_type(), sequence.device().index());
  element.fill_(self);
  return search_in_rows(sequence, element, out_int32, right, side, sorter);
}

at::Tensor bucketize(const at::Tensor &self, const at::Tensor &boundaries, bool out_int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return search_in_rows(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

}  // namespace

bool run_sort_stable(const Outputs &outputs, const at::Tensor &self, std::optional<bool>, int64_t dim,
                     bool descending) {
  return !self.is_complex() && sort_into(self, dim, descending, outputs[0], outputs[1]);
}

bool run_topk(const Outputs &outputs, const at::Tensor &self, int64_t k, int64_t dim, bool largest, bool ordered) {
  const auto dtype = combining_dtype(self.scalar_type());
  const c10::DeviceIndex device = self.device().index();
  if (self.is_complex() || self.scalar_type() == at::kBool) return false;
  if (outputs[0].numel() == 0) return true;
  if (!dtype || !has_kernel(device, HAL_OP_ID_TOPK, *dtype)) return false;
  const at::Tensor operand = prepare_operand(self, *dtype, device);
  const Destination out(outputs[0], *dtype, shares_storage(outputs[0], operand, true));
  const Destination places(outputs[1], at::kLong, shares_storage(outputs[1], operand, true));
  Strided target(out.tensor()), source(operand), where(places.tensor());
  const hal_value_t args[] = {value(source.descriptor()), value(k), value(at::maybe_wrap_dim(dim, self.dim())),
                              value(static_cast<int64_t>(largest)), value(static_cast<int64_t>(ordered))};
  const hal_tensor_t *const results[] = {&target.descriptor(), &where.descriptor()};
  if (!run_op(device, HAL_OP_ID_TOPK, args, results)) return false;
  out.finish();
  places.finish();
  return true;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("kthvalue.values", TORCH_FN(kthvalue_out));
  m.impl("median", TORCH_FN(median));
  m.impl("median.dim_values", TORCH_FN(median_out));
  m.impl("nanmedian", TORCH_FN(nanmedian));
  m.impl("nanmedian.dim_values", TORCH_FN(nanmedian_out));
  m.impl("searchsorted.Tensor", TORCH_FN(search_in_rows));
  m.impl("searchsorted.Tensor_out", TORCH_FN(searchsorted_out));
  m.impl("searchsorted.Scalar", TORCH_FN(searchsorted_scalar));
  m.impl("bucketize.Tensor", TORCH_FN(bucketize));
}

}  // namespace torch_backend
