// fallback_alias.cpp: operands of the fallback: device tensors to CPU tensors over the same memory, and changes back.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback_alias.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>

#include "aten/fallback_storage.h"
#include "aten/op_call.h"
#include "aten/sparse_parts.h"

namespace torch_backend {
namespace {

std::atomic<bool> several_streams[HAL_MAX_DEVICES];

void copy_metadata(c10::TensorImpl *to, const c10::TensorImpl *from) {
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
}

bool same_metadata(const c10::TensorImpl *a, const c10::TensorImpl *b) {
  return a->sizes() == b->sizes() && a->strides() == b->strides() && a->storage_offset() == b->storage_offset();
}

}  // namespace

void note_recorded_stream(c10::DeviceIndex device) {
  if (device >= 0 && device < HAL_MAX_DEVICES) several_streams[device].store(true, std::memory_order_relaxed);
}

void wait_for_host_access(c10::DeviceIndex device, const char *op) {
  check(
      hal_device_ensure(device));  // flags are 0 for a device that cannot be used, such as in a forked child: say that
  TORCH_CHECK_NOT_IMPLEMENTED(
      hal_device_flags(device) & HAL_DEVICE_HOST_VISIBLE, "The operator '", op,
      "' has no native kernel for these arguments on ", c10::Device(kDevice, device),
      ", and it cannot fall back to the CPU because the host may not touch the memory of this "
      "device. Move the operands to the CPU with .cpu() for this operation. If the host may read and "
      "write it, the plugin says so by HAL_DEVICE_HOST_VISIBLE in hal_plugin_device_info.");
  if (C10_UNLIKELY(several_streams[device].load(std::memory_order_relaxed))) {
    check(hal_device_synchronize(device));
    return;
  }
  hal_stream_t *stream = nullptr;
  check(hal_stream_current(device, &stream));
  check(hal_stream_synchronize(stream));
}

at::Tensor make_alias(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey backend, const at::Tensor &like) {
  c10::DispatchKeySet keys(backend);
  if (like.is_conj()) keys = keys.add(c10::DispatchKey::Conjugate);
  if (like.is_neg()) keys = keys.add(c10::DispatchKey::Negative);
  if (like._is_zerotensor()) keys = keys.add(c10::DispatchKey::ZeroTensor);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, like.dtype());
  c10::TensorImpl *impl = alias.unsafeGetTensorImpl();
  copy_metadata(impl, like.unsafeGetTensorImpl());
  if (C10_UNLIKELY(like.unsafeGetTensorImpl()->is_wrapped_number())) impl->set_wrapped_number(true);
  return alias;
}

AliasScope::~AliasScope() {
  // A kernel written in Python may have kept an alias. It must not outlive the memory: give it a share of the device
  // storage.
  tensors_.clear();
  for (StoragePair &pair : storages_) {
    if (C10_LIKELY(pair.cpu.use_count() == 1)) continue;
    auto *owner = new StorageRef(pair.device);
    const auto release = [](void *context) { delete static_cast<StorageRef *>(context); };
    pair.cpu->set_data_ptr_noswap(c10::DataPtr(pair.device->mutable_data(), owner, release, c10::Device(c10::kCPU)));
  }
}

void AliasScope::set_device(c10::Device device) {
  const c10::DeviceIndex index = checked_index(device);
  if (!operand_device_) device_ = c10::Device(kDevice, index);
}

void AliasScope::use_device(const at::Tensor &tensor) {
  const c10::Device device = tensor.device();
  if (C10_UNLIKELY(operand_device_ && *operand_device_ != device)) throw_two_devices(*operand_device_, device);
  operand_device_ = device_ = device;
}

AliasScope::StorageRef AliasScope::alias_storage(c10::StorageImpl *storage) {
  for (const StoragePair &pair : storages_) {
    if (pair.device.get() == storage) return pair.cpu;
  }
  void *data = storage->mutable_data();
  const size_t nbytes = storage->nbytes();
  auto alias = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                     c10::DataPtr(data, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
                                                     storage->resizable());
  storages_.push_back({StorageRef::reclaim_copy(storage), alias, data, nbytes});
  return alias;
}

