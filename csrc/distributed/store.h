// store.h: torch's store of a group's keys, as the HAL reads it (hal/comm.h).
#pragma once

#include "distributed/bounded_store.h"
#include "hal/comm.h"

namespace torch_backend {

// Returns the table of a store. Valid as long as `store`.
hal_comm_store_t store_table(BoundedStore &store);

// Creates a store with its own connection and a prefix for its keys, whose calls are bounded by the time.
hal_status_t clone_store(const BoundedStore::StorePtr &store, const std::string &prefix,
                         std::chrono::milliseconds timeout, c10::intrusive_ptr<BoundedStore> *out);

}  // namespace torch_backend
