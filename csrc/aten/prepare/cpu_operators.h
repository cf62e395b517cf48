// cpu_operators.h: which of ATen's operators the CPU has a kernel for, under a key that our device has too.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/util/FunctionRef.h>

#include <string>

namespace torch_backend {

// Calls `visit` with the name, such as "add.Tensor", of each operator of ATen that has a kernel of its own under a key of the CPU's.
void for_each_cpu_operator(c10::DispatchKey key, c10::function_ref<void(const std::string &name)> visit);

}  // namespace torch_backend