at::Tensor AliasScope::host_operand(const at::Tensor &tensor, bool written, bool host_allowed) {
  if (tensor.has_storage()) hosts_.push_back(StorageRef::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
  // As in TensorIterator, a number that lies on the host is welcome everywhere, but not as a destination.
  if (!host_allowed && (written || tensor.dim() > 0)) foreign_device_ = tensor.device();
  return tensor;
}

at::Tensor AliasScope::sparse_to_cpu(const at::Tensor &tensor, bool written) {
  at::Tensor alias = rebuild_sparse(tensor, c10::Device(c10::kCPU),
                                    [&](const at::Tensor &part) { return to_cpu(part, written, false); });
  // The CPU's sparse products make what their backward needs only if an operand asks for a gradient.
  if (tensor.requires_grad()) alias.unsafeGetTensorImpl()->set_requires_grad(true);
  tensors_.push_back({tensor, alias, written});
  return alias;
}

at::Tensor AliasScope::to_cpu(const at::Tensor &tensor, bool written, bool host_allowed) {
  if (!tensor.defined()) return tensor;
  if (tensor.device().type() != kDevice) return host_operand(tensor, written, host_allowed);
  for (TensorPair &pair : tensors_) {
    if (!pair.device.is_same(tensor)) continue;
    pair.written |= written;
    return pair.cpu;
  }
  use_device(tensor);
  if (C10_UNLIKELY(is_sparse_layout(tensor))) return sparse_to_cpu(tensor, written);
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested(),
                              "The operator '", op_, "' has no kernel for quantized, nested or ", tensor.layout(),
                              " tensors on device type '", tensor.device().type(),
                              "', and the fallback to the CPU takes strided and sparse ones only.");
  at::Tensor alias = make_alias(alias_storage(tensor.storage().unsafeGetStorageImpl()), c10::DispatchKey::CPU, tensor);
  tensors_.push_back({tensor, alias, written});
  return alias;
}

void AliasScope::begin() {
  if (!operand_device_) return;
  if (C10_UNLIKELY(foreign_device_.has_value())) throw_two_devices(*operand_device_, *foreign_device_);
  wait_for_host_access(operand_device_->index(), op_);
}

void AliasScope::restore() {
  for (StoragePair &pair : storages_) {
    const size_t nbytes = pair.cpu->nbytes();
    if (C10_LIKELY(pair.cpu->data() == pair.data && nbytes == pair.nbytes)) continue;
    if (pair.cpu->data() != pair.data) {
      pair.device->set_data_ptr_noswap(take_memory(*pair.cpu, device_->index()));
      // The alias lends again, what it owned until now.
      pair.cpu->set_data_ptr_noswap(c10::DataPtr(pair.device->mutable_data(), c10::Device(c10::kCPU)));
    }
    pair.device->set_nbytes(nbytes);
    pair.data = pair.device->mutable_data();
    pair.nbytes = nbytes;
  }
  for (size_t i = 0, count = tensors_.size(); i < count; i++) {
    if (tensors_[i].written) restore_metadata(tensors_[i]);
  }
}

void AliasScope::restore_metadata(TensorPair &pair) {
  if (C10_UNLIKELY(is_sparse_layout(pair.device))) {
    const at::Tensor device = pair.device, cpu = pair.cpu;  // mapping the parts may move the vector
    assign_sparse(device, cpu, [&](const at::Tensor &part) { return part_to_device(part); });
    return;
  }
  c10::TensorImpl *to = pair.device.unsafeGetTensorImpl(), *from = pair.cpu.unsafeGetTensorImpl();
  c10::StorageImpl *storage = from->unsafe_storage().unsafeGetStorageImpl();
  if (storage) {
    const StorageRef mapped = device_storage(storage, pair.cpu.storage().use_count() == 1);
    if (mapped && mapped.get() != to->unsafe_storage().unsafeGetStorageImpl()) {
      to->set_storage_keep_dtype(c10::Storage(mapped));
    }
  }
  if (!same_metadata(to, from)) copy_metadata(to, from);
  // Some kernels compute the conjugate and then flip the bit of their result (linalg.lu_solve).
  if (pair.device.is_conj() != pair.cpu.is_conj()) pair.device._set_conj(pair.cpu.is_conj());
  if (pair.device.is_neg() != pair.cpu.is_neg()) pair.device._set_neg(pair.cpu.is_neg());
}

}  // namespace torch_backend
