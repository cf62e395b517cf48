// fallback.cpp: the fallback: runs the CPU kernel on CPU tensors that alias the device tensors, or on copies if the
// host may not access the device's memory.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <hal/profile.h>
#include <torch/library.h>

#include <ctime>
#include <string>
#include <string_view>

#include "aten/fallback/fallback_info.h"
#include "aten/fallback/fallback_random.h"
#include "aten/fallback/fallback_route.h"
#include "aten/fallback/fallback_scope.h"
#include "aten/prepare/fallback_call.h"
#include "core/tensor_kind.h"

namespace torch_backend {
namespace {

c10::List<at::Tensor> list_to_cpu(FallbackScope &scope, const c10::IValue &list, bool written, bool host_allowed) {
  const c10::ArrayRef<c10::IValue> elements = list.toListRef();
  c10::List<at::Tensor> mapped;
  mapped.reserve(elements.size());
  for (const c10::IValue &element : elements) {
    mapped.push_back(scope.to_cpu(element.toTensor(), written, host_allowed));
  }
  return mapped;
}

c10::List<std::optional<at::Tensor>> optional_list_to_cpu(FallbackScope &scope, const c10::IValue &list) {
  c10::List<std::optional<at::Tensor>> mapped;
  for (const c10::IValue &element : list.toListRef()) {
    // Index lists: CUDA also accepts indices on the host.
    mapped.push_back(element.isTensor() ? std::optional<at::Tensor>(scope.to_cpu(element.toTensor(), false, true))
                                        : std::nullopt);
  }
  return mapped;
}

void operand_to_cpu(FallbackScope &scope, const ArgInfo &arg, bool host_allowed, c10::IValue &value) {
  switch (arg.kind) {
    case ArgKind::kTensor:
      if (value.isTensor()) value = scope.to_cpu(value.toTensor(), arg.written, host_allowed);
      return;
    case ArgKind::kTensorList:
      if (value.isList()) value = list_to_cpu(scope, value, arg.written, host_allowed);
      return;
    case ArgKind::kOptionalTensorList:
      if (value.isList()) value = optional_list_to_cpu(scope, value);
      return;
    case ArgKind::kDevice:
      if (value.isDevice() && value.toDevice().is_privateuseone()) {
        scope.set_device(value.toDevice());
        value = c10::Device(c10::kCPU);
      }
      return;
    case ArgKind::kOther:
      return;
  }
}

// Returns how many results of the call share the storage of `tensor`, itself included.
size_t count_sharing(const at::Tensor &tensor, c10::ArrayRef<c10::IValue> results) {
  size_t count = 0;
  const auto count_one = [&](const at::Tensor &other) {
    count += other.defined() && other.has_storage() && other.storage().is_alias_of(tensor.storage());
  };
  for (const c10::IValue &result : results) {
    if (result.isTensor()) count_one(result.toTensor());
    if (!result.isTensorList()) continue;
    for (const c10::IValue &element : result.toListRef()) count_one(element.toTensor());
  }
  return count;
}

// Returns whether only the results reference the tensor's storage, so that its memory may be taken.
bool is_exclusive(const at::Tensor &tensor, c10::ArrayRef<c10::IValue> results) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.use_count() != 1) return false;
  const size_t holders = tensor.storage().use_count();
  return holders == 1 || holders == count_sharing(tensor, results);
}

c10::IValue result_to_device(FallbackScope &scope, const c10::IValue &value, c10::ArrayRef<c10::IValue> results) {
  if (value.isTensor()) {
    const at::Tensor &tensor = value.toTensor();
    return scope.to_device(tensor, is_exclusive(tensor, results));
  }
  c10::List<at::Tensor> mapped;
  for (const c10::IValue &element : value.toListRef()) {
    const at::Tensor &tensor = element.toTensor();
    mapped.push_back(scope.to_device(tensor, is_exclusive(tensor, results)));
  }
  return mapped;
}

void results_to_device(FallbackScope &scope, const OpInfo &info, torch::jit::Stack *stack) {
  const size_t count = info.returns.size(), first = stack->size() - count;
  if (C10_LIKELY(count == 1)) {
    c10::IValue &value = stack->back();
    if (value.isTensor() || value.isTensorList()) {
      value = result_to_device(scope, value, c10::ArrayRef<c10::IValue>(value));
    }
    return;
  }
  // Mapped results replace the others only at the end. Until then all reference their storages, which can be counted.
  const c10::ArrayRef<c10::IValue> results(stack->data() + first, count);
  c10::SmallVector<c10::IValue, 4> mapped;
  for (const c10::IValue &value : results) {
    mapped.push_back(value.isTensor() || value.isTensorList() ? result_to_device(scope, value, results) : value);
  }
  std::move(mapped.begin(), mapped.end(), stack->begin() + static_cast<std::ptrdiff_t>(first));
}

