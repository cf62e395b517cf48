// tensor.h: tensors of torch's device type "lazy". Each wraps a tensor of ours, which does all work; outside it is opaque: it has no
// storage and always looks contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace torch_backend {

constexpr c10::DeviceType kLazyType = c10::DeviceType::Lazy;

class LazyTensorImpl final : public c10::TensorImpl {
 public:
  // `said`: the dtype that it says, which is not always that of `inner` (dtype.h).
  LazyTensorImpl(at::Tensor inner, c10::ScalarType said);
  ~LazyTensorImpl() override;

  const at::Tensor &inner() const { return inner_; }

  // Takes sizes and dtype of the wrapped tensor, which an operator may have changed.
  void refresh();

  // Whether that has changed since.
  bool is_stale() const {
    const c10::IntArrayRef own = sizes_default(), now = inner_.sizes();
    bool same = own.size() == now.size() && inner_.scalar_type() == computed_;
    for (size_t d = 0; same && d < own.size(); ++d) same = own[d] == now[d];
    return !same;
  }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion &version,
                                                              bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion &&version,
                                                              bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl> &other) override;

 protected:
  const char *tensorimpl_type_name() const override { return "LazyTensorImpl"; }

 private:
  template <class Version>
  c10::intrusive_ptr<c10::TensorImpl> copied(Version &&version, bool allow_tensor_metadata_change) const;

  // Makes it a tensor of inference mode, or none, as what it wraps is: a view is what its base is, whatever the mode is now.
  void change_mode();

  at::Tensor inner_;
  c10::ScalarType computed_;  // of `inner_`, when the dtype was taken
};

// How many were made, and of these destroyed, since the start of the process.
struct LazyTensorCounts {
  uint64_t created, destroyed;
};
LazyTensorCounts lazy_tensor_counts();

inline bool is_lazy(const at::Tensor &tensor) { return tensor.defined() && tensor.device().type() == kLazyType; }

// The tensor that a lazy one wraps; NULL for one that somebody else made: another backend, or torch around ours (functorch, subclasses).
const at::Tensor *find_lazy_inner(const at::Tensor &tensor);

// The same. Throws for a tensor of the type that somebody else made.
const at::Tensor &lazy_inner(const at::Tensor &lazy);

// A lazy tensor that wraps one of ours, and says another dtype than that one has, or the same.
at::Tensor make_lazy(at::Tensor inner, c10::ScalarType said);
inline at::Tensor make_lazy(at::Tensor inner) {
  const c10::ScalarType said = inner.scalar_type();
  return make_lazy(std::move(inner), said);
}

}  // namespace torch_backend
