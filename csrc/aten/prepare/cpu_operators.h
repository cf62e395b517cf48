// cpu_operators.h: the operators of ATen that have a kernel of the CPU, under a key that the device has too.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/util/FunctionRef.h>

#include <string>

namespace torch_backend {

// Calls `visit` with the name, such as "add.Tensor", of each operator of ATen that has its own kernel under a key of
// the CPU.
void for_each_cpu_operator(c10::DispatchKey key, c10::function_ref<void(const std::string &name)> visit);

}  // namespace torch_backend
