// hosts.h: transports of groups whose ranks are on several hosts (hal/comm.h): shared memory within a host, Gloo
// between hosts.
#pragma once

#include "distributed/backend.h"
#include "hal/comm.h"

namespace torch_backend {

// Connects the ranks of a group, with a separate connection to their store. `make` creates the backends between hosts.
// `flags`: HAL_COMM_HOSTS_*; with HAL_COMM_HOSTS_FLAT one backend runs all collectives.
hal_status_t make_hosts_transport(const DeviceBackend::Members &members, const DeviceBackend::MakeHostBackend &make,
                                  std::chrono::milliseconds timeout, uint32_t flags, hal_comm_transport_t *transport);

}  // namespace torch_backend
