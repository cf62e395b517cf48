// register.cpp: see register.h.
#include "aten/prepare/register.h"

#include <vector>

namespace torch_backend {

void register_with_dispatcher(const AtenOp &op, c10::KernelFunction kernel, c10::impl::CppSignature signature) {
  static std::vector<c10::RegistrationHandleRAII> registrations;
  registrations.push_back(
      c10::Dispatcher::singleton().registerImpl(op.name(), c10::DispatchKey::PrivateUse1, std::move(kernel), signature,
                                                /*inferred_function_schema=*/nullptr, "registered by torch_backend"));
}

}  // namespace torch_backend
