// composed.cpp: see composed.h.
#include "aten/prepare/composed.h"

#include <atomic>

#include "hal_op_ids.h"

namespace torch_backend {

namespace {
std::atomic<uint64_t> composed_counts[HAL_OP_ID_COUNT];
}

void count_composed(uint32_t op) { composed_counts[op].fetch_add(1, std::memory_order_relaxed); }
uint64_t composed_count(uint32_t op) {
  return op < HAL_OP_ID_COUNT ? composed_counts[op].load(std::memory_order_relaxed) : 0;
}
void reset_composed_counts() {
  for (std::atomic<uint64_t> &count : composed_counts) count.store(0, std::memory_order_relaxed);
}

}  // namespace torch_backend
