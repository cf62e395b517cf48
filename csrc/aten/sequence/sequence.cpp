// sequence.cpp: arange, range, linspace, logspace and eye. ATen's own functions for arange and linspace check the call
// and ask a kernel through a dispatch stub, which is registered here; dtypes without a kernel are cast from one that has.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/RangeFactories.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/linspace_native.h>
#include <ATen/ops/linspace_ops.h>
#include <ATen/ops/logspace_ops.h>
#include <ATen/ops/range_ops.h>
#include <torch/library.h>

#include <cmath>

#include "aten/copy/copy.h"
#include "aten/fallback/fallback_call.h"
#include "aten/prepare/op_call.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// The dtype a kernel computes numbers of `dtype` in: itself, or one that is cast without loss.
c10::ScalarType computing_dtype(uint32_t op, c10::ScalarType dtype, c10::DeviceIndex device) {
  if (has_kernel(device, op, dtype)) return dtype;
  if (op == HAL_OP_ID_ARANGE_START_STEP && c10::isIntegralType(dtype, false)) return at::kLong;
  return at::kDouble;
}

bool may_fill(uint32_t op, const at::Tensor &out) {
  if (!is_device_tensor(out) || out.is_complex()) return false;
  const c10::DeviceIndex device = out.device().index();
  return has_kernel(device, op, computing_dtype(op, out.scalar_type(), device));
}

hal_value_t number(const c10::Scalar &scalar, c10::ScalarType computing) {
  return c10::isIntegralType(computing, false) ? value(scalar.toLong()) : value(scalar.toDouble());
}

// Fills `out` in its logical order. The caller has asked may_fill().
template <size_t kArgs>
void fill_sequence(uint32_t op, const c10::Scalar (&numbers)[kArgs], const at::Tensor &out) {
  if (out.numel() == 0) return;
  const c10::DeviceIndex device = out.device().index();
  const c10::ScalarType dtype = computing_dtype(op, out.scalar_type(), device);
  const bool direct = out.is_contiguous() && out.scalar_type() == dtype && !has_bits(out);
  const at::Tensor target = direct ? out : make_empty(out.sizes(), dtype, device);
  const hal_tensor_t described = describe(target);
  const hal_tensor_t *const results[] = {&described};
  hal_value_t args[kArgs];
  for (size_t i = 0; i < kArgs; i++) args[i] = number(numbers[i], dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(run_op(device, op, args, results), hal_op_name(op), ": device ", out.device(),
                              " has lost its kernel for ", dtype);
  if (!direct) copy_on_device(target, out);
}

void arange_kernel(at::TensorIterator &it, const c10::Scalar &start, const c10::Scalar &, const c10::Scalar &step) {
  fill_sequence(HAL_OP_ID_ARANGE_START_STEP, {start, step}, it.output());
}

// Integers are spread between the integers that the limits are.
void linspace_kernel(at::TensorIterator &it, const c10::Scalar &start, const c10::Scalar &end, int64_t) {
  const bool integral = c10::isIntegralType(it.output().scalar_type(), true);
  const auto limit = [&](const c10::Scalar &scalar) {
    return c10::Scalar(integral ? static_cast<double>(scalar.toLong()) : scalar.toDouble());
  };
  fill_sequence(HAL_OP_ID_LINSPACE, {limit(start), limit(end)}, it.output());
}

at::Tensor &arange_out(const c10::Scalar &start, const c10::Scalar &end, const c10::Scalar &step, at::Tensor &out) {
  if (may_fill(HAL_OP_ID_ARANGE_START_STEP, out)) return at::native::arange_out(start, end, step, out);
  return call_fallback<at::_ops::arange_start_out>(start, end, step, out);
}

at::Tensor &linspace_out(const c10::Scalar &start, const c10::Scalar &end, int64_t steps, at::Tensor &out) {
  if (may_fill(HAL_OP_ID_LINSPACE, out)) return at::native::linspace_out(start, end, steps, out);
  return call_fallback<at::_ops::linspace_out>(start, end, steps, out);
}

// The CPU rounds powers of integers in its own way.
at::Tensor &logspace_out(const c10::Scalar &start, const c10::Scalar &end, int64_t steps, double base,
                         at::Tensor &out) {
  if (!may_fill(HAL_OP_ID_LOGSPACE, out) || !out.is_floating_point()) {
    return call_fallback<at::_ops::logspace_out>(start, end, steps, base, out);
  }
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  fill_sequence(HAL_OP_ID_LOGSPACE, {start, end, c10::Scalar(base)}, out);
  return out;
}

// The old arange, whose end is part of it.
at::Tensor &range_out(const c10::Scalar &start, const c10::Scalar &end, const c10::Scalar &step, at::Tensor &out) {
  if (!may_fill(HAL_OP_ID_ARANGE_START_STEP, out)) {
    return call_fallback<at::_ops::range_out>(start, end, step, out);
  }
  const double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  const double count = (last - first) / by + 1;
  TORCH_CHECK(count < 0x1p63, "invalid size, possible overflow?");
  const auto size = static_cast<int64_t>(count);
  if (out.numel() != size) out.resize_({size});
  fill_sequence(HAL_OP_ID_ARANGE_START_STEP, {start, step}, out);
  return out;
}

at::Tensor &eye_m_out(int64_t n, int64_t m, at::Tensor &out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  out.zero_();
  if (out.numel() != 0) out.diagonal().fill_(1);
  return out;
}

at::Tensor &eye_out(int64_t n, at::Tensor &out) { return eye_m_out(n, n, out); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("arange.start_out", TORCH_FN(arange_out));
  m.impl("range.out", TORCH_FN(range_out));
  m.impl("linspace.out", TORCH_FN(linspace_out));
  m.impl("logspace.out", TORCH_FN(logspace_out));
  m.impl("eye.out", TORCH_FN(eye_out));
  m.impl("eye.m_out", TORCH_FN(eye_m_out));
}

}  // namespace torch_backend

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(arange_stub, &torch_backend::arange_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(linspace_stub, &torch_backend::linspace_kernel)
}  // namespace at::native
