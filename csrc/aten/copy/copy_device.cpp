// copy_device.cpp: copies between device tensors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/copy/copy.h"

#include <ATen/ops/copy_ops.h>
#include <ATen/ops/view_as_real.h>

#include "aten/prepare/fallback_call.h"
#include "aten/prepare/operand.h"
#include "core/stream/stream.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Returns a view of a tensor's elements as they are stored, without its conjugate and negative bits; dispatches no
// operator.
at::Tensor elements_of(const at::Tensor &tensor, c10::IntArrayRef sizes, int64_t offset) {
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), kKeySet, tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, tensor.strides(), offset);
  return result;
}

at::Tensor without_bits(const at::Tensor &tensor) {
  return has_bits(tensor) ? elements_of(tensor, tensor.sizes(), tensor.storage_offset()) : tensor;
}

bool run_copy(c10::DeviceIndex device, Operand &src, Operand &dst) {
  const hal_value_t args[] = {value(src.descriptor())};
  return run_op(device, HAL_OP_ID_COPY, args, {&dst.descriptor()});
}

// Copies elements in their own dtype. Returns false if the dtypes differ or the device has no such operator.
bool copy_as_operator(const at::Tensor &src, const at::Tensor &dst) {
  if (src.scalar_type() != dst.scalar_type()) return false;
  Operand from(src), to(dst);
  return run_copy(dst.device().index(), from, to);
}

// Copies and converts; neither operand has bits.
void copy_converting(const at::Tensor &src, const at::Tensor &dst) {
  if (src.scalar_type() == dst.scalar_type()) return copy_raw(src, dst);
  Operand from(src), to(dst);
  if (run_copy(dst.device().index(), from, to)) return;
  at::Tensor target = dst;
  call_fallback<at::_ops::copy_>(target, src, /*non_blocking=*/false);
}

at::Tensor without_lazy_bits(const at::Tensor &src) {
  if (!has_bits(src)) return src;
  at::Tensor result = make_empty(src.sizes(), src.scalar_type(), src.device().index());
  copy_raw(src, result);
  apply_bits(result, src);
  return result;
}

class Event {
 public:
  explicit Event(hal_stream_t *stream) {
    check(hal_event_create(hal_stream_device(stream), 0, &event_));
    const hal_status_t status = hal_event_record(event_, stream);
    if (status == HAL_OK) return;
    hal_event_destroy(event_);
    throw_status(status);
  }
  ~Event() { hal_event_destroy(event_); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  void block(hal_stream_t *stream) { check_work(hal_stream_wait_event(stream, event_)); }

 private:
  hal_event_t *event_ = nullptr;
};

// Copies bytes on the destination's stream, after the work that computes them. Later work of the source's stream waits,
// too, so that it may overwrite or free the source.
void copy_bytes_across(const at::Tensor &src, const at::Tensor &dst) {
  const c10::DeviceIndex from = src.device().index(), to = dst.device().index();
  hal_stream_t *source = current_stream(from), *destination = current_stream(to);
  Event(source).block(destination);
  check_work(hal_memory_copy(destination, address_of(dst), to, address_of(src), from, dst.nbytes()));
  Event(destination).block(source);
}

}  // namespace

void apply_bits(const at::Tensor &elements, const at::Tensor &like) {
  if (like.is_conj() && elements.is_complex()) at::view_as_real(elements).select(-1, 1).neg_();
  if (like.is_neg()) elements.neg_();
}

void copy_raw(const at::Tensor &src, const at::Tensor &dst) {
  const char *from = address_of(src);
  char *to = address_of(dst);
  const c10::DeviceIndex device = dst.device().index();
  if (same_dense_layout(src, dst)) {
    if (from == to || (C10_UNLIKELY(is_put_off(device)) && copy_as_operator(src, dst))) return;
    return check(hal_memory_copy(current_stream(device), to, device, from, device, dst.nbytes()));
  }
  Operand source(src), target(dst);
  const hal_dtype_t dtype = dtype_of_size(dst.itemsize());
  if (run_copy(device, source.told(dtype), target.told(dtype))) return;
  at::Tensor destination = without_bits(dst);
  call_fallback<at::_ops::copy_>(destination, without_bits(src), /*non_blocking=*/false);
}

void copy_on_device(const at::Tensor &src, const at::Tensor &dst) {
  if (same_elements(src, dst)) return copy_raw(src, dst);
  const at::Tensor values = without_lazy_bits(src);
  if (!has_bits(dst)) return copy_converting(values, dst);
  const at::Tensor elements = make_empty(dst.sizes(), dst.scalar_type(), dst.device().index());
  copy_converting(values, elements);
  apply_bits(elements, dst);
  copy_raw(elements, dst);
}

void copy_into_part(const at::Tensor &src, const at::Tensor &dst, int64_t dim, int64_t begin) {
  if (has_bits(dst)) return copy_on_device(src, dst.narrow(dim, begin, src.size(dim)));
  copy_on_device(src, elements_of(dst, src.sizes(), dst.storage_offset() + begin * dst.stride(dim)));
}

void copy_across_devices(const at::Tensor &src, const at::Tensor &dst) {
  if (same_elements(src, dst) && same_dense_layout(src, dst)) return copy_bytes_across(src, dst);
  // The source's device converts and reorders the elements, so that the bytes are copied to their final place. The
  // destination's device runs work only for gaps and bits.
  const bool direct = dst.is_non_overlapping_and_dense() && !has_bits(dst);
  at::Tensor values = src;
  const bool fits = direct ? same_dense_layout(src, dst) : src.is_contiguous();
  if (!fits || src.scalar_type() != dst.scalar_type() || has_bits(src)) {
    values = direct ? make_empty_strided(dst.sizes(), dst.strides(), dst.scalar_type(), src.device().index())
                    : make_empty(dst.sizes(), dst.scalar_type(), src.device().index());
    copy_on_device(src, values);
  }
  const at::Tensor target = direct ? dst : make_empty(dst.sizes(), dst.scalar_type(), dst.device().index());
  copy_bytes_across(values, target);
  if (!direct) copy_on_device(target, dst);
}

}  // namespace torch_backend
