// hosts.h: transports of groups whose ranks are on several hosts (hal/comm.h): shared memory within a host, Gloo between
// hosts.
#pragma once

#include "distributed/backend.h"
#include "hal/comm.h"

namespace torch_backend {

// Connects the ranks of a group, by a connection of its own to their store. Backends between hosts are made by `make`.
// `needs_shared`: HAL_UNIMPLEMENTED where no two ranks are on one host.
hal_status_t make_hosts_transport(const DeviceBackend::Members &members, const DeviceBackend::MakeHostBackend &make,
                                  std::chrono::milliseconds timeout, bool needs_shared,
                                  hal_comm_transport_t *transport);

}  // namespace torch_backend
