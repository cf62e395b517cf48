// cpu_operators.cpp: see cpu_operators.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/prepare/cpu_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {

void for_each_cpu_operator(c10::DispatchKey key, c10::function_ref<void(const std::string &name)> visit) {
  const std::string space = "aten::";
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    if (name.name.compare(0, space.size(), space) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(key)) continue;
    const std::string local = name.name.substr(space.size());
    visit(name.overload_name.empty() ? local : local + "." + name.overload_name);
  }
}

}  // namespace torch_backend
