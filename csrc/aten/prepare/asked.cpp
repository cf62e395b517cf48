// asked.cpp: see asked.h.
#include "aten/prepare/asked.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>

namespace torch_backend::asked {

at::Tensor meta_of(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.device().type() != kDevice) return tensor;
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

std::vector<at::Tensor> meta_of(const at::ITensorListRef &list) {
  std::vector<at::Tensor> metas;
  for (const at::Tensor &tensor : list) metas.push_back(meta_of(tensor));
  return metas;
}

std::vector<at::Tensor> meta_of(const at::TensorList &list) { return meta_of(at::ITensorListRef(list)); }

c10::List<std::optional<at::Tensor>> meta_of(const c10::List<std::optional<at::Tensor>> &list) {
  c10::List<std::optional<at::Tensor>> metas;
  for (const std::optional<at::Tensor> tensor : list) metas.push_back(meta_of(tensor));
  return metas;
}

void allocate(Results &results, c10::DeviceIndex device) {
  for (at::Tensor &result : results) {
    if (!result.defined()) continue;
    result = make_empty_strided(result.sizes(), result.strides(), result.scalar_type(), device);
  }
}

bool fit(const Results &metas, c10::ArrayRef<at::Tensor> given) {
  if (metas.size() != given.size()) return false;
  for (size_t i = 0; i < given.size(); i++)
    if (!metas[i].defined() || metas[i].scalar_type() != given[i].scalar_type()) return false;
  for (size_t i = 0; i < given.size(); i++) at::native::resize_output(given[i], metas[i].sizes());
  return true;
}

bool fill(VendorCall &call, uint32_t op, c10::ArrayRef<at::Tensor> results) {
  Results written;
  for (const at::Tensor &result : results) {
    written.push_back(call.reads(result) ? at::empty_like(result) : result);
    call.add_result(written.back());
  }
  if (!call.run(op)) return false;
  for (size_t i = 0; i < results.size(); i++)
    if (!written[i].is_same(results[i])) results[i].copy_(written[i]);
  return true;
}

}  // namespace torch_backend::asked
