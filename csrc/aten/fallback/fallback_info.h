// fallback_info.h: what the fallback knows of each operator, looked up once per call, and the operator's count in the
// ledger.
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
  bool metadata = false;           // computes nothing on elements: views and questions about sparsity; never counted
  bool host_operands = false;      // takes host tensors of any shape beside device tensors, as CUDA does
  bool whole_storages = false;     // may use elements of the operands' storages that are not the operands'
  std::atomic<uint64_t> count{0};  // uses since the start or the last reset
  // The key last found to have a kernel.
  std::atomic<c10::DispatchKey> kernel_key{c10::DispatchKey::Undefined};
  OpInfo *next = nullptr;  // in its hash chain
};

// The operator's entry, made at first use; lives for ever.
OpInfo &op_info(const c10::OperatorHandle &op);

// "aten::name.overload"
std::string op_name(const OpInfo &info);

// Counts a use; throws c10::NotImplementedError in strict mode.
void count_fallback(OpInfo &info);

}  // namespace torch_backend
