// vendor_call.cpp: see vendor_call.h.
#include "aten/prepare/vendor_call.h"

#include <algorithm>

#include "aten/prepare/structured.h"

namespace torch_backend {

thread_local uint32_t declined_op = kNoOp;

namespace {

// Returns whether a tensor is a strided device tensor without lazy bits.
bool is_bare(const at::Tensor &tensor) {
  return is_device_tensor(tensor) && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

constexpr int32_t kAbsent = -1;

// Returns a value that refers to its tensor, text or parts by number until the call runs.
hal_value_t numbered(uint32_t tag, size_t number) {
  hal_value_t argument{};
  argument.tag = tag;
  argument.u.i = static_cast<int64_t>(number);
  return argument;
}

}  // namespace

size_t VendorCall::add_operand(const at::Tensor &tensor) {
  if (!first_) first_ = &tensor;
  storages_.push_back(tensor.storage().unsafeGetStorageImpl());
  tensors_.push_back(describe(tensor));
  return tensors_.size() - 1;
}

void VendorCall::add(const at::Tensor &tensor) {
  if (!tensor.defined()) return add_none();
  if (tensor.device().type() == c10::kCPU && tensor.dim() == 0) return add(tensor.item());
  if (!is_bare(tensor)) {
    possible_ = false;
    return;
  }
  values_.push_back(numbered(HAL_VALUE_TENSOR, add_operand(tensor)));
}

void VendorCall::add(at::TensorList list) { add(at::ITensorListRef(list)); }

void VendorCall::add(const at::ITensorListRef &list) {
  hal_value_t operands{};
  operands.tag = HAL_VALUE_TENSOR_LIST;
  operands.count = static_cast<uint32_t>(list.size());
  lists_.emplace_back(values_.size(), c10::SmallVector<int32_t, 6>());
  values_.push_back(operands);
  for (const at::Tensor &tensor : list) {
    if (tensor.defined() && !is_bare(tensor)) possible_ = false;
    lists_.back().second.push_back(possible_ && tensor.defined() ? static_cast<int32_t>(add_operand(tensor)) : kAbsent);
  }
}

void VendorCall::add(const c10::List<std::optional<at::Tensor>> &list) {
  hal_value_t operands{};
  operands.tag = HAL_VALUE_TENSOR_LIST;
  operands.count = static_cast<uint32_t>(list.size());
  lists_.emplace_back(values_.size(), c10::SmallVector<int32_t, 6>());
  values_.push_back(operands);
  for (const std::optional<at::Tensor> tensor : list) {
    const bool given = tensor && tensor->defined();
    if (given && !is_bare(*tensor)) possible_ = false;
    lists_.back().second.push_back(possible_ && given ? static_cast<int32_t>(add_operand(*tensor)) : kAbsent);
  }
}

void VendorCall::add(const c10::Scalar &number) {
  if (number.isBoolean()) return add(number.toBool());
  if (number.type() == c10::ScalarType::UInt64) {  // above the largest integer of a call: the plugin is not called
    possible_ = false;
    return add(number.toDouble());
  }
  if (number.isIntegral(/*includeBool=*/false)) return add(number.toLong());
  if (number.isFloatingPoint()) return add(number.toDouble());
  const c10::complex<double> parts = number.toComplexDouble();
  complex_.push_back({parts.real(), parts.imag()});
  values_.push_back(numbered(HAL_VALUE_COMPLEX, complex_.size() - 1));
}

void VendorCall::add(c10::ArrayRef<double> list) {
  hal_value_t numbers{};
  numbers.tag = HAL_VALUE_DOUBLE_LIST;
  numbers.count = static_cast<uint32_t>(list.size());
  numbers.u.dl = list.data();
  values_.push_back(numbers);
}

void VendorCall::add(std::string_view text) {
  texts_.emplace_back(text);
  values_.push_back(numbered(HAL_VALUE_STRING, texts_.size() - 1));
}

void VendorCall::add_flags(c10::ArrayRef<bool> flags) {
  texts_.emplace_back(flags.begin(), flags.end());
  values_.push_back(numbered(HAL_VALUE_BOOL_LIST, texts_.size() - 1));
  values_.back().count = static_cast<uint32_t>(flags.size());
}

void VendorCall::add_result(const at::Tensor &tensor) {
  if (tensor.defined() && !is_bare(tensor)) possible_ = false;
  results_.push_back(possible_ && tensor.defined() ? static_cast<int32_t>(add_operand(tensor)) : kAbsent);
}

bool VendorCall::reads(const at::Tensor &result) const {
  const void *const storage = result.storage().unsafeGetStorageImpl();
  return std::find(storages_.begin(), storages_.end(), storage) != storages_.end();
}

bool VendorCall::is_supported(uint32_t op) const {
  if (!possible_ || !first_) return possible_;
  const uint64_t dtypes = hal_op_own_dtypes(first_->device().index(), op);
  return (dtypes >> static_cast<unsigned>(first_->scalar_type())) & 1;
}

bool VendorCall::run(uint32_t op) {
  if (!first_ || !is_supported(op)) return false;
  const auto tensor = [this](int32_t number) { return number == kAbsent ? nullptr : &tensors_[number]; };
  c10::SmallVector<const hal_tensor_t *, kUsual> listed, results;
  for (const auto &[position, members] : lists_)
    for (const int32_t member : members) listed.push_back(tensor(member));
  const hal_tensor_t *const *next = listed.data();
  for (const auto &[position, members] : lists_) {
    values_[position].u.tl = next;
    next += members.size();
  }
  for (hal_value_t &given : values_) {
    const auto number = static_cast<size_t>(given.u.i);
    if (given.tag == HAL_VALUE_TENSOR) given.u.t = &tensors_[number];
    if (given.tag == HAL_VALUE_STRING) given.u.s = texts_[number].c_str();
    if (given.tag == HAL_VALUE_COMPLEX) given.u.dl = complex_[number].data();
    if (given.tag == HAL_VALUE_BOOL_LIST) given.u.bl = reinterpret_cast<const uint8_t *>(texts_[number].data());
  }
  for (const int32_t result : results_) results.push_back(tensor(result));
  hal_op_call_t call{};
  call.struct_size = sizeof call;
  call.arg_count = static_cast<uint32_t>(values_.size());
  call.result_count = static_cast<uint32_t>(results.size());
  call.args = values_.data();
  call.results = results.data();
  call.seed = philox_.seed;
  call.offset = philox_.offset;
  call.random_state = philox_.state;
  const hal_status_t status = hal_op_run_own(first_->device().index(), op, nullptr, &call);
  if (C10_LIKELY(status == HAL_OK)) return true;
  if (status != HAL_UNIMPLEMENTED) throw_work_status(status);
  declines_alike_ = (call.flags & HAL_RUN_DECLINED_ALIKE) != 0;
  return false;
}

}  // namespace torch_backend
