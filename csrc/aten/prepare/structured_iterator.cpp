// structured_iterator.cpp: the general path of elementwise operators, after ATen's meta function.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/prepare/structured_iterator.h"

#include <ATen/ops/scalar_tensor.h>

#include <utility>

#include "aten/prepare/vendor_op.h"

namespace torch_backend {

namespace {

constexpr size_t kMaxArguments = 6;  // maximum length of a frozen argument list of an elementwise operator

bool is_host_number(const KernelArgument &argument) {
  return argument.may_be_number && argument.tensor->device().type() == c10::kCPU;
}

// Returns the dtype in which ATen computes; an iterator without type promotion has no common dtype, but one operand.
std::optional<c10::ScalarType> common_dtype(std::optional<c10::ScalarType> common,
                                            c10::ArrayRef<KernelArgument> arguments) {
  if (common) return common;
  const bool alone = arguments[0].tensor && (arguments.size() == 1 || !arguments[1].tensor);
  return alone ? std::optional(arguments[0].tensor->scalar_type()) : std::nullopt;
}

// Returns a number for a kernel that may compute in a wider dtype than ATen: it must be in the range of ATen's dtype.
// With half precision it is rounded first, or retains its digits.
std::optional<hal_value_t> number_as(const KernelArgument &argument, bool rounded, c10::ScalarType promoted,
                                     c10::ScalarType computing, NumberParts &parts) {
  const bool digits = !rounded && c10::isReducedFloatingType(promoted);
  c10::Scalar scalar;
  if (argument.tensor) {  // a number on the host
    scalar = argument.tensor->to(digits ? at::kFloat : promoted).item();
  } else if (!argument.number || !number_value(*argument.number, promoted, parts)) {
    return std::nullopt;
  } else {
    scalar = *argument.number;
    if (!digits && scalar.isFloatingPoint() && c10::isReducedFloatingType(promoted))
      scalar = at::scalar_tensor(scalar, at::kDouble).to(promoted).item();
  }
  if (promoted != computing && !number_value(scalar, promoted, parts)) return std::nullopt;
  return number_value(scalar, computing, parts);
}

// Calls the plugin's own operator with the caller's arguments, in the result's shape, before any cast. Returns false if
// it declined.
bool call_vendor_op_elementwise(uint32_t op, const at::Tensor &result, c10::ArrayRef<KernelArgument> arguments) {
  VendorCall call;
  std::array<at::Tensor, kMaxArguments> expanded;
  for (size_t i = 0; i < arguments.size(); i++) {
    const KernelArgument &argument = arguments[i];
    if (argument.tensor && is_device_tensor(*argument.tensor))
      call.add(expanded[i] = argument.tensor->expand(result.sizes()));
    else if (argument.tensor)
      call.add(*argument.tensor);
    else
      call.add(argument.number ? std::optional(*argument.number) : std::nullopt);
  }
  return call.is_supported(op) && fill(call, op, result);
}

}  // namespace

bool run_elementwise(uint32_t op, std::optional<c10::ScalarType> common, bool bool_result, const Outputs &outputs,
                     c10::ArrayRef<KernelArgument> arguments) {
  const at::Tensor &result = outputs[0];
  const bool called = std::exchange(fast_path_declined, kNoOp) == op;
  TORCH_INTERNAL_ASSERT(arguments.size() <= kMaxArguments);
  if (C10_UNLIKELY(at::has_internal_overlap(result) == at::MemOverlap::Yes)) return false;  // if ATen allows it
  Declined declined;
  if (C10_UNLIKELY(hal_op_own_dtypes(result.device().index(), op) != 0)) {
    if (!called && call_vendor_op_elementwise(op, result, arguments)) return true;
    declined.set(op);
  }
  const auto promoted = common_dtype(common, arguments);
  if (!promoted) return false;
  Call call(op, result.device().index(), *promoted);
  if (!call.possible()) return false;

  NumberParts parts[kMaxArguments];
  for (size_t i = 0; i < arguments.size(); i++) {
    const KernelArgument &argument = arguments[i];
    if (argument.tensor && !is_host_number(argument)) {
      // If the kernel's dtype is wider than ATen's, an operand is first cast to ATen's, because it may wrap or
      // overflow.
      const bool twice = *promoted != call.dtype() && argument.tensor->scalar_type() != *promoted;
      (twice ? call.in(argument.tensor->to(*promoted)) : call.in(*argument.tensor)).expand(result.sizes());
      continue;
    }
    const std::optional<hal_value_t> number =
        number_as(argument, argument.rounded || i == 0, *promoted, call.dtype(), parts[i]);
    if (!number) return false;
    call.put(*number);
  }
  call.elementwise();
  if (bool_result) return call.out(result, c10::ScalarType::Bool).run();
  if (*promoted == call.dtype() || *promoted == result.scalar_type()) return call.out(result).run();
  // ATen's result would wrap or overflow in its dtype before it is cast to the dtype of the passed result.
  const at::Tensor narrow = make_empty(result.sizes(), *promoted, result.device().index());
  if (!call.out(narrow).run()) return false;
  result.copy_(narrow);
  return true;
}

}  // namespace torch_backend
