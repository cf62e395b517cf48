// call.cpp: see call.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/prepare/call.h"

#include <ATen/ops/zeros.h>

namespace torch_backend {

namespace {

bool lies_in(const at::Tensor &tensor, Layout layout) {
  switch (layout) {
    case Layout::kRows:
      return tensor.dim() == 0 || tensor.size(-1) <= 1 || tensor.stride(-1) == 1;
    case Layout::kContiguous:
      return tensor.is_contiguous();
    case Layout::kSuggested:
      return tensor.is_contiguous(tensor.suggest_memory_format());
    default:
      return true;
  }
}

bool has_lazy_bits(const at::Tensor &tensor) { return tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor(); }

}  // namespace

at::Tensor prepared(const at::Tensor &tensor, c10::ScalarType dtype, Layout layout, c10::DeviceIndex device) {
  if (tensor.device().type() == c10::kCPU) {
    if (tensor.dim() != 0) throw_two_devices(c10::Device(kDevice, device), tensor.device());
    const at::Tensor moved = make_empty({}, dtype, device);
    moved.fill_(tensor.to(dtype).item());
    return moved;
  }
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options().dtype(dtype));
  at::Tensor values = resolved(tensor);
  if (values.scalar_type() != dtype) values = values.to(dtype);
  if (lies_in(values, layout)) return values;
  return values.contiguous(layout == Layout::kSuggested ? values.suggest_memory_format()
                                                        : c10::MemoryFormat::Contiguous);
}

at::Tensor element_of(const c10::Scalar &number, const at::Tensor &like) {
  if (like.scalar_type() == at::kHalf)
    (void)number.to<c10::Half>();  // throws when it overflows; fill_ of one element does not
  if (like.scalar_type() == at::kBFloat16) (void)number.to<c10::BFloat16>();
  at::Tensor element = make_empty({}, like.scalar_type(), like.device().index());
  element.fill_(number);
  return element;
}

namespace {

// Returns the range of bytes of its storage that contains a tensor's elements.
std::pair<int64_t, int64_t> extent(const c10::TensorImpl *tensor) {
  const auto itemsize = static_cast<int64_t>(tensor->itemsize());
  int64_t last = 0;
  for (int64_t d = 0; d < tensor->dim(); d++) last += (tensor->size(d) - 1) * tensor->stride(d);
  return {tensor->storage_offset() * itemsize, (tensor->storage_offset() + last + 1) * itemsize};
}

}  // namespace

bool overlaps(const c10::TensorImpl *a, const c10::TensorImpl *b, bool same_view_too) {
  if (a->unsafe_storage().unsafeGetStorageImpl() != b->unsafe_storage().unsafeGetStorageImpl()) return false;
  if (a->numel() == 0 || b->numel() == 0) return false;
  const bool same_view = a == b || (a->storage_offset() == b->storage_offset() && a->dtype() == b->dtype() &&
                                    a->sizes() == b->sizes() && a->strides() == b->strides());
  if (same_view) return same_view_too;
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

Destination::Destination(const at::Tensor &result, c10::ScalarType dtype, bool aliased, Layout layout, bool keeps)
    : result_(result) {
  if (aliased || result.scalar_type() != dtype || result.is_neg() || result.is_conj() || !lies_in(result, layout)) {
    const bool ordered = layout == Layout::kContiguous || layout == Layout::kRows;
    temporary_ = make_empty(result.sizes(), dtype, result.device().index(),
                            ordered ? c10::MemoryFormat::Contiguous : result.suggest_memory_format());
    if (keeps) temporary_.copy_(result);
  }
}

Call::Call(uint32_t op, c10::DeviceIndex device, c10::ScalarType dtype)
    : op_(op), device_(device), layout_(layout_of(device, op)) {
  const auto found = computing(device, op, dtype);
  possible_ = found.has_value();
  if (found) computing_ = *found;
}

bool Call::is_ready(const at::Tensor &tensor, c10::ScalarType dtype) const {
  if (C10_UNLIKELY(tensor.device().type() != kDevice)) return false;
  if (C10_UNLIKELY(tensor.device().index() != device_))
    throw_two_devices(c10::Device(kDevice, device_), tensor.device());
  return tensor.scalar_type() == dtype && lies_in(tensor, layout_) && !has_lazy_bits(tensor);
}

template <class Tensor>
Call &Call::add(Tensor &&tensor, Computing as) {
  Operand &operand = operands_.emplace_back(std::forward<Tensor>(tensor));
  operand.told(as.told);
  if (layout_ == Layout::kAtLeast1d) operand.at_least(1);
  return *this;
}

template <class Tensor>
Call &Call::read(Tensor &&tensor, Computing as) {
  if (!possible_) return *this;
  if (!tensor.defined()) return none();
  values_.emplace_back().tag = HAL_VALUE_TENSOR;
  inputs_++;
  if (C10_LIKELY(is_ready(tensor, as.dtype))) return add(std::forward<Tensor>(tensor), as);
  return add(prepared(tensor, as.dtype, layout_, device_), as);
}
template Call &Call::read(const at::Tensor &tensor, Computing as);
template Call &Call::read(at::Tensor &&tensor, Computing as);

Call &Call::none() {
  if (possible_) values_.push_back(none_value());
  return *this;
}

bool Call::aliases(const at::Tensor &result) const {
  for (size_t i = 0; i < inputs_; i++)
    if (overlaps(operands_[i].impl(), result.unsafeGetTensorImpl(), !elementwise_)) return true;
  return false;
}

Call &Call::write(const at::Tensor &result, Computing as, bool keeps) {
  if (!possible_) return *this;
  if (!result.defined()) {
    operands_.emplace_back();
    return *this;
  }
  results_.emplace_back(result, as.dtype, aliases(result), layout_, keeps);
  return add(results_.back().tensor(), as);
}

PhiloxState reserve_words(const std::optional<at::Generator> &generator, c10::DeviceIndex device, int64_t count,
                          c10::ScalarType dtype) {
  const uint64_t per_block = c10::elementSize(dtype) == 8 ? 2 : 4;  // of four 32-bit words
  return reserve_philox(generator, device, (static_cast<uint64_t>(count) + per_block - 1) / per_block);
}

bool Call::run(uint32_t flags) {
  if (!possible_) return false;
  size_t next = 0;
  for (hal_value_t &argument : values_)
    if (argument.tag == HAL_VALUE_TENSOR) argument.u.t = &operands_[next++].descriptor();
  c10::SmallVector<const hal_tensor_t *, 5> results;
  for (; next < operands_.size(); next++)
    results.push_back(operands_[next].given() ? &operands_[next].descriptor() : nullptr);
  if (!run_op(device_, op_, values_, results, flags, philox_)) return false;
  // In reverse order: of a tensor that is used in place of an absent one after its own position, that result counts.
  for (auto result = results_.rbegin(); result != results_.rend(); ++result) result->finish();
  return true;
}

}  // namespace torch_backend
