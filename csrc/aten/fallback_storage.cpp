// fallback_storage.cpp: results of the fallback: from CPU storages to device tensors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback_storage.h"

#include "aten/fallback_alias.h"
#include "aten/op_call.h"
#include "aten/sparse_parts.h"

namespace torch_backend {
namespace {

// Copies host memory into a new block and waits: the host memory may be gone after return.
c10::DataPtr copy_to_block(const void *data, size_t nbytes, c10::DeviceIndex device) {
  c10::DataPtr block = allocate(nbytes, device);
  if (!nbytes) return block;
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(device, &stream));
  check(hal_memory_copy(stream, block.get(), device, data, HAL_HOST, nbytes));
  check(hal_stream_synchronize(stream));
  return block;
}

bool unified(c10::DeviceIndex device) { return hal_device_flags(device) & HAL_DEVICE_UNIFIED; }

}  // namespace

c10::DataPtr take_memory(c10::StorageImpl &cpu, c10::DeviceIndex device) {
  const size_t nbytes = cpu.nbytes();
  c10::DataPtr memory = cpu.set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  if (!memory.get()) return allocate(0, device);
  return unified(device) ? adopt(std::move(memory), nbytes, device) : copy_to_block(memory.get(), nbytes, device);
}

bool AliasScope::is_host_storage(const c10::StorageImpl *storage) const {
  for (const StorageRef &host : hosts_) {
    if (host.get() == storage) return true;
  }
  return false;
}

AliasScope::StorageRef AliasScope::device_storage(c10::StorageImpl *storage, bool exclusive) {
  for (const StoragePair &pair : storages_) {
    if (pair.cpu.get() == storage) return pair.device;
  }
  for (const Adopted &pair : adopted_) {
    if (pair.cpu.get() == storage) return pair.device;
  }
  if (is_host_storage(storage)) return {};
  // A storage that somebody beside the results holds (a kernel's cache) keeps its memory; the device gets a copy.
  const c10::DeviceIndex index = device_->index();
  const size_t nbytes = storage->nbytes();
  auto fresh = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes,
      exclusive ? take_memory(*storage, index) : copy_to_block(storage->data(), nbytes, index), allocator(), true);
  adopted_.push_back({StorageRef::reclaim_copy(storage), fresh});
  return fresh;
}

at::Tensor AliasScope::part_to_device(const at::Tensor &part) {
  if (!part.defined() || is_sparse_layout(part)) return to_device(part, false);
  // Held by its sparse tensor and by our caller.
  return to_device(part, part.use_count() <= 2 && part.storage().use_count() == 1);
}

at::Tensor AliasScope::to_device(const at::Tensor &result, bool exclusive) {
  if (!result.defined() || !device_) return result;
  for (const TensorPair &pair : tensors_) {
    if (pair.cpu.is_same(result)) return pair.device;
  }
  if (!result.device().is_cpu()) return result;
  if (C10_UNLIKELY(is_sparse_layout(result))) {
    return rebuild_sparse(result, *device_, [&](const at::Tensor &part) { return part_to_device(part); });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided && !result.is_quantized() && !result.is_nested(),
                              "The operator '", op_, "' gives a quantized, nested or ", result.layout(),
                              " tensor, which device type '", kDevice, "' does not have.");
  StorageRef mapped = device_storage(result.storage().unsafeGetStorageImpl(), exclusive);
  if (!mapped) return result;
  return make_alias(std::move(mapped), c10::DispatchKey::PrivateUse1, result);
}

}  // namespace torch_backend
