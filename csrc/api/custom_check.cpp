// custom_check.cpp: checks of a custom operator's arguments. An error message names operator, argument and value.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <sstream>

#include "api/custom_op.h"

namespace torch_backend {
namespace {

std::string list_of(c10::ArrayRef<c10::ScalarType> dtypes) {
  std::ostringstream text;
  for (const c10::ScalarType *dtype = dtypes.begin(); dtype != dtypes.end(); dtype++)
    text << (dtype == dtypes.begin() ? "" : ", ") << *dtype;
  return text.str();
}

}  // namespace

bool CustomCheck::device(const char *first_name, const at::Tensor &first, const char *name,
                         const at::Tensor &other) const {
  if (!other.defined() || other.device() == first.device()) return true;
  TORCH_CHECK(quiet_, "Expected all tensors to be on the same device, but found at least two devices, ", first.device(),
              " and ", other.device(), "! (", op_, ": '", first_name, "' is on ", first.device(), ", '", name,
              "' is on ", other.device(), ")");
  return false;
}

bool CustomCheck::device(const char *first_name, const at::Tensor &first, const char *name,
                         const std::optional<at::Tensor> &other) const {
  return !other || device(first_name, first, name, *other);
}

bool CustomCheck::device(const char *first_name, const at::Tensor &first, const char *name,
                         at::TensorList others) const {
  return std::all_of(others.begin(), others.end(),
                     [&](const at::Tensor &other) { return device(first_name, first, name, other); });
}

bool CustomCheck::dtype(const at::Tensor &tensor, int position, const char *name,
                        c10::ArrayRef<c10::ScalarType> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), tensor.scalar_type()) != allowed.end()) return true;
  TORCH_CHECK(quiet_, "Expected tensor for argument #", position, " '", name, "' to have ",
              allowed.size() == 1 ? "scalar type " : "one of the following scalar types: ", list_of(allowed),
              "; but got ", tensor.scalar_type(), " instead (while checking arguments for ", op_, ")");
  return false;
}

bool CustomCheck::dtype(at::TensorList tensors, int position, const char *name,
                        c10::ArrayRef<c10::ScalarType> allowed) const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor &tensor) { return dtype(tensor, position, name, allowed); });
}

bool CustomCheck::same_dtype(const at::Tensor &tensor, const char *name, const at::Tensor &other,
                             const char *other_name) const {
  if (tensor.scalar_type() == other.scalar_type()) return true;
  TORCH_CHECK(quiet_, op_, ": expected '", name, "' to have the dtype of '", other_name, "', ", other.scalar_type(),
              ", but got ", tensor.scalar_type());
  return false;
}

bool CustomCheck::same_dtype(at::TensorList tensors, const char *name, const at::Tensor &other,
                             const char *other_name) const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor &tensor) { return same_dtype(tensor, name, other, other_name); });
}

bool CustomCheck::rank(const at::Tensor &tensor, const char *name, int64_t count, bool exact,
                       const char *pattern) const {
  if (exact ? tensor.dim() == count : tensor.dim() >= count) return true;
  TORCH_CHECK(quiet_, op_, ": expected '", name, "' to have the shape ", pattern, ", but got ", tensor.sym_sizes());
  return false;
}

bool CustomCheck::size(const at::Tensor &tensor, const char *name, int64_t dim, const c10::SymInt &wanted,
                       const char *symbol, const char *source) const {
  if (tensor.sym_size(dim).sym_eq(wanted).guard_bool(__FILE__, __LINE__)) return true;
  TORCH_CHECK(quiet_, op_, ": expected dimension ", dim, " of '", name, "' to have the size ", wanted,
              source ? std::string(" (") + symbol + " of '" + source + "')" : std::string(), ", but '", name,
              "' has the shape ", tensor.sym_sizes());
  return false;
}

bool CustomCheck::leading(const at::Tensor &tensor, const char *name, int64_t fixed, c10::SymIntArrayRef leading,
                          const char *source) const {
  const int64_t count = tensor.dim() - fixed;
  bool equal = count == static_cast<int64_t>(leading.size());
  for (int64_t i = 0; equal && i < count; i++)
    equal = tensor.sym_size(i).sym_eq(leading[static_cast<size_t>(i)]).guard_bool(__FILE__, __LINE__);
  if (equal) return true;
  TORCH_CHECK(quiet_, op_, ": expected the leading dimensions of '", name, "' to be ", leading, " as those of '",
              source, "', but '", name, "' has the shape ", tensor.sym_sizes());
  return false;
}

bool CustomCheck::number(double value, const char *name, double least, double most) const {
  if (value >= least && value <= most) return true;
  TORCH_CHECK_VALUE(quiet_, op_, ": expected ", least, " <= ", name, " <= ", most, ", but got ", value);
  return false;
}

}  // namespace torch_backend
