// linear_map.cpp: see linear_map.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/spatial/linear_map.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "aten/copy/copy.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// A map's tables on the device. Uploads of this size do not wait for the device (copy_host.cpp).
struct Tables {
  at::Tensor starts, indices, weights;

  Tables(const LinearMap &map, c10::ScalarType dtype, c10::DeviceIndex device) {
    const auto rows = static_cast<int64_t>(map.starts().size()), terms = static_cast<int64_t>(map.indices().size());
    const at::Tensor numbers(at::detail::empty_cpu({rows + terms}, at::kLong));
    auto *at = numbers.mutable_data_ptr<int64_t>();
    std::copy(map.starts().begin(), map.starts().end(), at);
    std::copy(map.indices().begin(), map.indices().end(), at + rows);
    const at::Tensor factors(at::detail::empty_cpu({terms}, at::kDouble));
    std::copy(map.weights().begin(), map.weights().end(), factors.mutable_data_ptr<double>());
    const at::Tensor moved = make_empty({rows + terms}, at::kLong, device);
    weights = make_empty({terms}, dtype, device);
    copy_from_host(numbers, moved, /*non_blocking=*/false);
    if (terms != 0) copy_from_host(factors, weights, /*non_blocking=*/false);
    starts = moved.narrow(0, 0, rows);
    indices = moved.narrow(0, rows, terms);
  }
};

bool run_map(const at::Tensor &self, const LinearMap &map, int64_t dim, const at::Tensor &result) {
  const c10::DeviceIndex device = self.device().index();
  const Tables tables(map, self.scalar_type(), device);
  Call call(HAL_OP_ID_RESAMPLE, self);
  call.in(self).index(tables.starts).index(tables.indices).in(tables.weights).put(dim);
  return call.out(result).run();
}

// The maps that change something, those that make the tensor smallest first.
std::vector<size_t> order_of(const std::vector<LinearMap> &maps) {
  std::vector<size_t> order;
  for (size_t i = 0; i < maps.size(); i++) {
    if (!maps[i].is_identity()) order.push_back(i);
  }
  const auto growth = [&](size_t i) {
    return static_cast<double>(maps[i].outputs()) / static_cast<double>(maps[i].inputs());
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return growth(a) < growth(b); });
  return order;
}

// `first` is the dimension of maps[0]. `self` and `result` have the dtype of a kernel.
bool apply_real(const at::Tensor &self, const std::vector<LinearMap> &maps, int64_t first, const at::Tensor &result) {
  const std::vector<size_t> order = order_of(maps);
  at::Tensor current = self;
  for (size_t i = 0; i < order.size(); i++) {
    const LinearMap &map = maps[order[i]];
    const int64_t dim = first + static_cast<int64_t>(order[i]);
    at::DimVector sizes(current.sizes());
    sizes[static_cast<size_t>(dim)] = map.outputs();
    const bool last = i + 1 == order.size();
    const at::Tensor next =
        last ? result : make_empty(sizes, self.scalar_type(), self.device().index(), current.suggest_memory_format());
    if (!run_map(current, map, dim, next)) return false;
    current = next;
  }
  if (order.empty()) copy_on_device(self, result);
  return true;
}

}  // namespace

bool LinearMap::is_identity() const {
  if (outputs() != inputs_ || static_cast<int64_t>(indices_.size()) != inputs_) return false;
  for (size_t i = 0; i < indices_.size(); i++) {
    if (starts_[i] != static_cast<int64_t>(i) || indices_[i] != static_cast<int64_t>(i) || weights_[i] != 1)
      return false;
  }
  return true;
}

LinearMap LinearMap::transposed() const {
  LinearMap result(outputs());
  result.starts_.assign(static_cast<size_t>(inputs_) + 1, 0);
  for (const int64_t index : indices_) result.starts_[static_cast<size_t>(index) + 1]++;
  std::partial_sum(result.starts_.begin(), result.starts_.end(), result.starts_.begin());
  result.indices_.resize(indices_.size());
  result.weights_.resize(weights_.size());
  std::vector<int64_t> next(result.starts_.begin(), result.starts_.end() - 1);
  for (int64_t row = 0; row < outputs(); row++) {
    for (int64_t t = starts_[static_cast<size_t>(row)]; t < starts_[static_cast<size_t>(row) + 1]; t++) {
      const auto place = static_cast<size_t>(next[static_cast<size_t>(indices_[static_cast<size_t>(t)])]++);
      result.indices_[place] = row;
      result.weights_[place] = weights_[static_cast<size_t>(t)];
    }
  }
  return result;
}

std::vector<LinearMap> transposed(const std::vector<LinearMap> &maps) {
  std::vector<LinearMap> result;
  for (const LinearMap &map : maps) result.push_back(map.transposed());
  return result;
}

bool apply_maps(const at::Tensor &self, const std::vector<LinearMap> &maps, const at::Tensor &result) {
  const c10::DeviceIndex device = result.device().index();
  const c10::ScalarType dtype = result.scalar_type();
  const auto number = computing_dtype(device, HAL_OP_ID_RESAMPLE, c10::toRealValueType(dtype));
  if (!number || self.scalar_type() != dtype) return false;
  if (result.numel() == 0) return true;
  const bool parts = c10::isComplexType(dtype);
  const c10::ScalarType computing = parts ? dtype : *number;
  const at::Tensor source = prepared(self, computing, Layout::kStrided, device);
  const Destination target(result, computing, overlaps(source, result, true));
  const auto numbers = [parts](const at::Tensor &tensor) { return parts ? at::view_as_real(tensor) : tensor; };
  const int64_t first = self.dim() - static_cast<int64_t>(maps.size());
  if (!apply_real(numbers(source), maps, first, numbers(target.tensor()))) return false;
  target.finish();
  return true;
}

}  // namespace torch_backend
