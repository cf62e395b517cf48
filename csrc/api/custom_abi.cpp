// custom_abi.cpp: the C functions for libraries of custom operators that work with every version of torch.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "api/custom_abi.h"

#include <ATen/core/Tensor.h>

#include <vector>

#include "api/custom_op.h"
#include "core/status.h"

using torch_backend::CustomCheck;
using torch_backend::CustomOp;

namespace {

// A handle is the address of a tensor of the loaded torch, as in torch/csrc/inductor/aoti_torch/utils.h, which would
// include all of ATen.
const at::Tensor &tensor_of(AtenTensorHandle handle) { return *reinterpret_cast<const at::Tensor *>(handle); }

CustomCheck check_of(const torch_backend_check *check) {
  return CustomCheck(check->op, check->quiet ? CustomCheck::kQuiet : CustomCheck::kThrow);
}

}  // namespace

int32_t torch_backend_check_device(const torch_backend_check *check, const char *first_name, AtenTensorHandle first,
                                   const char *name, AtenTensorHandle other) {
  return check_of(check).device(first_name, tensor_of(first), name, tensor_of(other));
}

int32_t torch_backend_check_dtype(const torch_backend_check *check, AtenTensorHandle tensor, int32_t position,
                                  const char *name, const hal_dtype_t *allowed, size_t count) {
  c10::SmallVector<c10::ScalarType, 8> dtypes;
  for (size_t i = 0; i < count; i++) dtypes.push_back(static_cast<c10::ScalarType>(allowed[i]));
  return check_of(check).dtype(tensor_of(tensor), position, name, dtypes);
}

int32_t torch_backend_check_same_dtype(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                       AtenTensorHandle other, const char *other_name) {
  return check_of(check).same_dtype(tensor_of(tensor), name, tensor_of(other), other_name);
}

int32_t torch_backend_check_rank(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                 int64_t count, int32_t exact, const char *pattern) {
  return check_of(check).rank(tensor_of(tensor), name, count, exact != 0, pattern);
}

int32_t torch_backend_check_size(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                 int64_t dim, int64_t wanted, const char *symbol, const char *source) {
  return check_of(check).size(tensor_of(tensor), name, dim, wanted, symbol, source);
}

int32_t torch_backend_check_leading(const torch_backend_check *check, AtenTensorHandle tensor, const char *name,
                                    int64_t fixed, const int64_t *leading, size_t count, const char *source) {
  const c10::SmallVector<c10::SymInt, 6> sizes(leading, leading + count);
  return check_of(check).leading(tensor_of(tensor), name, fixed, sizes, source);
}

int32_t torch_backend_check_number(const torch_backend_check *check, double value, const char *name, double least,
                                   double most) {
  return check_of(check).number(value, name, least, most);
}

void torch_backend_refuse(const char *op, const AtenTensorHandle *tensors, size_t count) {
  std::vector<at::Tensor> given;
  for (size_t i = 0; i < count; i++) given.push_back(tensor_of(tensors[i]));
  torch_backend::refuse(op, given);
}

void torch_backend_throw_status(hal_status_t status) { torch_backend::throw_work_status(status); }

void torch_backend_throw(const char *text) { TORCH_CHECK(false, text); }
