// index_plan.cpp: see index_plan.h.
#include "aten/index/index_plan.h"

#include "hal_op_ids.h"

namespace torch_backend {

IndexPlan::IndexPlan(const at::TensorIteratorBase &it, const at::Tensor &given, int indices, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides)
    : self(given), index(it.tensor(indices)), checked(sizes.size() > 1) {
  const int64_t ndim = self.dim();
  const auto varies = [&](int64_t d) { return d < index.dim() && index.size(d) > 1; };
  const auto alone = [&](int64_t d) { return self.size(d) == 1 && self.stride(d) == 0; };
  while (dim < ndim && !varies(dim)) dim++;
  if (dim < ndim) {
    while (dim > 0 && alone(dim - 1)) dim--;
    for (int64_t d = dim; d < ndim; d++)
      if (varies(d)) count = d - dim + 1;
  } else {
    for (dim = 0; dim < ndim && !alone(dim);) dim++;
  }
  extended = dim == ndim;
  if (extended) {
    dim = 0;
    self = self.unsqueeze(0);
    index = index.unsqueeze(0);
  }
  if (checked) {
    combine(it, indices, sizes, strides);
  } else {
    bound = sizes[0];
    step = strides[0] / static_cast<int64_t>(self.itemsize());
  }
}

void IndexPlan::combine(const at::TensorIteratorBase &it, int indices, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  index = make_empty(index.sizes(), at::kLong, self.device().index());
  for (size_t i = 0; i < sizes.size(); i++) {
    const int64_t size = sizes[i], stride = strides[i] / static_cast<int64_t>(self.itemsize());
    bound += (size - 1) * stride;
    Call call(HAL_OP_ID__INDEX_OFFSET, index);
    call.in(shaped(it.tensor(indices + static_cast<int>(i)))).put(size).put(stride).put(dim + static_cast<int64_t>(i));
    call.put(static_cast<int64_t>(i == 0)).update(index).must_run();
  }
}

}  // namespace torch_backend
