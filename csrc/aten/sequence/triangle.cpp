// triangle.cpp: tril and triu, which move elements of one size whatever their dtype, and the lists of their indices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/view_as_real.h>

#include "aten/copy/copy.h"
#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Returns 16-byte elements, which are complex, as pairs, because the kernels move words of up to 8 bytes.
at::Tensor words_of(const at::Tensor &tensor) {
  return tensor.itemsize() == 16 ? at::view_as_real(tensor).movedim(-1, 0) : tensor;
}

template <uint32_t kOp>
bool triangle(const Outputs &outputs, const at::Tensor &self, int64_t diagonal) {
  if (outputs[0].numel() == 0) return true;
  const at::Tensor matrices = words_of(resolved(self));
  const Destination result(outputs[0], self.scalar_type(), false);
  const at::Tensor written = words_of(result.tensor());
  Call call(kOp, matrices);
  bool done;
  if (written.dim() <= 7) {
    done = call.in(matrices).put(diagonal).elementwise().out(written).run();
  } else {  // more dimensions than the kernel supports
    const at::Tensor flat = matrices.contiguous().view({-1, self.size(-2), self.size(-1)});
    const at::Tensor made = make_empty(flat.sizes(), flat.scalar_type(), flat.device().index());
    done = call.in(flat).put(diagonal).out(made).run();
    if (done) copy_on_device(made.view(matrices.sizes()), written);
  }
  if (done) result.finish();
  return done;
}

// Computes the list as int64 and casts it.
template <uint32_t kOp>
std::optional<at::Tensor> triangle_indices(int64_t rows, int64_t columns, int64_t offset,
                                           std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                                           std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checked_index(device);
  if (!has_kernel(index, kOp, at::kLong) && !has_vendor_op(index, kOp)) return std::nullopt;
  at::native::check_args(rows, columns, layout);
  const int64_t count = kOp == HAL_OP_ID_TRIL_INDICES
                            ? at::native::get_tril_size(rows, columns, offset)
                            : rows * columns - at::native::get_tril_size(rows, columns, offset - 1);
  if (has_vendor_op(index, kOp)) {
    const at::Tensor list = make_empty({2, count}, dtype.value_or(at::kLong), index);
    if (count == 0 || call_vendor_op(kOp, {argument(rows), argument(columns), argument(offset)}, list)) return list;
  }
  const Declined declined(kOp);
  if (!has_kernel(index, kOp, at::kLong)) return std::nullopt;
  const at::Tensor list = make_empty({2, count}, at::kLong, index);
  Call call(kOp, list);
  if (count != 0 && !call.put(rows).put(columns).put(offset).out(list).run()) return std::nullopt;
  return list.to(dtype.value_or(at::kLong));
}

}  // namespace
}  // namespace torch_backend

#include "aten/sequence/triangle.inc"  // registrations: codegen/operators
