// stable_op.h: the parts of generated libraries of custom operators that work with every version of torch
// (codegen/custom_stable.py; the guide is docs/custom-operators.md). Everything here is compiled into the library. It
// uses LibTorch's stable ABI, the HAL and the C functions of custom_abi.h, and no class of ATen or c10.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "hal/hal.h"
#include "torch_backend/custom_abi.h"

namespace torch_backend::stable {

using torch::stable::Tensor;
using IntArray = torch::headeronly::IntHeaderOnlyArrayRef;
using Tensors = std::vector<Tensor>;

// Throws torch's error message of a failed call of its C functions.
inline void require(AOTITorchError failed) {
  if (failed != TORCH_SUCCESS) torch_backend_throw(torch_exception_get_what_without_backtrace());
}

// Takes an argument of the operator from the stack, and owns it. Text is converted here, because torch 2.13's own
// conversion leaks a copy of it.
template <typename T>
T take(StableIValue value) {
  using torch::stable::detail::to;
  if constexpr (std::is_same_v<T, std::string>) {
    const auto handle = to<StringHandle>(value);
    const char *data = nullptr;
    size_t length = 0;
    require(torch_string_c_str(handle, &data));
    require(torch_string_length(handle, &length));
    std::string text(data, length);
    require(torch_delete_string(handle));
    return text;
  } else if constexpr (std::is_same_v<T, std::optional<std::string>>) {
    const auto cell = to<StableIValue *>(value);
    if (!cell) return std::nullopt;
    std::string text = take<std::string>(*cell);
    require(torch_delete_stable_ivalue(cell));
    return text;
  } else {
    return to<T>(value);
  }
}

// Returns the dtype's number, which is the same in torch and in the HAL.
inline hal_dtype_t dtype_of(const Tensor &tensor) {
  int32_t dtype = 0;
  require(aoti_torch_get_dtype(tensor.get(), &dtype));
  return dtype;
}

// The caller: the device or the CPU, or a torch operator that may be rerouted here if the arguments are suitable.
enum class Caller { kDevice, kCpu, kAttempt };

// The checks of custom_abi.h for all types of an operator's arguments.
class CustomCheck {
 public:
  CustomCheck(const char *op, Caller caller) : check_{op, caller == Caller::kAttempt} {}

  // Checks that `other` is on the device of `first`.
  bool device(const char *first_name, const Tensor &first, const char *name, const Tensor &other) const {
    return torch_backend_check_device(&check_, first_name, first.get(), name, other.get());
  }
  // Checks that argument number `position`, counted from 1, has one of the dtypes.
  bool dtype(const Tensor &tensor, int position, const char *name, std::initializer_list<hal_dtype_t> allowed) const {
    return torch_backend_check_dtype(&check_, tensor.get(), position, name, allowed.begin(), allowed.size());
  }
  // Checks that the tensor has the dtype of `other`.
  bool same_dtype(const Tensor &tensor, const char *name, const Tensor &other, const char *other_name) const {
    return torch_backend_check_same_dtype(&check_, tensor.get(), name, other.get(), other_name);
  }
  // Checks that the tensor has `count` dimensions, or at least as many. `pattern` is the declared shape.
  bool rank(const Tensor &tensor, const char *name, int64_t count, bool exact, const char *pattern) const {
    return torch_backend_check_rank(&check_, tensor.get(), name, count, exact, pattern);
  }
  // Checks that dimension `dim` has the size of the symbol, which argument `source` bound (nullptr: a number).
  bool size(const Tensor &tensor, const char *name, int64_t dim, int64_t wanted, const char *symbol,
            const char *source) const {
    return torch_backend_check_size(&check_, tensor.get(), name, dim, wanted, symbol, source);
  }
  // Checks that all dimensions but the last `fixed` are `sizes`, which argument `source` bound.
  bool leading(const Tensor &tensor, const char *name, int64_t fixed, IntArray sizes, const char *source) const {
    return torch_backend_check_leading(&check_, tensor.get(), name, fixed, sizes.data(), sizes.size(), source);
  }
  // Checks that least <= value <= most.
  bool number(double value, const char *name, double least, double most) const {
    return torch_backend_check_number(&check_, value, name, least, most);
  }

  // The same for a tensor that may be absent.
  bool device(const char *first_name, const Tensor &first, const char *name, const std::optional<Tensor> &other) const {
    return !other || device(first_name, first, name, *other);
  }
  // The same for each tensor of a list.
  bool device(const char *first_name, const Tensor &first, const char *name, const Tensors &others) const {
    for (const Tensor &other : others)
      if (!device(first_name, first, name, other)) return false;
    return true;
  }
  // The same for each tensor of a list.
  bool dtype(const Tensors &tensors, int position, const char *name, std::initializer_list<hal_dtype_t> allowed) const {
    for (const Tensor &tensor : tensors)
      if (!dtype(tensor, position, name, allowed)) return false;
    return true;
  }
  // The same for each tensor of a list.
  bool same_dtype(const Tensors &tensors, const char *name, const Tensor &other, const char *other_name) const {
    for (const Tensor &tensor : tensors)
      if (!same_dtype(tensor, name, other, other_name)) return false;
    return true;
  }

