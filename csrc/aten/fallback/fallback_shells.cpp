// fallback_shells.cpp: see fallback_shells.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_shells.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>

#include "aten/prepare/tensor.h"

namespace torch_backend {
namespace {

constexpr c10::DispatchKeySet kBits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                    c10::DispatchKey::ZeroTensor};

// The maximum number of shells per thread, enough for the operands of most operators.
constexpr size_t kKept = 8;

c10::SmallVector<at::Tensor, kKept> &shells() {
  thread_local c10::SmallVector<at::Tensor, kKept> kept;
  return kept;
}

// Returns the key set of a plain CPU tensor outside of inference mode.
c10::DispatchKeySet plain_keys() {
  static const c10::DispatchKeySet keys = [] {
    const c10::InferenceMode off(false);
    const c10::intrusive_ptr<c10::TensorImpl> plain = c10::make_intrusive<c10::TensorImpl>(
        c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(c10::kFloat), c10::Device(c10::kCPU));
    return plain->key_set();
  }();
  return keys;
}

}  // namespace

at::Tensor take_shell(const at::Tensor &like) {
  auto &kept = shells();
  const c10::TensorImpl *source = like.unsafeGetTensorImpl();
  if (kept.empty() || source->key_set().has_any(kBits) || source->is_wrapped_number() ||
      c10::InferenceMode::is_enabled())
    return {};
  at::Tensor shell = std::move(kept.back());
  kept.pop_back();
  c10::TensorImpl *impl = shell.unsafeGetTensorImpl();
  if (impl->dtype() != source->dtype()) impl->set_storage_and_dtype(impl->unsafe_storage(), source->dtype());
  impl->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  return shell;
}

bool is_shell(const at::Tensor &cpu) {
  c10::TensorImpl *impl = cpu.unsafeGetTensorImpl();
  if (cpu.use_count() != 1 || cpu.weak_use_count() != 1 || impl->key_set() != plain_keys() ||
      impl->is_wrapped_number() || impl->autograd_meta() != nullptr || impl->has_symbolic_sizes_strides() ||
      !impl->allow_tensor_metadata_change() || impl->pyobj_slot()->load_pyobj() != nullptr)
    return false;
  c10::StorageImpl *storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return storage != nullptr && storage->allocator() == c10::GetCPUAllocator() &&
         storage->pyobj_slot()->load_pyobj() == nullptr;
}

void give_shell(at::Tensor &&cpu) {
  auto &kept = shells();
  if (kept.size() < kKept)
    kept.push_back(std::move(cpu));
  else
    cpu.reset();
}

}  // namespace torch_backend
