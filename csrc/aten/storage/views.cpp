// views.cpp: views. They touch sizes and strides only, so ATen's own functions serve every device as they stand.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

namespace torch_backend {}  // namespace torch_backend

#include "aten/storage/views.inc"  // registrations: `bodies` of codegen/ops.yaml
