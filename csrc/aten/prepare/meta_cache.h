// meta_cache.h: remembers the results of ATen's meta functions: sizes, strides and dtype of an operator's results. Many
// of these functions are Python and take up to milliseconds. Their results depend only on the sizes, strides and dtypes
// of the tensors, on the other arguments and on the default dtype. For the same calls it remembers which plugins have
// declined them.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/DimVector.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string_view>

#include "aten/prepare/aten_op.h"

namespace torch_backend {

// All that the results of one call of a meta function depend on.
class MetaKey {
 public:
  explicit MetaKey(const AtenOp &functional);
  // The same of an operator's number, whose arguments are those of the frozen list. There is no meta function.
  explicit MetaKey(uint32_t op);

  // Adds an argument of the functional overload.
  void add(const at::Tensor &tensor);
  void add(at::TensorList list) { add(at::ITensorListRef(list)); }
  void add(const at::ITensorListRef &list);
  void add(const c10::List<std::optional<at::Tensor>> &list);
  void add(const c10::Scalar &number);
  void add(double number);
  void add(int64_t number);
  void add(bool flag);
  void add(c10::ScalarType dtype);
  void add(c10::IntArrayRef list);
  void add(c10::OptionalIntArrayRef list) { list ? add(*list) : add_none(); }
  void add(c10::ArrayRef<double> list);
  void add(std::string_view text);
  template <size_t kCount>
  void add(const std::array<bool, kCount> &flags) {
    for (const bool flag : flags) add(flag);
  }
  template <class T>
  void add(const std::optional<T> &argument) {
    argument ? add(*argument) : add_none();
  }
  // Types whose values cannot be compared: a generator, a storage ...
  template <class T>
  void add(const T &) {
    is_complete_ = false;
  }

  // Returns whether all arguments are part of the key. Nothing is remembered for other calls, and for very long keys.
  bool is_complete() const { return is_complete_ && words_.size() <= kMostWords; }
  // Returns whether the addresses of all tensors have the alignment on which a plugin's operator may depend.
  bool is_aligned() const { return (addresses_ & (kAlignment - 1)) == 0; }
  size_t words() const { return words_.size(); }
  // Adds a result that the caller has passed. A plugin that declines may look at it; a meta function does not.
  void add_result(const at::Tensor &result);
  size_t hash() const;
  bool operator==(const MetaKey &other) const { return words_ == other.words_; }

 private:
  static constexpr size_t kMostWords = 16384;
  static constexpr uintptr_t kAlignment = 256;  // hal_op_query_fn_t

  void add_none();
  void add_head(uint64_t tag, uint64_t detail = 0) { words_.push_back(tag | detail << 8); }
  void add_bytes(const void *bytes, size_t size);
  void add_number(const at::Tensor &tensor);

  c10::SmallVector<uint64_t, 32> words_;
  bool is_complete_ = true;
  uintptr_t addresses_ = 0;  // the bits that occur in them
};

struct ResultShape {
  at::DimVector sizes, strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // Undefined: there is no such result
};

// The results of one call. `is_determined`: the meta function was called. `is_known`: there is one for the arguments.
struct ResultShapes {
  bool is_determined = false, is_known = false;
  c10::SmallVector<ResultShape, 2> results;
  // The devices (bit = index) whose plugin declines the call if all addresses are aligned.
  mutable std::atomic<uint64_t> declined{0};
};

// Returns the shapes that were remembered for a complete key; NULL if there are none. Any thread. Each thread finds its
// own latest keys without a lock, so shapes that another thread has replaced may be returned. They remain valid.
std::shared_ptr<const ResultShapes> remembered_shapes(const MetaKey &key);

// Remembers shapes for a complete key. When about 8 MB are in use, all are forgotten first.
void remember_shapes(MetaKey key, std::shared_ptr<const ResultShapes> shapes);

}  // namespace torch_backend
