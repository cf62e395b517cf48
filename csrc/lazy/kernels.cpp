// kernels.cpp: see kernels.h. One boxed kernel serves all operators. In-place writes and views are those of the wrapped
// tensors, so functionalization is not needed.
#include "lazy/kernels.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "core/lazy/dtype.h"
#include "core/lazy/tensor.h"
#include "lazy/autocast.h"
#include "lazy/direct.h"
#include "lazy/guard.h"
#include "lazy/views.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

// Arguments whose tensors may be on the CPU: for operators that copy between devices, "" = all; else indices, and
// lengths that the host reads.
const std::unordered_map<std::string, std::string> &takes_host() {
  static const std::unordered_map<std::string, std::string> arguments = {
      {"aten::copy_", ""},
      {"aten::copy", ""},
      {"aten::_to_copy", ""},
      {"aten::_copy_from", ""},
      {"aten::_copy_from_and_resize", ""},
      {"aten::_foreach_copy_", ""},
      {"aten::index", "indices"},
      {"aten::index_put", "indices"},
      {"aten::index_put_", "indices"},
      {"aten::_index_put_impl_", "indices"},
      {"aten::_unsafe_index", "indices"},
      {"aten::_unsafe_index_put", "indices"},
      {"aten::tensor_split", "tensor_indices_or_sections"},
      {"aten::_pack_padded_sequence", "lengths"}};
  return arguments;
}

bool may_be_on_host(const c10::FunctionSchema &schema, size_t argument) {
  const auto found = takes_host().find(schema.name());
  return found != takes_host().end() && (found->second.empty() || found->second == schema.arguments()[argument].name());
}

bool moves_between_devices(const c10::FunctionSchema &schema) {
  const auto found = takes_host().find(schema.name());
  return found != takes_host().end() && found->second.empty();
}

// Returns the name of a tensor's type as in Python, torch.FloatTensor; toString() has other names for newer dtypes.
std::string type_of(const at::Tensor &tensor) {
  const std::string device = tensor.is_cpu() ? "" : c10::DeviceTypeName(tensor.device().type(), true) + ".";
  return "torch." + device + c10::toString(tensor.scalar_type()) + "Tensor";
}

// Returns a wrapper that lazy_inner has checked before.
LazyTensorImpl *known(const at::Tensor &wrapper) {
  return static_cast<LazyTensorImpl *>(wrapper.unsafeGetTensorImpl());
}

// The state of one call.
struct Call {
  const c10::OperatorHandle &op;
  Stack &stack;
  size_t base;                                 // of the arguments on the stack
  c10::SmallVector<at::Tensor, 6> wrappers{};  // the lazy arguments, in their order
  c10::DeviceIndex index = -1;                 // of the lazy device
  bool goes_elsewhere = false;                 // a device argument is of another type
  std::optional<c10::ScalarType> requested{};  // the dtype of an argument, if dtypes are narrowed
  c10::DispatchKeySet keys{};                  // of the tensors that the operator receives

  const c10::FunctionSchema &schema() const { return op.schema(); }

  void take_index(c10::DeviceIndex found) {
    if (C10_LIKELY(index == found)) return;
    TORCH_CHECK(index == -1 || moves_between_devices(schema()),
                "Expected all tensors to be on the same device, but found at least two devices, lazy:", int{index},
                " and lazy:", int{found}, "!\n", op.schema().name(),
                ": copy one of them to the other's device first (tensor.to('lazy:", int{index}, "'))");
    if (index == -1) index = found;
  }

  [[noreturn]] void refuse(const at::Tensor &tensor, size_t argument) const {
    TORCH_CHECK(false, "Input tensor is not a lazy tensor: ", type_of(tensor), "\noperator ", schema().name(),
                ", argument ", argument, " ('", schema().arguments()[argument].name(), "'): it is on ", tensor.device(),
                "; move it with .to('lazy:", index == -1 ? 0 : int{index}, "')");
  }

