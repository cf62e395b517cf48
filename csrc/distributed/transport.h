// transport.h: a transport of the HAL (hal/comm.h) for host memory between the ranks of a group, by Gloo.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "hal/comm.h"

namespace torch_backend {

// Returns a transport over a backend for CPU tensors, of which it owns a reference. It supports all types, reductions
// and uneven counts of hal/comm.h, except PROD of complex numbers, and 16-bit integers where a collective reduces. Sums
// of float16 and bfloat16 are computed in float32.
hal_comm_transport_t make_host_transport(c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace torch_backend
