// vendor_call.h: a call of the plugin's own operator with ATen's arguments unchanged: tensors with their dtype, strides
// and memory format, numbers, lists and texts, in the order of the operator's frozen list.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "aten/prepare/composed.h"
#include "aten/prepare/op_call.h"

namespace torch_backend {

// Collects the arguments and results of one call. They are borrowed until `run` has returned.
class VendorCall {
 public:
  VendorCall() = default;
  VendorCall(const VendorCall &) = delete;
  VendorCall &operator=(const VendorCall &) = delete;

  void add(const at::Tensor &tensor);
  void add(const std::optional<at::Tensor> &tensor) { tensor ? add(*tensor) : add_none(); }
  void add(at::TensorList list);
  void add(const at::ITensorListRef &list);
  void add(const c10::List<std::optional<at::Tensor>> &list);
  void add(const c10::Scalar &number);
  void add(double number) { values_.push_back(value(number)); }
  void add(int64_t number) { values_.push_back(value(number)); }
  void add(bool flag) { values_.push_back(value(flag)); }
  void add(c10::ScalarType dtype) { values_.push_back(value(dtype)); }
  void add(c10::IntArrayRef list) { values_.push_back(value(list)); }
  void add(c10::OptionalIntArrayRef list) { list ? add(*list) : add_none(); }
  void add(c10::ArrayRef<double> list);
  void add(std::string_view text);
  template <size_t kCount>
  void add(const std::array<bool, kCount> &flags) {
    add_flags(flags);
  }
  template <class T>
  void add(const std::optional<T> &argument) {
    argument ? add(*argument) : add_none();
  }
  // Types that cannot be passed to a plugin: a storage, a generator that is not the default one ...
  template <class T>
  void add(const T &) {
    possible_ = false;
  }

  // Adds a result; an undefined one is not requested.
  void add_result(const at::Tensor &tensor);
  void add_result(at::TensorList list) {
    for (const at::Tensor &tensor : list) add_result(tensor);
  }

  // Sets the state of the generator, for operators that generate random numbers.
  void set_state(PhiloxState philox) { philox_ = philox; }

  // Returns whether all arguments and results can be passed to a plugin.
  bool is_possible() const { return possible_; }

  // Returns whether the plugin has the operator for the dtype of the first operand or, without one, of the first
  // result.
  bool is_supported(uint32_t op) const;

  // Returns whether an operand shares memory with a result.
  bool reads(const at::Tensor &result) const;

  // Calls the plugin's own operator on the device's current stream. Returns false, without any effect, if it declined.
  // Throws on every other failure.
  bool run(uint32_t op);

  // After `run` has returned false: whether the plugin declines every call with these shapes, strides, dtypes, numbers
  // and alignments.
  bool declines_alike() const { return declines_alike_; }

 private:
  static constexpr size_t kUsual = 12;

  void add_flags(c10::ArrayRef<bool> flags);
  void add_none() { values_.push_back(none_value()); }
  size_t add_operand(const at::Tensor &tensor);

  bool possible_ = true, declines_alike_ = false;
  PhiloxState philox_{0, 0, nullptr};
  const at::Tensor *first_ = nullptr;
  c10::SmallVector<const void *, kUsual> storages_;  // of the operands
  c10::SmallVector<hal_value_t, kUsual> values_;
  // Values and results refer to tensors by number until all are known and the descriptors no longer move.
  c10::SmallVector<hal_tensor_t, kUsual> tensors_;
  c10::SmallVector<int32_t, 6> results_;                                        // -1: not requested
  c10::SmallVector<std::pair<size_t, c10::SmallVector<int32_t, 6>>, 2> lists_;  // by the number of their value
  c10::SmallVector<std::string, 1> texts_;
  c10::SmallVector<std::array<double, 2>, 2> complex_;
};

// While an object of this class exists, calls of `op` by this thread go directly to the portable kernel, because the
// plugin has declined the caller's arguments.
class Declined {
 public:
  Declined() : previous_(declined_op) {}  // not set yet
  explicit Declined(uint32_t op) : Declined() { set(op); }
  ~Declined() { declined_op = previous_; }
  Declined(const Declined &) = delete;
  Declined &operator=(const Declined &) = delete;
  void set(uint32_t op) { declined_op = op; }

 private:
  const uint32_t previous_;
};

}  // namespace torch_backend
