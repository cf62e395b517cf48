// index_write.cpp: scatter, index_copy, index_fill, put and assignment to indexed elements. Of equal indices the last one
// wins, as on the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/put_ops.h>
#include <torch/library.h>

#include "aten/fallback/fallback_call.h"
#include "aten/index/index_call.h"
#include "aten/index/index_plan.h"
#include "aten/prepare/shells.h"
#include "hal_op_ids.h"

namespace torch_backend {

namespace {

// A number as an element of `like`'s dtype on its device.
at::Tensor element_of(const at::Scalar &number, const at::Tensor &like) {
  at::Tensor element = make_empty({}, like.scalar_type(), like.device().index());
  element.fill_(number);
  return element;
}

bool scatter_into(const at::Tensor &result, int64_t dim, const at::Tensor &index, const at::Tensor &src) {
  const at::Tensor indices = long_index(index), elements = src.resolve_conj().resolve_neg();
  Strided target(result), places(indices), source(elements);
  source.narrowed(index.sizes());
  return run_put(HAL_OP_ID_SCATTER_SRC, result.device().index(), target.moved(), at::maybe_wrap_dim(dim, result.dim()),
                 places, source.moved());
}

}  // namespace

bool run_scatter_src(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                     const at::Tensor &src) {
  const at::Tensor &result = started(outputs, self);
  return index.numel() == 0 || scatter_into(result, dim, index, src);
}

bool run_scatter_value(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                       const at::Scalar &number) {
  const at::Tensor &result = started(outputs, self);
  return index.numel() == 0 || scatter_into(result, dim, index, element_of(number, result).expand(index.sizes()));
}

bool run_index_copy(const Outputs &outputs, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                    const at::Tensor &source) {
  const at::Tensor &result = started(outputs, self);
  if (index.numel() == 0 || source.numel() == 0) return true;
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor indices = long_index(index), elements = source.resolve_conj().resolve_neg();
  Strided target(result), places(indices, source.sizes(), source.dim() ? dim : 0), src(elements);
  return run_put(HAL_OP_ID_INDEX_COPY, result.device().index(), target.moved(), dim, places, src.moved());
}

namespace {

// ---- index_fill ----

at::Tensor &index_fill_tensor(at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Tensor &number) {
  TORCH_CHECK(number.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              number.dim(), " dimension(s).");
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong, "index_fill_(): Expected dtype int64 for index.");
  at::assert_no_overlap(self, index);
  TORCH_CHECK(!(!self.is_complex() && number.is_complex()),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  if (index.device() != self.device()) throw_two_devices(self.device(), index.device());
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0 || index.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  const at::Tensor element = number.to(self.options());
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  const at::Tensor src = element.expand(sizes);
  Strided target(self), places(index, sizes, dim), source(src);
  if (sizes.empty()) source.narrowed({index.numel()});
  if (run_put(HAL_OP_ID_INDEX_PUT, self.device().index(), target.moved(), dim, places, source.moved())) return self;
  return call_fallback<at::_ops::index_fill__int_Tensor>(self, dim, index, number);
}

at::Tensor &index_fill_scalar(at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Scalar &number) {
  TORCH_CHECK(!(!self.is_complex() && number.isComplex()),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  return index_fill_tensor(self, dim, index, element_of(number, self));
}

// ---- writes at flat places: put_ and index_put_ ----

// self at the places of `index` along `dim` = or += src, with negative places counting from the end.
bool put_elements(const at::Tensor &self, Strided &target, int64_t dim, Strided &places, const at::Tensor &src,
                  bool accumulate, bool checked) {
  const c10::DeviceIndex device = self.device().index();
  Strided source(src);
  if (accumulate)
    return run_combine(HAL_OP_ID__INDEX_PUT_IMPL_, device, target, dim, places, source, Combine::kSum, checked);
  return run_put(HAL_OP_ID_INDEX_PUT, device, target.moved(), dim, places, source.moved(), checked);
}

bool put_flat(const at::Tensor &self, const at::Tensor &index, const at::Tensor &source, bool accumulate) {
  const at::Tensor flat = self.is_contiguous() ? self.view(-1) : self.contiguous().view(-1);
  const at::Tensor places = index.reshape(-1), src = source.reshape(-1);
  const auto put = [&](const at::Tensor &target, const at::Tensor &values) {
    Strided to(target), where(places, values.sizes(), 0);
    return put_elements(target, to, 0, where, values, accumulate, false);
  };
  if (!(accumulate ? with_combining_dtype(flat, src, Combine::kSum, put) : put(flat, src))) return false;
  if (!self.is_contiguous()) self.copy_(flat.view(self.sizes()));
  return true;
}

at::Tensor &put_(at::Tensor &self, const at::Tensor &index, const at::Tensor &source, bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "put_(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and source.dtype = ", source.scalar_type());
  for (const at::Tensor *tensor : {&index, &source})
    if (tensor->device() != self.device()) throw_two_devices(self.device(), tensor->device());
  TORCH_CHECK(source.numel() == index.numel(),
              "put_(): Expected source and index to have the same number of elements, but got source.numel() = ",
              source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0), "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  if (index.numel() == 0) return self;
  if (put_flat(self, index, source, accumulate)) return self;
  return call_fallback<at::_ops::put_>(self, index, source, accumulate);
}

bool index_put_into(const at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate) {
  IndexPlan plan(self, indices);
  const at::DimVector shape = plan.result_shape();
  TORCH_CHECK(at::is_expandable_to(values.sizes(), shape), "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", c10::IntArrayRef(shape));
  if (c10::multiply_integers(shape) == 0) return true;
  plan.flatten();
  const at::Tensor src = plan.flattened(values.expand(shape));
  Strided target(plan.self()), places(plan.index());
  plan.arrange_self(target, 1);
  plan.arrange_index(places);
  return put_elements(self, target, plan.dim(), places, src, accumulate, plan.checked());
}

bool index_put_values(const at::Tensor &self, const Indices &indices, const at::Tensor &values, bool accumulate) {
  if (!accumulate) return index_put_into(self, indices, values, false);
  return with_combining_dtype(self, values, Combine::kSum, [&](const at::Tensor &target, const at::Tensor &source) {
    return index_put_into(target, indices, source, true);
  });
}

at::Tensor &index_put_impl_(at::Tensor &self, const Indices &given, const at::Tensor &values, bool accumulate,
                            bool unsafe) {
  TORCH_CHECK_INDEX(given.size() <= static_cast<size_t>(self.dim()), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", given.size(), ")");
  if (!accumulate) {
    const auto [fills, mask] = at::native::canDispatchToMaskedFill(self, given, values);
    if (fills) return self.masked_fill_(mask, values.item());
  }
  at::Tensor src = values;
  if (src.device() != self.device() && src.dim() == 0) src = src.to(self.device());
  if (src.device() != self.device()) throw_two_devices(self.device(), src.device());
  TORCH_CHECK(self.scalar_type() == src.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", src.scalar_type(), " for the source.");
  at::assert_no_overlap(self, src);
  bool indexed = false;
  for (const std::optional<at::Tensor> &index : given) {
    if (!index || !index->defined()) continue;
    at::assert_no_overlap(self, *index);
    indexed = true;
  }
  if (indexed && is_device_tensor(self) &&
      index_put_values(self, without_masks(self, given), src.resolve_conj().resolve_neg(), accumulate))
    return self;
  return call_fallback<at::_ops::_index_put_impl_>(self, given, values, accumulate, unsafe);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_fill_.int_Scalar", TORCH_FN(index_fill_scalar));
  m.impl("index_fill_.int_Tensor", TORCH_FN(index_fill_tensor));
  m.impl("put_", TORCH_FN(put_));
  m.impl("_index_put_impl_", TORCH_FN(index_put_impl_));
}

}  // namespace torch_backend
