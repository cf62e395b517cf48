// custom_op.cpp: the calls of custom operators: from boxed values to the HAL's call, and rerouted ATen operators.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <atomic>
#include <deque>
#include <memory>
#include <sstream>

#include "api/custom_op.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {
namespace {

// The values of one call, and the objects that they borrow.
class CallValues {
 public:
  explicit CallValues(std::initializer_list<c10::IValue> arguments) {
    for (const c10::IValue &argument : arguments) values_.push_back(convert(argument));
  }

  c10::ArrayRef<hal_value_t> all() const { return values_; }

 private:
  const hal_tensor_t *descriptor(const at::Tensor &tensor) { return &tensors_.emplace_back(describe(tensor)); }

  hal_value_t tagged(uint32_t tag, size_t count = 0) {
    hal_value_t result{};
    result.tag = tag;
    result.count = static_cast<uint32_t>(count);
    return result;
  }

  hal_value_t tensor_list(const c10::List<at::Tensor> &list) {
    auto &addresses = lists_.emplace_back();
    for (size_t i = 0; i < list.size(); i++) addresses.push_back(descriptor(list.get(i)));
    hal_value_t result = tagged(HAL_VALUE_TENSOR_LIST, addresses.size());
    result.u.tl = addresses.data();
    return result;
  }

  hal_value_t text(const c10::IValue &argument) {
    hal_value_t result = tagged(HAL_VALUE_STRING);
    result.u.s = argument.toStringRef().c_str();
    return result;
  }

  hal_value_t double_list(std::vector<double> numbers, uint32_t tag) {
    const auto &kept = doubles_.emplace_back(std::move(numbers));
    hal_value_t result = tagged(tag, kept.size());
    result.u.dl = kept.data();
    return result;
  }

  hal_value_t int_list(std::vector<int64_t> numbers) {
    return value(c10::IntArrayRef(integers_.emplace_back(std::move(numbers))));
  }

  hal_value_t convert(const c10::IValue &argument) {
    if (argument.isTensor())
      return argument.toTensor().defined() ? value(*descriptor(argument.toTensor())) : none_value();
    if (argument.isBool()) return value(argument.toBool());
    if (argument.isInt()) return value(argument.toInt());
    if (argument.isDouble()) return value(argument.toDouble());
    if (argument.isComplexDouble())
      return double_list({argument.toComplexDouble().real(), argument.toComplexDouble().imag()}, HAL_VALUE_COMPLEX);
    if (argument.isString()) return text(argument);
    if (argument.isTensorList()) return tensor_list(argument.toTensorList());
    if (argument.isIntList()) return int_list(argument.toIntVector());
    if (argument.isDoubleList()) return double_list(argument.toDoubleVector(), HAL_VALUE_DOUBLE_LIST);
    TORCH_CHECK_NOT_IMPLEMENTED(argument.isNone(), "custom operators take no argument of type ", argument.tagKind());
    return none_value();
  }

  // Deques, because addresses must not change while they grow.
  c10::SmallVector<hal_value_t, 8> values_;
  std::deque<hal_tensor_t> tensors_;
  std::deque<std::vector<const hal_tensor_t *>> lists_;
  std::deque<std::vector<double>> doubles_;
  std::deque<std::vector<int64_t>> integers_;
};

bool all_empty(c10::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor &tensor : tensors) {
    if (tensor.numel() != 0) return false;
  }
  return true;
}

}  // namespace

CustomOp::CustomOp(const char *name, size_t arguments, hal_op_own_fn_t function) : name_(name) {
  hal_op_desc_t description{};
  description.struct_size = sizeof(description);
  description.name = name;
  description.argument_count = static_cast<uint32_t>(arguments);
  description.fn = function;
  check(hal_op_define(&description, &number_));
}

bool CustomOp::run(c10::Device device, std::initializer_list<c10::IValue> arguments,
                   c10::ArrayRef<at::Tensor> results) const {
  if (all_empty(results)) return true;
  const CurrentDevice current(device.index());
  const CallValues values(arguments);
  c10::SmallVector<hal_tensor_t, 4> described;
  for (const at::Tensor &result : results) described.push_back(describe(result));
  c10::SmallVector<const hal_tensor_t *, 4> addresses;
  for (const hal_tensor_t &result : described) addresses.push_back(&result);
  return run_op(device.index(), number_, values.all(), addresses);
}

void CustomOp::refuse(std::initializer_list<at::Tensor> tensors) const { torch_backend::refuse(name_, tensors); }

void refuse(const char *op, at::TensorList tensors) {
  std::ostringstream given;
  std::optional<c10::Device> device;
  for (const at::Tensor &tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!device) device = tensor.device();
    given << (given.tellp() > 0 ? ", " : "") << tensor.dtype() << tensor.sizes();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(device && device->type() == kDevice, op, ": the operator has kernels for the '", kDevice,
                              "' device only, but its tensors are on ", device ? device->str() : "no device",
                              "; move them there, or declare a `reference` for the operator.");
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": neither the plugin of ", device->str(),
                              " nor the operator's library has a kernel for these tensors (", given.str(),
                              "), and the operator declares no `reference` to fall back to.");
}

