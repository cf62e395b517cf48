// structured_iterator.cpp: the general path of elementwise operators, after ATen's meta function.
#include "aten/prepare/structured_iterator.h"

namespace torch_backend {

namespace {

constexpr size_t kMaxElementwiseArguments = 6;  // of a frozen argument list of an elementwise operator

bool is_host_number(const Argument &argument) {
  return argument.may_be_number && argument.tensor->device().type() == c10::kCPU;
}

// The dtype that ATen computes in; an iterator that promotes nothing has none, but one operand.
std::optional<c10::ScalarType> common_dtype(std::optional<c10::ScalarType> common, c10::ArrayRef<Argument> arguments) {
  if (common) return common;
  const bool alone = arguments[0].tensor && (arguments.size() == 1 || !arguments[1].tensor);
  return alone ? std::optional(arguments[0].tensor->scalar_type()) : std::nullopt;
}

// A number for a kernel that computes in a wider dtype than ATen would: it must fit into ATen's.
std::optional<hal_value_t> number_as(const c10::Scalar &scalar, c10::ScalarType promoted, c10::ScalarType computing,
                                     NumberParts &parts) {
  if (promoted != computing && !number_value(scalar, promoted, parts)) return std::nullopt;
  return number_value(scalar, computing, parts);
}

}  // namespace

bool run_elementwise(uint32_t op, std::optional<c10::ScalarType> common, bool bool_result, const Outputs &outputs,
                     c10::ArrayRef<Argument> arguments) {
  const at::Tensor &result = outputs[0];
  const c10::DeviceIndex device = result.device().index();
  const auto promoted = common_dtype(common, arguments);
  const auto computing = promoted ? kernel_dtype(hal_op_dtypes(device, op), *promoted) : std::nullopt;
  if (!computing) return false;
  TORCH_INTERNAL_ASSERT(arguments.size() <= kMaxElementwiseArguments);

  // Half precision computes with numbers in float; a comparison rounds them to its operands' dtype first, as torch does.
  const bool keeps_digits = c10::isReducedFloatingType(*promoted) && !bool_result;
  const auto number_dtype = keeps_digits ? c10::ScalarType::Float : *promoted;
  NumberParts parts[kMaxElementwiseArguments];
  hal_value_t values[kMaxElementwiseArguments];
  ExpandedOperand operands[kMaxElementwiseArguments];
  bool aliased = false;
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument &argument = arguments[i];
    if (argument.tensor && !is_host_number(argument)) {
      operands[i].expand(prepare_operand(*argument.tensor, *computing, device), result.sizes());
      aliased |= shares_storage(result, operands[i].tensor(), false);
      values[i] = value(operands[i].descriptor());
      continue;
    }
    std::optional<hal_value_t> number;
    if (argument.tensor)
      number = number_as(argument.tensor->to(number_dtype).item(), *promoted, *computing, parts[i]);
    else if (argument.number)
      number = number_as(*argument.number, *promoted, *computing, parts[i]);
    if (!number) return false;
    values[i] = *number;
  }

  const Destination destination(result, bool_result ? c10::ScalarType::Bool : *computing, aliased);
  const hal_tensor_t descriptor = describe(destination.tensor());
  const hal_tensor_t *const results[] = {&descriptor};
  if (!run_op(device, op, {values, arguments.size()}, results)) return false;
  destination.finish();
  return true;
}

}  // namespace torch_backend
