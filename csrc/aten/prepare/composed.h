// composed.h: how often operators that have no kernel of their own were answered by others of the device
// (torch_backend.ops.report). By the operators' numbers, from any thread.
#pragma once

#include <cstdint>

namespace torch_backend {

void count_composed(uint32_t op);
uint64_t composed_count(uint32_t op);
void reset_composed_counts();

}  // namespace torch_backend
