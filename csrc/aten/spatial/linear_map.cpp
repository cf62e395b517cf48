// linear_map.cpp: see linear_map.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/spatial/linear_map.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <numeric>

#include "aten/copy/copy.h"
#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// A part of a tensor of words as a vector.
at::Tensor vector_in(const at::Tensor &whole, int64_t word, int64_t count, c10::ScalarType dtype) {
  auto part = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(whole.storage()), kKeySet,
                                                       c10::scalarTypeToTypeMeta(dtype));
  part.unsafeGetTensorImpl()->set_storage_offset(word * 8 / static_cast<int64_t>(c10::elementSize(dtype)));
  part.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  return part;
}

// A map's starts, indices and weights on the device, as the kernel reads them.
struct Table {
  at::Tensor starts, indices, weights;
};

template <typename T>
int64_t count(const std::vector<T> &vector) {
  return static_cast<int64_t>(vector.size());
}

// The tables of several maps, which come to the device by one upload of words.
template <typename Weight>
c10::SmallVector<Table, 3> tables_of(c10::ArrayRef<const LinearMap *> maps, c10::ScalarType dtype,
                                     c10::DeviceIndex device) {
  constexpr int64_t kWord = sizeof(int64_t), kShare = kWord / sizeof(Weight);
  int64_t words = 0, at = 0;
  for (const LinearMap *map : maps)
    words += count(map->starts()) + count(map->indices()) + (count(map->weights()) + kShare - 1) / kShare;
  c10::SmallVector<Table, 3> tables;
  if (words == 0) return tables;
  HostBuffer buffer = host_buffer(static_cast<size_t>(words * kWord));
  const at::Tensor moved = make_empty({words}, at::kLong, device);
  for (const LinearMap *map : maps) {
    const int64_t rows = count(map->starts()), terms = count(map->indices());
    int64_t *const to = static_cast<int64_t *>(buffer.get()) + at;
    std::copy(map->starts().begin(), map->starts().end(), to);
    std::copy(map->indices().begin(), map->indices().end(), to + rows);
    std::copy(map->weights().begin(), map->weights().end(), reinterpret_cast<Weight *>(to + rows + terms));
    tables.push_back({vector_in(moved, at, rows, at::kLong), vector_in(moved, at + rows, terms, at::kLong),
                      vector_in(moved, at + rows + terms, terms, dtype)});
    at += rows + terms + (terms + kShare - 1) / kShare;
  }
  upload_buffer(std::move(buffer), moved);
  return tables;
}

bool run_map(const at::Tensor &self, const Table &tables, int64_t dim, const at::Tensor &result) {
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
  c10::SmallVector<const LinearMap *, 3> ordered;
  for (const size_t i : order) ordered.push_back(&maps[i]);
  const bool wide = self.scalar_type() == at::kDouble;
  const auto tables =
      (wide ? tables_of<double> : tables_of<float>)(ordered, wide ? at::kDouble : at::kFloat, self.device().index());
  at::Tensor current = self;
  for (size_t i = 0; i < order.size(); i++) {
    const LinearMap &map = maps[order[i]];
    const int64_t dim = first + static_cast<int64_t>(order[i]);
    at::DimVector sizes(current.sizes());
    sizes[static_cast<size_t>(dim)] = map.outputs();
    const bool last = i + 1 == order.size();
    const at::Tensor next =
        last ? result : make_empty(sizes, self.scalar_type(), self.device().index(), current.suggest_memory_format());
    if (!run_map(current, tables[i], dim, next)) return false;
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
