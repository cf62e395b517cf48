// transport.h: host memory between the ranks of a group by Gloo, as the HAL's communicators want it (hal/comm.h).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "hal/comm.h"

namespace torch_backend {

// Returns a transport over a backend for CPU tensors, which it keeps. All types, reductions and uneven counts of hal/comm.h are supported
// but for PROD of complex numbers, and integers of 16 bits where a collective reduces. Sums of float16 and bfloat16 are computed in float32.
hal_comm_transport_t make_host_transport(c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace torch_backend
