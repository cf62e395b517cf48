// linear_map.h: sparse linear maps along dimensions of a tensor. Averages over windows, interpolation, and padding by
// reflection or replication are such maps along each spatial dimension in turn; their backwards are the transposed ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch_backend {

// A sparse matrix, made row by row: row o says what element o of the result sums.
class LinearMap {
 public:
  explicit LinearMap(int64_t inputs) : inputs_(inputs) {}

  void add(int64_t input, double weight) {
    indices_.push_back(input);
    weights_.push_back(weight);
  }
  void end_row() { starts_.push_back(static_cast<int64_t>(indices_.size())); }

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return static_cast<int64_t>(starts_.size()) - 1; }
  bool is_identity() const;
  LinearMap transposed() const;

  const std::vector<int64_t> &starts() const { return starts_; }
  const std::vector<int64_t> &indices() const { return indices_; }
  const std::vector<double> &weights() const { return weights_; }

 private:
  int64_t inputs_;
  std::vector<int64_t> starts_{0}, indices_;
  std::vector<double> weights_;
};

// The maps of the last `dims` dimensions: what `map(d, in, out)` gives for each, of tensors of these sizes.
template <class Map>
std::vector<LinearMap> maps_along(size_t dims, c10::IntArrayRef input, c10::IntArrayRef result, const Map &map) {
  std::vector<LinearMap> maps;
  for (size_t d = 0; d < dims; d++)
    maps.push_back(map(d, input[input.size() - dims + d], result[result.size() - dims + d]));
  return maps;
}

std::vector<LinearMap> transposed(const std::vector<LinearMap> &maps);

// Applies maps to the last dimensions of `self`, one each, and writes `result`, whose sizes are right. float16 and
// bfloat16 are computed in float32, complex numbers as pairs. false = no kernel for the dtype, nothing was written.
bool apply_maps(const at::Tensor &self, const std::vector<LinearMap> &maps, const at::Tensor &result);

}  // namespace torch_backend
