// store.h: torch's store of a group's keys, as the HAL reads it (hal/comm.h).
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hal/comm.h"

namespace torch_backend {

// Returns the table of a store. Valid as long as `store`.
hal_comm_store_t store_table(c10d::Store &store);

}  // namespace torch_backend
