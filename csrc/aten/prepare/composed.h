// composed.h: counts how often operators without their own kernel were composed of other operators of the device
// (torch_backend.ops.report). By operator number, from any thread.
#pragma once

#include <cstdint>

namespace torch_backend {

void count_composed(uint32_t op);
uint64_t composed_count(uint32_t op);
void reset_composed_counts();

}  // namespace torch_backend