at::Tensor new_result(const at::Tensor &like, c10::SymIntArrayRef leading, std::initializer_list<c10::SymInt> sizes,
                      c10::ScalarType dtype) {
  c10::SmallVector<c10::SymInt, 6> all(leading.begin(), leading.end());
  all.append(sizes.begin(), sizes.end());
  return at::empty_symint(all, like.options().dtype(dtype).memory_format(c10::MemoryFormat::Contiguous));
}

void refuse_second_derivative(const char *op, const char *constant) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::GradMode::is_enabled(), op,
                              ": the gradient cannot be differentiated again (create_graph=True), because its formula "
                              "uses the result '",
                              constant, "', which is not differentiable; write the formula without it.");
}

// ---- reroutes -----------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> reroutes_enabled{true};

// The kernel of a rerouted operator.
class Reroute final : public c10::OperatorKernel {
 public:
  Reroute(RerouteAttempt attempt, c10::SafeKernelFunction before)
      : attempt_(std::move(attempt)), before_(std::move(before)) {}

  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    if (!reroutes_enabled.load(std::memory_order_relaxed) || !attempt_(stack)) before_.callBoxed(op, keys, stack);
  }

 private:
  RerouteAttempt attempt_;
  c10::SafeKernelFunction before_;
};

c10::OperatorHandle find(const std::string &qualified) {
  const size_t dot = qualified.find('.');
  const std::string overload = dot == std::string::npos ? "" : qualified.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(qualified.substr(0, dot).c_str(), overload.c_str());
}

// Compares numbers by value, whatever their type.
bool equal(const c10::IValue &argument, const c10::IValue &wanted) {
  if (wanted.isNone() || argument.isNone()) return wanted.isNone() && argument.isNone();
  if (wanted.isString()) return argument.isString() && argument.toStringRef() == wanted.toStringRef();
  if (wanted.isBool()) return argument.isBool() && argument.toBool() == wanted.toBool();
  return argument.isScalar() && !argument.isComplexDouble() &&
         argument.toScalar().toDouble() == wanted.toScalar().toDouble();
}

// An attempt by an operator of a library, which needs no code in the library.
class ByOperator {
 public:
  ByOperator(const char *attempt, size_t count, std::vector<int64_t> sources,
             std::vector<std::pair<int64_t, c10::IValue>> conditions)
      : op_(find(attempt)), count_(count), sources_(std::move(sources)), conditions_(std::move(conditions)) {}

  bool operator()(torch::jit::Stack *stack) const {
    const auto arguments = torch::jit::last(*stack, count_);
    for (const auto &[place, wanted] : conditions_) {
      if (!equal(arguments[static_cast<size_t>(place)], wanted)) return false;
    }
    torch::jit::Stack values;
    for (size_t i = 0; i < sources_.size(); i++) {
      const bool given = sources_[i] >= 0;
      values.push_back(given ? arguments[static_cast<size_t>(sources_[i])]
                             : *op_.schema().arguments()[i].default_value());
    }
    op_.callBoxedForDispatchKey(c10::DispatchKey::PrivateUse1, values);
    for (const c10::IValue &result : values) {
      if (!result.toTensor().defined()) return false;
    }
    torch::jit::drop(*stack, count_);
    for (c10::IValue &result : values) stack->push_back(std::move(result));
    return true;
  }

 private:
  c10::OperatorHandle op_;
  size_t count_;
  std::vector<int64_t> sources_;
  std::vector<std::pair<int64_t, c10::IValue>> conditions_;
};

// torch warns about a kernel that replaces another one, which is intended here.
class Quiet final : public c10::WarningHandler {
 public:
  void process(const c10::Warning &) override {}
};

}  // namespace

bool reroute(const char *aten, RerouteAttempt attempt) {
  const c10::OperatorHandle op = find(aten);
  static auto *libraries = new std::deque<torch::Library>;  // never destroyed: that would unregister the kernels
  Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  auto kernel =
      std::make_unique<Reroute>(std::move(attempt), op.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1));
  libraries
      ->emplace_back(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                     static_cast<uint32_t>(__LINE__))
      .impl(aten, torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  return true;
}

bool reroute_to(const char *aten, const char *attempt, std::vector<int64_t> sources,
                std::vector<std::pair<int64_t, c10::IValue>> conditions) {
  const size_t count = find(aten).schema().arguments().size();
  return reroute(aten, ByOperator(attempt, count, std::move(sources), std::move(conditions)));
}

bool set_reroutes(bool enabled) { return reroutes_enabled.exchange(enabled); }

}  // namespace torch_backend
