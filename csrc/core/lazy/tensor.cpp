// tensor.cpp: see tensor.h.
#include "core/lazy/tensor.h"

#include <atomic>
#include <typeinfo>
#include <utility>

#include "core/tensor_kind.h"

namespace torch_backend {
namespace {

// AutocastXLA: see csrc/lazy/autocast.cpp.
constexpr c10::DispatchKeySet kKeys({c10::DispatchKey::Lazy, c10::DispatchKey::AutocastXLA});

std::atomic<uint64_t> created, destroyed;

c10::Device lazy_device(const at::Tensor &inner) { return c10::Device(kLazyType, inner.device().index()); }

}  // namespace

LazyTensorImpl::LazyTensorImpl(at::Tensor inner, c10::ScalarType reported)
    : c10::TensorImpl(kKeys, c10::scalarTypeToTypeMeta(reported), lazy_device(inner)),
      inner_(std::move(inner)),
      computed_(inner_.scalar_type()) {
  set_storage_access_should_throw();
  if (C10_UNLIKELY(is_inference() != inner_.is_inference())) change_mode();
  refresh();
  created.fetch_add(1, std::memory_order_relaxed);
}

void LazyTensorImpl::change_mode() {
  if (inner_.is_inference()) {
    key_set_ = key_set_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    version_counter_ = c10::VariableVersion();
  } else {
    key_set_ = key_set_ | c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::LazyBit);
    version_counter_ = c10::VariableVersion(0);
  }
}

LazyTensorImpl::~LazyTensorImpl() { destroyed.fetch_add(1, std::memory_order_relaxed); }

LazyTensorCounts lazy_tensor_counts() {
  // read first, so that it does not exceed the number created
  const uint64_t gone = destroyed.load(std::memory_order_relaxed);
  return {created.load(std::memory_order_relaxed), gone};
}

void LazyTensorImpl::refresh() {
  constexpr c10::DispatchKeySet lazy_bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  set_sizes_contiguous(inner_.sizes());
  const int64_t offset = inner_.storage_offset();
  set_storage_offset(offset == 0 || inner_.is_contiguous() ? offset : 0);  // as_strided counts from this offset
  if (C10_UNLIKELY((key_set() | inner_.key_set()).has_any(lazy_bits))) {
    _set_conj(inner_.is_conj());  // torch's handlers of these bits use the wrapper
    _set_neg(inner_.is_neg());
  }
  if (C10_UNLIKELY(inner_.scalar_type() != computed_)) data_type_ = inner_.dtype();
  computed_ = inner_.scalar_type();
  if (inner_.dim() == 0) set_wrapped_number(inner_.unsafeGetTensorImpl()->is_wrapped_number());
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> LazyTensorImpl::copied(Version &&version, bool allow_tensor_metadata_change) const {
  auto copy = c10::make_intrusive<LazyTensorImpl>(inner_, data_type_.toScalarType());
  if (!copy->is_inference()) copy->set_version_counter(std::forward<Version>(version));
  copy->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensorImpl::shallow_copy_and_detach(const c10::VariableVersion &version,
                                                                            bool allow_tensor_metadata_change) const {
  return copied(version, allow_tensor_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensorImpl::shallow_copy_and_detach(c10::VariableVersion &&version,
                                                                            bool allow_tensor_metadata_change) const {
  return copied(std::move(version), allow_tensor_metadata_change);
}

void LazyTensorImpl::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl> &other) {
  const auto &lazy = *static_cast<const LazyTensorImpl *>(other.get());
  inner_ = lazy.inner_;
  data_type_ = lazy.data_type_;
  computed_ = lazy.computed_;
  refresh();
}

const at::Tensor *find_lazy_inner(const at::Tensor &tensor) {
  const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  return typeid(*impl) == typeid(LazyTensorImpl) ? &static_cast<const LazyTensorImpl *>(impl)->inner() : nullptr;
}

const at::Tensor &lazy_inner(const at::Tensor &lazy) {
  const at::Tensor *inner = find_lazy_inner(lazy);
  TORCH_CHECK(
      inner != nullptr,
      "a tensor of device type 'lazy' was created by another backend (torch._lazy.ts_backend.init()?); torch_backend's "
      "and its tensors cannot be used in one process");
  return *inner;
}

at::Tensor make_lazy(at::Tensor inner, c10::ScalarType reported) {
  TORCH_CHECK_NOT_IMPLEMENTED(inner.layout() == c10::kStrided && !inner.is_nested() && !inner.is_quantized(), "a ",
                              tensor_kind(inner), " result cannot be a tensor of device type 'lazy'; compute it on '",
                              inner.device(), "', which supports it (tensor.to('", inner.device(), "'))");
  return at::detail::make_tensor<LazyTensorImpl>(std::move(inner), reported);
}

}  // namespace torch_backend
