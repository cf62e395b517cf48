// fallback_results.cpp: results of the fallback: converts CPU tensors to device tensors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_scope.h"
#include "aten/fallback/sparse_parts.h"
#include "aten/prepare/op_call.h"
#include "core/tensor_kind.h"

namespace torch_backend {

bool FallbackScope::is_host_storage(const c10::StorageImpl *storage) const {
  for (const StorageRef &host : hosts_) {
    if (host.get() == storage) return true;
  }
  return false;
}

StorageRef FallbackScope::device_storage(c10::StorageImpl *storage, bool exclusive) {
  if (StorageRef mapped = storages_.to_device(storage)) return mapped;
  for (const Fresh &pair : fresh_) {
    if (pair.cpu.get() == storage) return pair.device;
  }
  if (is_host_storage(storage)) return {};
  // A storage that has other references than the results (a kernel's cache) keeps its memory; the device gets a copy.
  const c10::DeviceIndex index = device_->index();
  const size_t nbytes = storage->nbytes();
  auto fresh = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes,
      exclusive ? take_memory(*storage, index) : copy_memory(*storage, index), allocator(), true);
  fresh_.push_back({StorageRef::reclaim_copy(storage), fresh});
  return fresh;
}

at::Tensor FallbackScope::part_to_device(const at::Tensor &part) {
  if (!part.defined() || is_sparse_layout(part)) return to_device(part, false);
  // Referenced by its sparse tensor and by the caller.
  return to_device(part, part.use_count() <= 2 && part.storage().use_count() == 1);
}

at::Tensor FallbackScope::to_device(const at::Tensor &result, bool exclusive) {
  if (!result.defined() || !device_) return result;
  for (const TensorPair &pair : tensors_) {
    if (pair.cpu.is_same(result)) return pair.device;
  }
  if (!result.device().is_cpu()) return result;
  if (C10_UNLIKELY(is_sparse_layout(result))) {
    return rebuild_sparse(result, *device_, [&](const at::Tensor &part) { return part_to_device(part); });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided && !result.is_quantized() && !result.is_nested(),
                              "The operator '", op_, "' returns a ", tensor_kind(result),
                              " tensor, which device type '", kDevice, "' does not support. ",
                              result.is_quantized() ? kInsteadOfQuantized : "");
  StorageRef mapped = device_storage(result.storage().unsafeGetStorageImpl(), exclusive);
  if (!mapped) return result;
  return make_alias(std::move(mapped), c10::DispatchKey::PrivateUse1, result);
}

}  // namespace torch_backend