// A profiler event for an operator that runs on the CPU: in torch's profile below that of the operator, and in the
// HAL's. Created only while a profile runs.
class ProfiledFallback {
 public:
  explicit ProfiledFallback(const OpInfo &info) : name_(op_name(info)), start_ns_(now_ns()) {
    if (guard_.isActive()) guard_.before("fallback: " + name_);
  }
  ~ProfiledFallback() {
    if (device_) hal_profile_host_op(device_->index(), name_.c_str(), start_ns_, now_ns());
  }
  ProfiledFallback(const ProfiledFallback &) = delete;
  ProfiledFallback &operator=(const ProfiledFallback &) = delete;

  // nullopt for an operator between host tensors, which is not recorded for a device.
  void set_device(std::optional<c10::Device> device) { device_ = device; }

  static bool wanted() { return hal_profile_running() != 0 || at::hasCallbacks(); }

 private:
  static int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
  }
  std::string name_;
  int64_t start_ns_;
  std::optional<c10::Device> device_;
  at::RecordFunction guard_{at::RecordScope::FUNCTION};
};

constexpr const char *kInsteadOfSparse =
    "2:4 sparse tensors are not supported; use dense tensors whose pruned elements are zero, or torchao's weights of 4 "
    "and 8 bits.";

// Families of operators that torch has for one vendor's devices, or for quantized tensors, and what to use instead.
constexpr struct {
  const char *prefix, *cure;
} kInstead[] = {
    {"symm_mem::", "Symmetric memory is not supported; use the collectives of torch.distributed."},
    {"aten::_sparse_semi_structured_", kInsteadOfSparse},
    {"aten::_cslt_", kInsteadOfSparse},
    {"quantized::", kInsteadOfQuantized},
};

std::string instead_of(std::string_view op) {
  for (const auto &[prefix, cure] : kInstead)
    if (op.rfind(prefix, 0) == 0) return std::string(" ") + cure;
  return {};
}

// Checked once per operator. If the kernel is unregistered later, redispatch reports it.
void check_cpu_kernel(const c10::OperatorHandle &op, OpInfo &info, c10::DispatchKey key) {
  if (C10_LIKELY(info.kernel_key.load(std::memory_order_relaxed) == key)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(key), "The operator '", op_name(info),
                              "' has no kernel for device type '", c10::get_privateuse1_backend(),
                              "', and there is no kernel for ", key, " to fall back to.", instead_of(op_name(info)));
  info.kernel_key.store(key, std::memory_order_relaxed);
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle &op, const c10::OperatorHandle &target, c10::DispatchKey key,
                torch::jit::Stack *stack) {
  OpInfo &counted = op_info(op);
  if (!counted.metadata) count_fallback(counted);
  OpInfo &info = &target == &op ? counted : op_info(target);
  check_cpu_kernel(target, info, key);
  std::optional<ProfiledFallback> profiled;
  if (C10_UNLIKELY(ProfiledFallback::wanted()) && !counted.metadata) profiled.emplace(counted);
  FallbackScope scope(info.name.name.c_str());
  const size_t first = stack->size() - info.args.size();
  for (size_t i = 0; i < info.args.size(); i++) {
    operand_to_cpu(scope, info.args[i], info.host_operands, (*stack)[first + i]);
  }
  scope.begin(info.whole_storages);
  if (C10_UNLIKELY(profiled.has_value())) profiled->set_device(scope.device());
  if (C10_UNLIKELY(info.generator >= 0) && scope.device()) {
    c10::IValue &generator = (*stack)[first + static_cast<size_t>(info.generator)];
    generator = fallback_generator(generator.toOptional<at::Generator>(), scope.device()->index());
  }
  target.redispatchBoxed(c10::DispatchKeySet(key), stack);
  scope.restore();
  results_to_device(scope, info, stack);
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  run_on_cpu(op, op, c10::DispatchKey::CPU, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
// Operators that no autocast list names run in the dtype of their operands. Without this every operator fails under
// autocast.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace torch_backend
