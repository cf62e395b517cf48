// refused.cpp: functions of c10d::Backend that the backend does not support. Each throws, with the alternative.
#include <c10/util/Exception.h>

#include "distributed/backend.h"

namespace torch_backend {
namespace {

[[noreturn]] void refuse(const DeviceBackend &backend, const char *function, const char *instead) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the backend '", backend.getBackendName(),
                              "' of torch.distributed does not support ", function, "; ", instead);
}

constexpr const char *kMemory = "allocate tensors with torch.empty; collectives use them in place";

}  // namespace

WorkPtr DeviceBackend::allreduce_sparse(TensorList &tensors, const c10d::AllreduceOptions &options) {
  if (!tensors.empty() && tensors[0].device().is_cpu()) return host().allreduce(tensors, options);
  refuse(*this, "all_reduce of sparse tensors", "use to_dense(), or reduce CPU tensors");
}

DeviceBackend::BackendPtr DeviceBackend::merge(const c10::intrusive_ptr<c10d::Store> &,
                                               const c10::intrusive_ptr<Options> &, const int &, const int &) {
  refuse(*this, "merge_remote_group", "create a group of all ranks with init_process_group or new_group");
}

std::shared_ptr<c10::Allocator> DeviceBackend::getMemAllocator() { refuse(*this, "mem_allocator", kMemory); }
at::Tensor DeviceBackend::allocateTensor(long, at::TensorOptions) { refuse(*this, "allocate_tensor", kMemory); }

void DeviceBackend::suspend() {
  refuse(*this, "suspend", "destroy the group with destroy_process_group and create it again");
}
void DeviceBackend::resume() {
  refuse(*this, "resume", "destroy the group with destroy_process_group and create it again");
}
std::unordered_map<std::string, uint64_t> DeviceBackend::getMemoryStats() {
  refuse(*this, "memory_stats", "use torch.accelerator.memory_stats() for the memory of the device");
}

void DeviceBackend::startTimeEstimate() {
  refuse(*this, "time estimates", "measure the collectives with torch.profiler");
}
float DeviceBackend::endTimeEstimate() {
  refuse(*this, "time estimates", "measure the collectives with torch.profiler");
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10d::ReconfigureHandle DeviceBackend::get_reconfigure_handle() const {
  refuse(*this, "get_reconfigure_handle", "use shrink_group to continue without some ranks, or create a new group");
}
WorkPtr DeviceBackend::reconfigure(const c10d::ReconfigureOptions &) {
  refuse(*this, "reconfigure", "use shrink_group to continue without some ranks, or create a new group");
}
#endif

#ifdef C10D_BACKEND_HAS_WINDOW
c10::intrusive_ptr<c10d::Window> DeviceBackend::new_window(const std::optional<at::Tensor> &) {
  refuse(*this, "new_window", "use send and recv, or batch_isend_irecv");
}
#endif

}  // namespace torch_backend
