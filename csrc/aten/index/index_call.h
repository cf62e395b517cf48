// index_call.h: calls of the kernels that read and write at the places of an index.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <optional>

#include "aten/prepare/op_call.h"

namespace torch_backend {

// A descriptor with sizes and strides of its own, at least one dimension.
class Strided {
 public:
  explicit Strided(const at::Tensor &tensor);
  // A vector along dimension `dim` of a shape, stride 0 in the others.
  Strided(const at::Tensor &vector, c10::IntArrayRef shape, int64_t dim);
  Strided(const Strided &) = delete;
  Strided &operator=(const Strided &) = delete;

  // Elements as they lie in memory: the dtype becomes the integer of their size (complex128 for 16 bytes).
  Strided &moved();
  // The first elements of each dimension.
  Strided &narrowed(c10::IntArrayRef sizes);
  void insert(size_t at, int64_t size, int64_t stride);
  void erase(size_t first, size_t count);

  int64_t size(size_t d) const { return sizes_[d]; }
  int64_t stride(size_t d) const { return strides_[d]; }
  size_t dim() const { return sizes_.size(); }
  const hal_tensor_t &descriptor();

 private:
  hal_tensor_t tensor_;
  c10::SmallVector<int64_t, 8> sizes_, strides_;
};

// What combines an element with what is there; the numbers of ops.yaml.
enum class Combine : int64_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// result[p] = self at the place of index[p] along `dim`: HAL_OP_ID_GATHER, _INDEX_SELECT, or _INDEX_TENSOR, which takes
// `checked`. Descriptors as the operator's launcher wants them. false = no kernel.
bool run_take(uint32_t op, c10::DeviceIndex device, Strided &result, Strided &self, int64_t dim, Strided &index,
              bool checked = false);

// self at the place of index[p] along `dim` = src[p]: HAL_OP_ID_SCATTER_SRC, _INDEX_COPY or _INDEX_PUT.
bool run_put(uint32_t op, c10::DeviceIndex device, Strided &self, int64_t dim, Strided &index, Strided &src,
             bool checked = false);

// The same combined with what is there, in a dtype of the set `wide`: HAL_OP_ID_SCATTER_REDUCE_TWO, _INDEX_REDUCE,
// _EMBEDDING_DENSE_BACKWARD or __INDEX_PUT_IMPL_.
bool run_combine(uint32_t op, c10::DeviceIndex device, Strided &self, int64_t dim, Strided &index, Strided &src,
                 Combine combine, bool checked = false);

// The dtype that values of a dtype are combined in: float32, float64 or int64; nullopt for complex and exotic ones.
std::optional<c10::ScalarType> combining_dtype(c10::ScalarType dtype);

// Runs `body(self, src)` with both in a dtype that has kernels to combine in: themselves, or copies of which the first
// is written back. Complex sums are sums of parts: the body gets a last dimension more. false = there is no such dtype,
// or the body says so.
bool with_combining_dtype(const at::Tensor &self, const at::Tensor &src, Combine combine,
                          const std::function<bool(const at::Tensor &, const at::Tensor &)> &body);

// An index of int32 or int64 as int64.
at::Tensor long_index(const at::Tensor &index);

}  // namespace torch_backend