 private:
  torch_backend_check check_;
};

// Returns a new contiguous tensor of the sizes `leading` and `sizes`, on the device of `like`.
inline Tensor new_result(const Tensor &like, IntArray leading, std::initializer_list<int64_t> sizes,
                         hal_dtype_t dtype) {
  std::vector<int64_t> all(leading.begin(), leading.end());
  all.insert(all.end(), sizes.begin(), sizes.end());
  std::vector<int64_t> strides(all.size());
  int64_t stride = 1;
  for (size_t i = all.size(); i-- > 0; stride *= all[i] > 1 ? all[i] : 1) strides[i] = stride;
  int32_t type = 0, index = 0;
  require(aoti_torch_get_device_type(like.get(), &type));
  require(aoti_torch_get_device_index(like.get(), &index));
  AtenTensorHandle made = nullptr;
  require(aoti_torch_empty_strided(static_cast<int64_t>(all.size()), all.data(), strides.data(), dtype, type, index,
                                   &made));
  return Tensor(made);
}

// Returns the contiguous tensor that is passed to the C function.
inline Tensor dense(const Tensor &tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}
// The same for a tensor that may be absent.
inline std::optional<Tensor> dense(const std::optional<Tensor> &tensor) {
  return tensor && tensor->defined() ? std::optional<Tensor>(dense(*tensor)) : std::nullopt;
}
// The same for each tensor of a list.
inline Tensors dense(const Tensors &tensors) {
  Tensors result;
  for (const Tensor &tensor : tensors) result.push_back(dense(tensor));
  return result;
}

// The arguments of one call as the HAL's values, and the objects that they borrow.
class Values {
 public:
  template <typename... T>
  explicit Values(const T &...arguments) {
    (values_.push_back(value(arguments)), ...);
  }
  Values(const Values &) = delete;
  Values &operator=(const Values &) = delete;

  // All arguments in order; valid as long as this object exists.
  const std::vector<hal_value_t> &all() const { return values_; }
  // Returns the HAL's description of a tensor, and stores a reference to the tensor.
  const hal_tensor_t *describe(const Tensor &tensor) {
    tensors_.push_back(tensor);
    const IntArray sizes = tensor.sizes(), strides = tensor.strides();
    void *data = nullptr;
    require(torch_get_mutable_data_ptr(tensor.get(), &data));
    int32_t plugin = 0, ordinal = 0;
    hal_device_locate(tensor.get_device_index(), &plugin, &ordinal);  // not of a tensor of the host
    return &described_.emplace_back(hal_tensor_t{sizeof(hal_tensor_t), data, sizes.data(), strides.data(),
                                                 static_cast<int32_t>(sizes.size()), dtype_of(tensor), ordinal, 0});
  }

 private:
  // Returns a value of a kind; `count` is the length of a list.
  static hal_value_t tagged(uint32_t tag, size_t count = 0) {
    hal_value_t result{};
    result.tag = tag;
    result.count = static_cast<uint32_t>(count);
    return result;
  }
  // Returns the value of an argument of each kind; an absent one has the kind "none".
  template <typename T>
  hal_value_t value(const std::optional<T> &argument) {
    return argument ? value(*argument) : hal_value_t{};
  }
  // A tensor; an undefined one is absent.
  hal_value_t value(const Tensor &tensor) {
    if (!tensor.defined()) return hal_value_t{};
    hal_value_t result = tagged(HAL_VALUE_TENSOR);
    result.u.t = describe(tensor);
    return result;
  }
  // A list of tensors.
  hal_value_t value(const Tensors &list) {
    auto &addresses = lists_.emplace_back();
    for (const Tensor &tensor : list) addresses.push_back(describe(tensor));
    hal_value_t result = tagged(HAL_VALUE_TENSOR_LIST, addresses.size());
    result.u.tl = addresses.data();
    return result;
  }
  // True or false.
  hal_value_t value(bool flag) {
    hal_value_t result = tagged(HAL_VALUE_BOOL);
    result.u.i = flag;
    return result;
  }
  // An integer.
  hal_value_t value(int64_t number) {
    hal_value_t result = tagged(HAL_VALUE_INT);
    result.u.i = number;
    return result;
  }
  // A floating-point number.
  hal_value_t value(double number) {
    hal_value_t result = tagged(HAL_VALUE_DOUBLE);
    result.u.d = number;
    return result;
  }
  // Text, which is borrowed.
  hal_value_t value(const std::string &text) {
    hal_value_t result = tagged(HAL_VALUE_STRING);
    result.u.s = text.c_str();
    return result;
  }
  // A list of integers, which is borrowed.
  hal_value_t value(const std::vector<int64_t> &list) {
    hal_value_t result = tagged(HAL_VALUE_INT_LIST, list.size());
    result.u.il = list.data();
    return result;
  }
  // A list of floating-point numbers, which is borrowed.
  hal_value_t value(const std::vector<double> &list) {
    hal_value_t result = tagged(HAL_VALUE_DOUBLE_LIST, list.size());
    result.u.dl = list.data();
    return result;
  }