  at::Tensor unwrap(at::Tensor tensor, size_t argument) {
    if (!tensor.defined()) return tensor;
    if (C10_LIKELY(is_lazy(tensor))) {
      take_index(tensor.device().index());
      const at::Tensor &inner = lazy_inner(tensor);
      keys = keys | inner.key_set();
      wrappers.push_back(std::move(tensor));
      return inner;
    }
    if (tensor.dim() != 0 && !may_be_on_host(schema(), argument)) refuse(tensor, argument);
    keys = keys | tensor.key_set();
    return tensor;
  }

  void unwrap(c10::IValue &value, size_t argument) {
    if (value.isTensor())
      value = unwrap(std::move(value).toTensor(), argument);
    else if (value.isList() || value.isDevice())
      unwrap_other(value, argument);
  }
  void unwrap_other(c10::IValue &value, size_t argument);
  at::Tensor wrap(at::Tensor result);
  void wrap(c10::IValue &value);
  void refresh();
  void narrow();
  void widen_indices();
  at::Tensor wrap_narrowed(const at::Tensor &result) const;
};

void Call::unwrap_other(c10::IValue &value, size_t argument) {
  if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    if (device.type() != kLazyType) {
      goes_elsewhere = true;
      return;
    }
    const auto number = device.index() == -1 ? static_cast<c10::DeviceIndex>(hal_device_current()) : device.index();
    if (wrappers.empty()) index = number;  // the device of a factory's result
    value = c10::Device(kDevice, number);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, unwrap(list.get(i), argument));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<at::Tensor> element = list.get(i);
      if (element) list.set(i, unwrap(*element, argument));
    }
    value = std::move(list);
  }
}

// Returns the passed wrapper if an operator returns one of its arguments.
at::Tensor Call::wrap(at::Tensor result) {
  if (!result.defined() || result.device().type() != kDevice) return result;
  for (const at::Tensor &wrapper : wrappers)
    if (known(wrapper)->inner().is_same(result)) return wrapper;
  if (goes_elsewhere) return result;  // on the eager device
  return C10_LIKELY(!lazy_dtypes().narrows()) ? make_lazy(std::move(result)) : wrap_narrowed(result);
}

void Call::wrap(c10::IValue &value) {
  if (value.isTensor()) {
    value = wrap(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, wrap(list.get(i)));
    value = std::move(list);
  }
}

