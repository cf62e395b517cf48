// fallback_info.h: the properties of an operator that the fallback needs, looked up once per call, and the operator's
// counter.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace torch_backend {

enum class ArgKind : uint8_t { kOther, kTensor, kTensorList, kOptionalTensorList, kDevice };

struct ArgInfo {
  ArgKind kind;
  bool written;  // the operator mutates it
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle &op);

  c10::OperatorName name;
  std::vector<ArgInfo> args;
  std::vector<ArgKind> returns;
  int32_t generator = -1;          // index of the Generator argument
  bool metadata = false;           // does not compute on elements: views and queries about sparsity; never counted
  bool host_operands = false;      // accepts host tensors of any shape together with device tensors, as CUDA does
  bool whole_storages = false;     // may use elements of the operands' storages outside of the operands
  std::atomic<uint64_t> count{0};  // uses since the start or the last reset
  // The key last found to have a kernel.
  std::atomic<c10::DispatchKey> kernel_key{c10::DispatchKey::Undefined};
  OpInfo *next = nullptr;  // next in its hash chain
};

// Returns the operator's entry, created at first use; never destroyed.
OpInfo &op_info(const c10::OperatorHandle &op);

// Returns "aten::name.overload".
std::string op_name(const OpInfo &info);

// Counts a use; throws c10::NotImplementedError in strict mode.
void count_fallback(OpInfo &info);

}  // namespace torch_backend
