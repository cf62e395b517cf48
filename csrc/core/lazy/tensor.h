// tensor.h: tensors of torch's device type "lazy". Each wraps a device tensor, which does all work. The wrapper is
// opaque: it has no storage and always appears contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace torch_backend {

constexpr c10::DeviceType kLazyType = c10::DeviceType::Lazy;

class LazyTensorImpl final : public c10::TensorImpl {
 public:
  // `reported`: the dtype that it reports, which may differ from that of `inner` (dtype.h).
  LazyTensorImpl(at::Tensor inner, c10::ScalarType reported);
  ~LazyTensorImpl() override;

  const at::Tensor &inner() const { return inner_; }

  // Copies sizes and dtype of the wrapped tensor, which an operator may have changed.
  void refresh();

  // Returns whether these have changed since.
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

  // Makes it an inference tensor or a normal one, like the wrapped tensor: a view has the mode of its base, whatever
  // the current mode is.
  void change_mode();

  at::Tensor inner_;
  c10::ScalarType computed_;  // of `inner_`, at the last refresh
};

// The numbers of lazy tensors created and destroyed since the start of the process.
struct LazyTensorCounts {
  uint64_t created, destroyed;
};
LazyTensorCounts lazy_tensor_counts();

inline bool is_lazy(const at::Tensor &tensor) { return tensor.defined() && tensor.device().type() == kLazyType; }

// Returns the tensor that a lazy one wraps; nullptr for a tensor that was created elsewhere: by another backend, or by
// torch as a wrapper of a lazy tensor (functorch, subclasses).
const at::Tensor *find_lazy_inner(const at::Tensor &tensor);

// The same, but throws for a tensor of the type that was created elsewhere.
const at::Tensor &lazy_inner(const at::Tensor &lazy);

// Returns a lazy tensor that wraps a device tensor and reports a dtype, which may differ from that tensor's.
at::Tensor make_lazy(at::Tensor inner, c10::ScalarType reported);
inline at::Tensor make_lazy(at::Tensor inner) {
  const c10::ScalarType reported = inner.scalar_type();
  return make_lazy(std::move(inner), reported);
}

}  // namespace torch_backend