bool names_dtype(const c10::Argument &argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

// Arguments for which operators accept long only.
const std::unordered_set<std::string> &takes_long() {
  static const std::unordered_set<std::string> names = {"index",         "indices",        "target", "targets",
                                                        "input_lengths", "target_lengths", "offsets"};
  return names;
}

// If long is computed as int (LTC_USE_32BIT_LONG), converts indices of elements to long for the operator.
void Call::widen_indices() {
  const auto widened = [this](const at::Tensor &inner) {
    const auto says_long = [&inner](const at::Tensor &wrapper) {
      return wrapper.scalar_type() == c10::kLong && lazy_inner(wrapper).is_same(inner);
    };
    const bool wide =
        inner.defined() && inner.scalar_type() == c10::kInt && std::any_of(wrappers.begin(), wrappers.end(), says_long);
    return wide ? inner.to(c10::kLong) : inner;
  };
  for (size_t i = 0; i < schema().arguments().size(); ++i) {
    c10::IValue &value = stack[base + i];
    if (takes_long().count(schema().arguments()[i].name()) == 0) continue;
    if (value.isTensor()) {
      value = widened(value.toTensor());
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList().copy();
      for (size_t k = 0; k < list.size(); ++k)
        if (const std::optional<at::Tensor> one = list.get(k)) list.set(k, widened(*one));
      value = std::move(list);
    }
  }
}

// If dtypes are narrowed, replaces a dtype argument by the dtype in which it is computed. A copy to another device has
// the reported dtype.
void Call::narrow() {
  const LazyDtypes &dtypes = lazy_dtypes();
  if (dtypes.of_long != c10::kLong && !wrappers.empty()) widen_indices();
  for (size_t i = 0; i < schema().arguments().size(); ++i) {
    if (!names_dtype(schema().arguments()[i])) continue;
    c10::IValue &value = stack[base + i];
    if (goes_elsewhere) {
      if (value.isNone() && !wrappers.empty()) value = wrappers.front().scalar_type();
      continue;
    }
    if (value.isNone() && wrappers.empty() && schema().name() == "aten::_to_copy")
      value = stack[base].toTensor().scalar_type();  // from the host
    if (!value.isInt()) continue;
    requested = value.toScalarType();
    TORCH_CHECK_NOT_IMPLEMENTED(
        schema().operator_name() != c10::OperatorName("aten::view", "dtype") ||
            (dtypes.physical(*requested) == *requested &&
             lazy_inner(wrappers.front()).dtype() == wrappers.front().dtype()),
        "view of ", wrappers.front().scalar_type(), " as ", *requested,
        ": lazy tensors of one of these dtypes are computed in a narrower one (LTC_USE_BF16 and similar settings), so "
        "there "
        "are no such bits");
    value = dtypes.physical(*requested);
  }
}

// Wraps a result if dtypes are narrowed: it reports the requested dtype, or that of the operands that are computed in
// its dtype.
at::Tensor Call::wrap_narrowed(const at::Tensor &result) const {
  const LazyDtypes &dtypes = lazy_dtypes();
  const c10::ScalarType computed = result.scalar_type();
  if (requested && dtypes.physical(*requested) == computed) return make_lazy(result, *requested);
  std::optional<c10::ScalarType> reported;
  for (const at::Tensor &wrapper : wrappers)
    if (lazy_inner(wrapper).scalar_type() == computed)
      reported = reported ? c10::promoteTypes(*reported, wrapper.scalar_type()) : wrapper.scalar_type();
  const bool is_new = schema().returns().size() == 1 && !schema().returns()[0].alias_info();
  const c10::ScalarType narrower = dtypes.physical(computed);
  if (!reported && is_new && narrower != computed) return make_lazy(result.to(narrower), computed);
  return make_lazy(result, reported.value_or(computed));
}

// Updates the shapes of arguments that an operator wrote, because out= and resize_ change them.
void Call::refresh() {
  for (const at::Tensor &wrapper : wrappers)
    if (C10_UNLIKELY(known(wrapper)->is_stale())) known(wrapper)->refresh();
}

// Returns the arguments with all tensors made contiguous. Some kernels require that, and callers skip it, because
// wrappers always appear contiguous.
Stack in_order(const Stack &arguments) {
  Stack result = arguments;
  for (c10::IValue &value : result)
    if (value.isTensor() && value.toTensor().defined()) value = value.toTensor().contiguous();
  return result;
}

// Returns whether the CPU's kernel runs, with its own result. Autograd's formulas make operands contiguous for some of
// these kernels, or check whether they are. Wrappers always appear contiguous, so the kernel must receive contiguous
// tensors.
bool is_of_the_cpu(const c10::OperatorHandle &op) {
  const std::vector<c10::Argument> &returns = op.schema().returns();
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
         std::none_of(returns.begin(), returns.end(),
                      [](const c10::Argument &one) { return one.alias_info() != nullptr; });
}

void put_in_order(Stack *stack, size_t base, Stack arguments) {
  stack->resize(base);
  for (c10::IValue &value : arguments) stack->push_back(std::move(value));
}

bool requires_order(const c10::Error &error) {
  return std::string(error.what_without_backtrace()).find("contiguous") != std::string::npos;
}

// Runs the operator on the unwrapped arguments.
void run_inner(const c10::OperatorHandle &op, Stack *stack, const Call &call) {
  const auto lies_in_order = [](const at::Tensor &wrapper) { return known(wrapper)->inner().is_contiguous(); };
  const bool ordered =
      std::all_of(call.wrappers.begin(), call.wrappers.end(), lies_in_order) || op.schema().is_mutable();
  const LazyGuard guard(call.index);
  if (C10_LIKELY(ordered && !call.wrappers.empty() && goes_to_kernel(call.keys)))
    return op.redispatchBoxed(kKeySet, stack);
  // The casts of lazy tensors have been applied already (autocast.cpp)
  std::optional<c10::impl::ExcludeDispatchKeyGuard> as_it_is;
  if (C10_UNLIKELY(at::autocast::is_autocast_enabled(kDevice))) as_it_is.emplace(c10::DispatchKey::AutocastPrivateUse1);
  if (C10_LIKELY(ordered)) return op.callBoxed(stack);
  const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(call.base), stack->end());
  if (is_of_the_cpu(op)) put_in_order(stack, call.base, in_order(arguments));
  try {
    op.callBoxed(stack);
  } catch (const c10::Error &error) {
    if (!requires_order(error)) throw;
    put_in_order(stack, call.base, in_order(arguments));
    op.callBoxed(stack);
  }
}

