// sparse_parts.cpp: see sparse_parts.h.
#include "aten/fallback/sparse_parts.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace torch_backend {
namespace {

at::SparseTensorImpl *coo(const at::Tensor &tensor) {
  return static_cast<at::SparseTensorImpl *>(tensor.unsafeGetTensorImpl());
}
at::SparseCsrTensorImpl *compressed(const at::Tensor &tensor) {
  return static_cast<at::SparseCsrTensorImpl *>(tensor.unsafeGetTensorImpl());
}

}  // namespace

void assign_sparse(const at::Tensor &to, const at::Tensor &from, MapPart map) {
  if (from.layout() != c10::kSparse) {
    const auto *source = compressed(from);
    compressed(to)->set_member_tensors(map(source->compressed_indices()), map(source->plain_indices()),
                                       map(source->values()), source->sizes());
    return;
  }
  const auto *source = coo(from);
  coo(to)->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
  coo(to)->set_indices_and_values_unsafe(map(source->indices()), map(source->values()));
  coo(to)->set_coalesced(source->coalesced());
}

at::Tensor rebuild_sparse(const at::Tensor &tensor, c10::Device device, MapPart map) {
  const bool cpu = device.is_cpu();
  const c10::OptionalDeviceGuard guard(device);  // an empty tensor's parts are created on the current device
  at::Tensor result;
  if (tensor.layout() == c10::kSparse) {
    const auto key = cpu ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparsePrivateUse1;
    result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), tensor.dtype());
  } else {
    const auto key = cpu ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrPrivateUse1;
    result = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), device, tensor.layout(),
                                                              tensor.dtype());
  }
  assign_sparse(result, tensor, map);
  return result;
}

}  // namespace torch_backend
