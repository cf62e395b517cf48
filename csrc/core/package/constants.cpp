// constants.cpp: see constants.h.
#include "core/package/constants.h"

#include <ATen/ops/empty_strided.h>

#include <sstream>

namespace torch_backend {
namespace package {
namespace {

std::vector<int64_t> numbers(const std::string &text) {
  std::vector<int64_t> result;
  std::istringstream stream(text);
  for (std::string number; std::getline(stream, number, ',');)
    if (!number.empty()) result.push_back(std::stoll(number));
  return result;
}

void check_tensor(const Constant &constant, const at::Tensor &tensor) {
  TORCH_CHECK(tensor.scalar_type() == constant.dtype, "constant '", constant.name, "' of the package has dtype ",
              constant.dtype, ", and the given tensor has ", tensor.scalar_type(), ". Convert it with .to().");
  TORCH_CHECK(!constant.has_layout || tensor.sizes() == constant.sizes, "constant '", constant.name,
              "' of the package has shape ", at::IntArrayRef(constant.sizes), ", and the given tensor has ",
              tensor.sizes(), ". Compile the package again for the other shape.");
}

bool has_layout(const Constant &constant, const at::Tensor &tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1 && tensor.stride(i) != constant.strides[i]) return false;
  return true;
}

bool is_whole_storage(const at::Tensor &tensor) {
  return tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() <= static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

}  // namespace

void read_layout(const std::string &line, Constants &constants) {
  const size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos) return;
  const auto found = constants.find(line.substr(0, first));
  if (found == constants.end()) return;
  found->second.sizes = numbers(line.substr(first + 1, second - first - 1));
  found->second.strides = numbers(line.substr(second + 1));
  found->second.has_layout = found->second.sizes.size() == found->second.strides.size();
}

Given::Given(const Constants &constants, const torch::inductor::TensorConstantMap &map, bool uses_tensors) {
  copies_.reserve(map.size());
  for (const auto &[name, tensor] : map) {
    map_[name] = tensor;
    const auto found = constants.find(name);
    if (found == constants.end()) continue;  // torch ignores it
    const Constant &constant = found->second;
    check_tensor(constant, *tensor);
    const bool fits = !constant.has_layout || has_layout(constant, *tensor);
    TORCH_CHECK(fits || !uses_tensors, "constant '", constant.name, "' of the package has strides ",
                at::IntArrayRef(constant.strides), ", and the given tensor, which the package is to use itself, has ",
                tensor->strides(), ". Pass a tensor with these strides, or leave out user_managed.");
    if (uses_tensors || (fits && is_whole_storage(*tensor))) continue;
    const at::IntArrayRef strides = constant.has_layout ? at::IntArrayRef(constant.strides) : tensor->strides();
    copies_.push_back(at::empty_strided(tensor->sizes(), strides, tensor->options()));
    copies_.back().copy_(*tensor);
    map_[name] = &copies_.back();
  }
}

}  // namespace package
}  // namespace torch_backend
