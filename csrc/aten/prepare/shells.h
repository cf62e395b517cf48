// shells.h: the bodies of structured operators that codegen registers (`shells` of codegen/ops.yaml), as structured_body.h
// asks for them.
#pragma once

#include <string_view>

#include "aten/prepare/structured_body.h"

namespace torch_backend {

// The first output with the elements of `self`, which bodies that change some of them start from.
inline const at::Tensor &started(const Outputs &outputs, const at::Tensor &self) {
  const at::Tensor &result = outputs[0];
  if (!result.is_same(self)) result.copy_(self);
  return result;
}

bool run_gather(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index, bool sparse_grad);
bool run_scatter_src(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src);
bool run_scatter_value(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                       const at::Scalar &value);
bool run_scatter_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                        const at::Tensor &src, std::string_view reduce);
bool run_scatter_value_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                              const at::Scalar &value, std::string_view reduce);
bool run_scatter_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src);
bool run_scatter_reduce_two(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                            const at::Tensor &src, std::string_view reduce, bool include_self);
bool run_index_add(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                   const at::Tensor &source, const at::Scalar &alpha);
bool run_index_copy(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                    const at::Tensor &source);
bool run_index_reduce(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                      const at::Tensor &source, std::string_view reduce, bool include_self);
bool run_cumsum(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType> dtype);
bool run_cumprod(const Outputs &outputs, const at::Tensor &self, int64_t dim, std::optional<c10::ScalarType> dtype);
bool run_sort_stable(const Outputs &outputs, const at::Tensor &self, std::optional<bool> stable, int64_t dim,
                     bool descending);
bool run_topk(const Outputs &outputs, const at::Tensor &self, int64_t k, int64_t dim, bool largest, bool sorted);

}  // namespace torch_backend
