// fallback_scope.cpp: operands of the fallback: converts device tensors to CPU tensors, and copies changes back.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_scope.h"

#include "aten/fallback/fallback_shells.h"
#include "aten/fallback/sparse_parts.h"
#include "aten/prepare/op_call.h"
#include "core/graph/graph.h"
#include "core/tensor_kind.h"

namespace torch_backend {
namespace {

void copy_metadata(c10::TensorImpl *to, const c10::TensorImpl *from) {
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
}

bool same_metadata(const c10::TensorImpl *a, const c10::TensorImpl *b) {
  return a->sizes() == b->sizes() && a->strides() == b->strides() && a->storage_offset() == b->storage_offset();
}

// Returns the name of an operator without its namespace, its overload and the mark of an in-place one.
std::string_view base_name(std::string_view name) {
  if (const size_t at = name.rfind("::"); at != std::string_view::npos) name.remove_prefix(at + 2);
  name = name.substr(0, name.find('.'));
  if (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return name;
}

// Returns whether the last message of the HAL is that a recording refuses the plugin's own operator without `query`.
bool lacks_query(std::string_view op) {
  const std::string_view message = hal_error_message(), before = "own operator '", after = "' has no query";
  const size_t begin = message.find(before), end = message.find(after);
  if (begin == std::string_view::npos || end == std::string_view::npos) return false;
  const size_t name = begin + before.size();
  return base_name(message.substr(name, end - name)) == base_name(op);
}

}  // namespace

at::Tensor make_alias(StorageRef storage, c10::DispatchKey backend, const at::Tensor &like) {
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

FallbackScope::~FallbackScope() {
  for (TensorPair &pair : tensors_) {
    if (C10_UNLIKELY(!is_shell(pair.cpu))) continue;
    if (storages_.forget(pair.cpu.storage().unsafeGetStorageImpl())) give_shell(std::move(pair.cpu));
  }
}

void FallbackScope::set_device(c10::Device device) {
  const c10::DeviceIndex index = checked_index(device);
  if (!operand_device_) device_ = c10::Device(kDevice, index);
}

void FallbackScope::use_device(const at::Tensor &tensor) {
  const c10::Device device = tensor.device();
  if (C10_UNLIKELY(operand_device_ && *operand_device_ != device)) throw_two_devices(*operand_device_, device);
  operand_device_ = device_ = device;
  refuse_in_capture(device.index(), [this] {
    return c10::str("The operator '", op_,
                    "' cannot be captured into a graph: the device has no kernel for these operands, so the CPU would "
                    "compute it on values that are not available yet. ",
                    lacks_query(op_) ? "The plugin's own operator is not recorded, because it has no `query` (op_find)."
                                     : "Call it before or after the capture.");
  });
  storages_.open(device.index());
}

at::Tensor FallbackScope::host_operand(const at::Tensor &tensor, bool written, bool host_allowed) {
  if (tensor.has_storage()) hosts_.push_back(StorageRef::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
  // As in TensorIterator, a number on the host is accepted as any operand, but not as a destination.
  if (!host_allowed && (written || tensor.dim() > 0)) foreign_device_ = tensor.device();
  return tensor;
}

at::Tensor FallbackScope::sparse_to_cpu(const at::Tensor &tensor, bool written) {
  at::Tensor alias = rebuild_sparse(tensor, c10::Device(c10::kCPU),
                                    [&](const at::Tensor &part) { return to_cpu(part, written, false); });
  // The CPU's sparse products compute the data of their backward pass only if an operand requires a gradient.
  if (tensor.requires_grad()) alias.unsafeGetTensorImpl()->set_requires_grad(true);
  tensors_.push_back({tensor, alias, written});
  return alias;
}

at::Tensor FallbackScope::to_cpu(const at::Tensor &tensor, bool written, bool host_allowed) {
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
                              "The operator '", op_, "' has no kernel for ", tensor_kind(tensor),
                              " tensors on device type '", tensor.device().type(),
                              "', and the fallback to the CPU supports strided and sparse ones only.");
  at::Tensor cpu = strided_to_cpu(tensor);
  tensors_.push_back({tensor, cpu, written});
  return cpu;
}

at::Tensor FallbackScope::strided_to_cpu(const at::Tensor &tensor) {
  c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
  at::Tensor shell = storages_.staged() ? at::Tensor() : take_shell(tensor);
  if (C10_UNLIKELY(!shell.defined())) return make_alias(storages_.to_cpu(storage), c10::DispatchKey::CPU, tensor);
  const StorageRef cpu = storages_.to_cpu(storage, StorageRef::reclaim_copy(shell.storage().unsafeGetStorageImpl()));
  // A second view of a storage: its shell releases its own storage.
  if (cpu.get() != shell.storage().unsafeGetStorageImpl()) {
    shell.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(cpu));
  }
  return shell;
}

void FallbackScope::begin(bool whole_storages) {
  if (!operand_device_) return;
  if (C10_UNLIKELY(foreign_device_.has_value())) throw_two_devices(*operand_device_, *foreign_device_);
  for (const TensorPair &pair : tensors_) {
    if (!is_sparse_layout(pair.cpu)) storages_.note_read(pair.cpu.unsafeGetTensorImpl(), whole_storages);
  }
  note_written();
  storages_.load();
}

void FallbackScope::note_written() {
  for (const TensorPair &pair : tensors_) {
    if (pair.written && !is_sparse_layout(pair.cpu)) storages_.note_written(pair.cpu.unsafeGetTensorImpl());
  }
}

void FallbackScope::restore() {
  note_written();
  storages_.store();
  for (size_t i = 0, count = tensors_.size(); i < count; i++) {
    if (tensors_[i].written) restore_metadata(tensors_[i]);
  }
}

void FallbackScope::restore_metadata(TensorPair &pair) {
  if (C10_UNLIKELY(is_sparse_layout(pair.device))) {
    const at::Tensor device = pair.device, cpu = pair.cpu;  // copies, because mapping the parts may move the vector
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
