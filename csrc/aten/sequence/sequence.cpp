// sequence.cpp: arange, range, linspace, logspace and eye. ATen's own functions for arange and linspace check the call
// and call a kernel by a dispatch stub, which is registered here. Dtypes without a kernel are cast from one that has a
// kernel.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/RangeFactories.h>

#include <cmath>

#include "aten/prepare/vendor_op.h"
#include "hal_op_ids.h"

namespace torch_backend {
namespace {

// Fills `out` in its logical order. The caller has checked may_fill(). Returns false if the plugin's own operator
// declines, and there is no other kernel.
template <size_t kNumbers>
bool fill_sequence(uint32_t op, const c10::Scalar (&numbers)[kNumbers], const at::Tensor &out) {
  if (out.numel() == 0) return true;
  if (has_vendor_op(out.device().index(), op)) {
    const bool whole = c10::isIntegralType(out.scalar_type(), /*includeBool=*/true);
    c10::Scalar shown[kNumbers];
    c10::SmallVector<Argument, kNumbers> arguments;
    for (size_t i = 0; i < kNumbers; i++) {
      shown[i] = whole ? c10::Scalar(numbers[i].toLong()) : c10::Scalar(numbers[i].toDouble());
      arguments.push_back(argument(shown[i]));
    }
    if (call_vendor_op(op, arguments, out)) return true;
  }
  const Declined declined(op);
  Call call(op, out);
  for (const c10::Scalar &number : numbers)
    call.put(c10::isIntegralType(call.dtype(), false) ? value(number.toLong()) : value(number.toDouble()));
  return call.out(out).run();
}

bool may_fill(uint32_t op, const at::Tensor &out) {
  return is_device_tensor(out) && computing_dtype(out.device().index(), op, out.scalar_type());
}

void arange_kernel(at::TensorIterator &it, const c10::Scalar &start, const c10::Scalar &, const c10::Scalar &step) {
  must(may_fill(HAL_OP_ID_ARANGE_START_STEP, it.output()) &&
       fill_sequence(HAL_OP_ID_ARANGE_START_STEP, {start, step}, it.output()));
}

// For integers, the limits are integers, too.
void linspace_kernel(at::TensorIterator &it, const c10::Scalar &start, const c10::Scalar &end, int64_t) {
  const bool integral = c10::isIntegralType(it.output().scalar_type(), true);
  const auto limit = [&](const c10::Scalar &scalar) {
    return c10::Scalar(integral ? static_cast<double>(scalar.toLong()) : scalar.toDouble());
  };
  must(may_fill(HAL_OP_ID_LINSPACE, it.output()) &&
       fill_sequence(HAL_OP_ID_LINSPACE, {limit(start), limit(end)}, it.output()));
}

// The CPU has its own rounding for powers of integers.
bool logspace(const c10::Scalar &start, const c10::Scalar &end, int64_t steps, double base, at::Tensor &out) {
  if (!may_fill(HAL_OP_ID_LOGSPACE, out) || !out.is_floating_point()) return false;
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  return fill_sequence(HAL_OP_ID_LOGSPACE, {start, end, c10::Scalar(base)}, out);
}

// The deprecated arange, which includes its end.
bool range(const c10::Scalar &start, const c10::Scalar &end, const c10::Scalar &step, at::Tensor &out) {
  if (!may_fill(HAL_OP_ID_ARANGE_START_STEP, out)) return false;
  const double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  const double count = (last - first) / by + 1;
  TORCH_CHECK(count < 0x1p63, "invalid size, possible overflow?");
  const auto size = static_cast<int64_t>(count);
  if (out.numel() != size) out.resize_({size});
  return fill_sequence(HAL_OP_ID_ARANGE_START_STEP, {start, step}, out);
}

bool eye_of_sizes(int64_t n, int64_t m, at::Tensor &out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  if (is_device_tensor(out) && has_vendor_op(out.device().index(), HAL_OP_ID_EYE_M) &&
      call_vendor_op(HAL_OP_ID_EYE_M, {}, out))
    return true;
  out.zero_();
  if (out.numel() != 0) out.diagonal().fill_(1);
  return true;
}

bool eye(int64_t n, at::Tensor &out) { return eye_of_sizes(n, n, out); }

}  // namespace
}  // namespace torch_backend

#include "aten/sequence/sequence.inc"  // registrations: codegen/operators