void run(const c10::OperatorHandle &op, Stack *stack) {
  const size_t count = op.schema().arguments().size();
  Call call{op, *stack, stack->size() - count};
  for (size_t i = 0; i < count; ++i) call.unwrap((*stack)[call.base + i], i);
  if (call.index >= 0) keep_lazy(call.index);
  if (C10_UNLIKELY(lazy_dtypes().narrows())) call.narrow();
  run_inner(op, stack, call);
  call.refresh();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) call.wrap((*stack)[i]);
}

// Returns whether torch has a device-independent kernel for the operator that would run on the wrappers.
bool is_explicit(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

bool has_tensor_or_device(const c10::FunctionSchema &schema) {
  for (const c10::Argument &argument : schema.arguments()) {
    const std::string type = argument.type()->str();
    if (type.find("Tensor") != std::string::npos || type.find("Device") != std::string::npos) return true;
  }
  return false;
}

// Returns whether the device has its own kernel, which autograd and similar keys do not decompose.
bool has_own_kernel(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Composite kernels that only call other operators run on wrappers as well as on tensors. Those that read strides or
// storages do not, so all composite operators are registered here.
void take_over(torch::Library &library) {
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !has_tensor_or_device(op->schema())) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::Lazy)) continue;
    const std::string local = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (has_own_kernel(*op) && register_direct(library, local, *op, &run)) continue;
    if (!is_explicit(*op)) continue;
    library.impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

void refuse_sparse(const c10::OperatorHandle &op, Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(),
                              ": a sparse result cannot be a tensor of device type 'lazy'; compute it on '",
                              c10::Device(kDevice), "', which supports it (device='", c10::Device(kDevice), "')");
}

}  // namespace

void enable_lazy_device() {
  static bool enabled = false;
  if (enabled) return;
  const auto add = c10::Dispatcher::singleton().findSchema({"aten::add", "Tensor"});
  TORCH_CHECK(add && !add->hasKernelForDispatchKey(c10::DispatchKey::Lazy),
              "the device type 'lazy' has kernels of another backend already (torch._lazy.ts_backend.init()?); "
              "torch_backend's and "
              "that one cannot be used in one process");
  static std::vector<std::unique_ptr<torch::Library>> libraries;  // exist until the process ends
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, "_", c10::DispatchKey::Lazy, __FILE__, __LINE__));
  libraries.back()->fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, "_", c10::DispatchKey::SparseLazy, __FILE__, __LINE__));
  libraries.back()->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::Lazy, __FILE__, __LINE__));
  register_lazy_views(*libraries.back(), &run);
  take_over(*libraries.back());
  libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradLazy,
                                                       __FILE__, __LINE__));
  register_lazy_view_copies(*libraries.back());
  enable_lazy_autocast();
  install_lazy_guard();
  lazy_dtypes_wanted(true);  // throws an error now if the environment is invalid
  enabled = true;
}

}  // namespace torch_backend
