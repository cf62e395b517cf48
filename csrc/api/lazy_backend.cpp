// lazy_backend.cpp: see lazy_backend.h.
#include "api/lazy_backend.h"

#include <cstdio>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/status.h"

namespace torch_backend {
namespace {

BackendImplInterface &backend_of(void *state) { return *static_cast<BackendImplInterface *>(state); }

// C has no exceptions, so they are converted to a status with their message.
template <typename Function>
hal_status_t guarded(Function function) noexcept {
  try {
    return function();
  } catch (const std::exception &error) {
    return hal_error_set(HAL_INTERNAL, "%s", error.what());
  } catch (...) {
    return hal_error_set(HAL_INTERNAL, "an exception of an unknown type");
  }
}

int32_t accepts(void *state, uint32_t, const char *name, const hal_op_call_t *call) noexcept {
  bool accepted = false;
  const hal_status_t status = guarded([&] {
    accepted = backend_of(state).GetNodeLowering().Supports(name, *call);
    return HAL_OK;
  });
  return status == HAL_OK && accepted;
}

hal_status_t compile(void *state, const hal_ir_t *ir, void **out_program) noexcept {
  return guarded([&] {
    BackendImplInterface &backend = backend_of(state);
    const std::unique_ptr<LoweringContext> context = backend.CreateLoweringContext(*ir);
    if (!context) return HAL_UNIMPLEMENTED;
    for (uint32_t i = 0; i < ir->node_count; ++i)
      if (!backend.GetNodeLowering().Lower(*hal_ir_node(ir, i), *context)) return HAL_UNIMPLEMENTED;
    std::unique_ptr<Computation> computation = context->Build();
    if (!computation) return HAL_UNIMPLEMENTED;
    *out_program = computation.release();
    return HAL_OK;
  });
}

hal_status_t execute(void *, void *program, const hal_ir_run_t *run) noexcept {
  return guarded([&] {
    static_cast<Computation *>(program)->Execute(*run);
    return HAL_OK;
  });
}

void text(void *, const void *program, char *to, size_t room) noexcept {
  guarded([&] {
    std::snprintf(to, room, "%s", static_cast<const Computation *>(program)->ToString().c_str());
    return HAL_OK;
  });
}

void destroy(void *, void *program) noexcept { delete static_cast<Computation *>(program); }

// The owner of each device's backend: a registrar that was replaced does not end the backend of another one.
struct Owners {
  std::mutex mutex;
  std::unordered_map<int32_t, const BackendRegistrar *> of;
};
Owners &owners() {
  static auto *const all = new Owners;  // not destroyed, because registrars may be destroyed later
  return *all;
}

}  // namespace

BackendRegistrar::BackendRegistrar(std::unique_ptr<BackendImplInterface> backend, int32_t device)
    : backend_(std::move(backend)), device_(device) {
  TORCH_CHECK_VALUE(backend_ != nullptr, "BackendRegistrar: there is no backend");
  hal_compiler_t compiler{};
  compiler.struct_size = sizeof(compiler);
  compiler.flags = backend_->FixesNumbers() ? HAL_COMPILER_FIXED_NUMBERS : 0;
  compiler.name = backend_->Name();
  compiler.state = backend_.get();
  compiler.accepts = accepts;
  compiler.compile = compile;
  compiler.execute = execute;
  compiler.text = text;
  compiler.destroy = destroy;
  const std::lock_guard<std::mutex> lock(owners().mutex);
  check(hal_compiler_set(device_, &compiler));
  owners().of[device_] = this;
}

BackendRegistrar::~BackendRegistrar() {
  const std::lock_guard<std::mutex> lock(owners().mutex);
  const auto owner = owners().of.find(device_);
  if (owner == owners().of.end() || owner->second != this) return;  // its programs are destroyed
  owners().of.erase(owner);
  const hal_status_t status = hal_compiler_set(device_, nullptr);
  if (status == HAL_OK) return;
  warn_status(status, "ending a lazy backend");
  backend_.release();  // not destroyed, because its programs may still run
}

hal_compiler_info_t BackendRegistrar::info() const {
  hal_compiler_info_t info{};
  info.struct_size = sizeof(info);
  check(hal_compiler_info(device_, &info));
  return info;
}

}  // namespace torch_backend
