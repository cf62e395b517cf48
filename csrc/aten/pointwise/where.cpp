// where.cpp: where(condition, self, other), which moves elements of one size whatever their dtype. ATen's function
// broadcasts and promotes.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/native/TensorCompare.h>

#include "aten/prepare/call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

void choose(at::TensorIterator &it) {
  const at::Tensor &result = it.tensor(0);
  if (result.numel() == 0) return;
  Call call(HAL_OP_ID_WHERE_SELF, result);
  call.in(it.tensor(1), at::kBool).expand(result.sizes());
  for (int operand : {2, 3}) call.in(it.tensor(operand)).expand(result.sizes());
  call.elementwise().out(result).must_run();
}

}  // namespace
}  // namespace torch_backend

#include "aten/pointwise/where.inc"  // registrations: codegen/operators
