// fallback_info.cpp: the table of operators that used the fallback: argument kinds, counters, strict mode.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_info.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "aten/fallback/fallback.h"

namespace torch_backend {
namespace {

// torch has about 3,500 operators, of which a program uses a few hundred, so chains are short.
constexpr size_t kBuckets = 4096;
std::array<std::atomic<OpInfo *>, kBuckets> buckets;
std::mutex insert_lock;
std::atomic<bool> strict{false};
thread_local uint64_t thread_count = 0;
thread_local const OpInfo *thread_last = nullptr;

// Queries that read no element of a tensor. Views are recognized by their schema.
constexpr std::string_view kMetadataOps[] = {
    "aten::is_set_to",    "aten::_nnz",         "aten::_dimI",         "aten::_dimV",       "aten::sparse_dim",
    "aten::dense_dim",    "aten::is_coalesced", "aten::_coalesced_",   "aten::_indices",    "aten::_values",
    "aten::crow_indices", "aten::col_indices",  "aten::ccol_indices",  "aten::row_indices", "aten::values",
    "aten::indices",      "aten::is_same_size", "aten::_is_zerotensor"};

// Operators that write to their running statistics, although their schema does not declare it.
constexpr std::string_view kStatisticsOps[] = {"aten::native_batch_norm", "aten::batch_norm_update_stats"};
constexpr std::string_view kStatistics[] = {"running_mean", "running_var"};

// Operators that require lengths or sizes in host memory for data on any device.
constexpr std::string_view kHostOperandOps[] = {"aten::_pack_padded_sequence", "aten::_ctc_loss",
                                                "aten::_ctc_loss_backward", "aten::_use_cudnn_ctc_loss"};

// Operators that access other elements of an operand's storage, by their own sizes, strides and offsets. Operators
// outside of ATen may do this, too.
constexpr std::string_view kStorageOps[] = {"aten::resize",
                                            "aten::resize_",
                                            "aten::resize_as",
                                            "aten::resize_as_",
                                            "aten::_resize_output",
                                            "aten::_resize_output_",
                                            "aten::set",
                                            "aten::set_",
                                            "aten::as_strided_copy",
                                            "aten::as_strided_",
                                            "aten::as_strided_scatter"};

template <size_t N>
bool listed(const std::string_view (&list)[N], const std::string &name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_tensor(const c10::Type &type) { return type.kind() == c10::TypeKind::TensorType; }

const c10::Type &unwrap_optional(const c10::Type &type) {
  return type.kind() == c10::TypeKind::OptionalType ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
}

ArgKind kind_of(const c10::Type &declared) {
  const c10::Type &type = unwrap_optional(declared);
  if (is_tensor(type)) return ArgKind::kTensor;
  if (type.kind() == c10::TypeKind::DeviceObjType) return ArgKind::kDevice;
  if (type.kind() != c10::TypeKind::ListType) return ArgKind::kOther;
  const c10::Type &element = *type.castRaw<c10::ListType>()->getElementType();
  if (is_tensor(element)) return ArgKind::kTensorList;
  if (is_tensor(unwrap_optional(element))) return ArgKind::kOptionalTensorList;
  return ArgKind::kOther;
}

bool writes(const c10::AliasInfo *alias) {
  if (!alias) return false;
  const auto &contained = alias->containedTypes();  // `Tensor(a!)[]` is a list of written tensors
  return alias->isWrite() || std::any_of(contained.begin(), contained.end(), [](auto &a) { return a.isWrite(); });
}

// Returns whether every result is a view of an argument, so that nothing is computed.
bool only_views(const c10::FunctionSchema &schema) {
  const auto &returns = schema.returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const c10::Argument &result) {
    return result.alias_info() && !writes(result.alias_info());
  });
}

size_t bucket_of(const c10::FunctionSchema &schema) { return (reinterpret_cast<uintptr_t>(&schema) >> 6) % kBuckets; }

OpInfo *find(OpInfo *chain, const c10::OperatorName &name) {
  while (chain && !(chain->name == name)) chain = chain->next;
  return chain;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle &op) : name(op.operator_name()) {
  const c10::FunctionSchema &schema = op.schema();
  const bool statistics = listed(kStatisticsOps, name.name);
  for (const c10::Argument &argument : schema.arguments()) {
    if (unwrap_optional(*argument.type()).kind() == c10::TypeKind::GeneratorType) {
      generator = static_cast<int32_t>(args.size());
    }
    const bool written = writes(argument.alias_info()) || (statistics && listed(kStatistics, argument.name()));
    args.push_back({kind_of(*argument.type()), written});
  }
  for (const c10::Argument &result : schema.returns()) returns.push_back(kind_of(*result.type()));
  metadata = only_views(schema) || listed(kMetadataOps, name.name);
  host_operands = listed(kHostOperandOps, name.name);
  whole_storages = listed(kStorageOps, name.name) || name.name.compare(0, 6, "aten::") != 0;
}

OpInfo &op_info(const c10::OperatorHandle &op) {
  // The schema's address is only the hash: an operator may be deregistered and another one created at its address.
  std::atomic<OpInfo *> &bucket = buckets[bucket_of(op.schema())];
  const c10::OperatorName &name = op.operator_name();
  if (OpInfo *info = find(bucket.load(std::memory_order_acquire), name)) return *info;
  const std::lock_guard<std::mutex> guard(insert_lock);
  if (OpInfo *info = find(bucket.load(std::memory_order_relaxed), name)) return *info;
  auto *info = new OpInfo(op);
  info->next = bucket.load(std::memory_order_relaxed);
  bucket.store(info, std::memory_order_release);
  return *info;
}

std::string op_name(const OpInfo &info) {
  return info.name.overload_name.empty() ? info.name.name : info.name.name + "." + info.name.overload_name;
}

void count_fallback(OpInfo &info) {
  TORCH_CHECK_NOT_IMPLEMENTED(!strict.load(std::memory_order_relaxed), "The operator '", op_name(info),
                              "' has no native kernel for these arguments on device type '",
                              c10::get_privateuse1_backend(),
                              "', and the fallback to the CPU is disabled (strict mode). Allow it with "
                              "torch_backend.fallback.strict(False).");
  info.count.fetch_add(1, std::memory_order_relaxed);
  thread_count++;
  thread_last = &info;
}

ThreadFallbacks thread_fallbacks() { return {thread_count, thread_last ? op_name(*thread_last) : std::string()}; }

bool set_fallback_strict(bool value) { return strict.exchange(value); }

bool fallback_strict() { return strict.load(); }

std::vector<FallbackEntry> fallback_report() {
  std::vector<FallbackEntry> report;
  for (const auto &bucket : buckets) {
    for (const OpInfo *info = bucket.load(std::memory_order_acquire); info; info = info->next) {
      if (const uint64_t count = info->count.load(std::memory_order_relaxed)) report.push_back({op_name(*info), count});
    }
  }
  std::sort(report.begin(), report.end(), [](const FallbackEntry &a, const FallbackEntry &b) {
    return a.count != b.count ? a.count > b.count : a.op < b.op;
  });
  return report;
}

void fallback_reset() {
  for (const auto &bucket : buckets) {
    for (OpInfo *info = bucket.load(std::memory_order_acquire); info; info = info->next) info->count.store(0);
  }
}

}  // namespace torch_backend
