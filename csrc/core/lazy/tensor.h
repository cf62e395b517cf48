// tensor.h: tensors of torch's device type "lazy". Each wraps a tensor of ours, which does all work; outside it is opaque: it has no
// storage and always looks contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace torch_backend {

constexpr c10::DeviceType kLazyType = c10::DeviceType::Lazy;

class LazyTensorImpl final : public c10::TensorImpl {
 public:
  explicit LazyTensorImpl(at::Tensor inner);

  const at::Tensor &inner() const { return inner_; }

  // Takes sizes and dtype of the wrapped tensor, which an operator may have changed.
  void refresh();

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion &version,
                                                              bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion &&version,
                                                              bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl> &other) override;

 protected:
  const char *tensorimpl_type_name() const override { return "LazyTensorImpl"; }

 private:
  at::Tensor inner_;
};

inline bool is_lazy(const at::Tensor &tensor) { return tensor.defined() && tensor.device().type() == kLazyType; }

// The tensor that a lazy one wraps. Throws for a tensor of the type that somebody else made.
const at::Tensor &lazy_inner(const at::Tensor &lazy);

// A lazy tensor that wraps one of ours.
at::Tensor make_lazy(at::Tensor inner);

}  // namespace torch_backend