  // Deques, because addresses must not change while they grow. Contiguous copies of tensors exist until the call ends.
  std::vector<hal_value_t> values_;
  std::deque<Tensor> tensors_;
  std::deque<hal_tensor_t> described_;
  std::deque<std::vector<const hal_tensor_t *>> lists_;
};

// Makes `device` the thread's current device within a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t device) : previous_(hal_device_current()) {
    if (device == previous_) return;
    const hal_status_t status = hal_device_set_current(device);
    if (status != HAL_OK) torch_backend_throw_status(status);
  }
  ~CurrentDevice() {
    if (hal_device_current() != previous_) hal_device_exchange(previous_);
  }
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

 private:
  int32_t previous_;
};

// One operator of a library; created once, and exists until the process ends.
class CustomOp {
 public:
  // `name` is torch's, "library::operator". `function` serves devices whose plugin has no operator of this name, and
  // may be nullptr. `reference` is torch's name of the operator that runs if there is no kernel, or nullptr.
  CustomOp(const char *name, size_t arguments, hal_op_own_fn_t function, const char *reference)
      : name_(name), reference_(reference) {
    hal_op_desc_t description{};
    description.struct_size = sizeof(description);
    description.name = name;
    description.argument_count = static_cast<uint32_t>(arguments);
    description.fn = function;
    const hal_status_t status = hal_op_define(&description, &number_);
    if (status != HAL_OK) torch_backend_throw_status(status);
  }

  // Queues the operator on the current stream of the device of `like` and writes `results`. Returns false, without any
  // effect, if neither the plugin nor the library has a kernel for these arguments. Calls no kernel if all results are
  // empty.
  template <size_t results_count>
  bool run(const Tensor &like, Values &&values, const std::array<Tensor, results_count> &results) const {
    bool empty = true;
    for (const Tensor &result : results) empty = empty && result.numel() == 0;
    if (empty) return true;
    const int32_t device = like.get_device_index();
    const CurrentDevice current(device);
    std::array<const hal_tensor_t *, results_count> described;
    for (size_t i = 0; i < results_count; i++) described[i] = values.describe(results[i]);
    hal_op_call_t call{};
    call.struct_size = sizeof call;
    call.arg_count = static_cast<uint32_t>(values.all().size());
    call.result_count = results_count;
    call.args = values.all().data();
    call.results = described.data();
    const hal_status_t status = hal_op_run(device, number_, nullptr, &call);
    if (status != HAL_OK && status != HAL_UNIMPLEMENTED) torch_backend_throw_status(status);
    return status == HAL_OK;
  }

  // Runs if there is no kernel: calls the reference, whose results go to the stack, or throws.
  template <typename... T>
  void otherwise(StableIValue *stack, size_t results, const T &...arguments) const {
    if (!reference_) refuse(arguments...);
    std::array<StableIValue, sizeof...(T) + 1> values{torch::stable::detail::from(arguments)...};
    std::vector<StableIValue> call(values.begin(), values.end());
    if (call.size() < results) call.resize(results);
    require(torch_call_dispatcher(reference_, "", call.data(), TORCH_ABI_VERSION));
    for (size_t i = 0; i < results; i++) stack[i] = call[i];
  }

 private:
  // Throws an error: there is no kernel for these arguments and no reference.
  template <typename... T>
  [[noreturn]] void refuse(const T &...arguments) const {
    std::vector<AtenTensorHandle> tensors;
    const auto add = [&](const auto &argument) {
      using Argument = std::decay_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, Tensor>) {
        tensors.push_back(argument.get());
      } else if constexpr (std::is_same_v<Argument, std::optional<Tensor>>) {
        if (argument) tensors.push_back(argument->get());
      }
    };
    (add(arguments), ...);
    torch_backend_refuse(name_, tensors.data(), tensors.size());
  }

  const char *name_, *reference_;
  uint32_t number_ = 0;
};

// Passes results to torch.
template <size_t count>
void give(StableIValue *stack, const std::array<Tensor, count> &results) {
  for (size_t i = 0; i < count; i++) stack[i] = torch::stable::detail::from(results[i]);
}
// The same for undefined tensors, which mean that the arguments are unsuitable.
template <size_t count>
void give_nothing(StableIValue *stack) {
  give(stack, std::array<Tensor, count>());
}

}  // namespace torch_backend::stable
