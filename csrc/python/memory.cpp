// memory.cpp: see memory.h.
#include "memory.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "core/allocator/host_allocator.h"
#include "core/device.h"
#include "core/pool/pool.h"
#include "core/status.h"
#include "core/stream/stream.h"
#include "history.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// ---- the device's memory ----
void empty_cache(int32_t device) { check(hal_memory_empty_cache(device)); }

void set_memory_limit(int32_t device, uint64_t bytes) { check(hal_memory_set_limit(device, bytes)); }

uint64_t memory_capacity(int32_t device) {
  size_t bytes = 0;
  check(hal_memory_capacity(device, &bytes));
  return bytes;
}

uintptr_t begin_pool(MemoryPool &pool, int32_t device) {
  check(hal_device_ensure(device));
  return pool.begin(device);
}
void end_pool(MemoryPool &pool, uintptr_t stream) { pool.end(stream); }

// Allocates for work of a stream, identified by its id, and returns the address.
uintptr_t allocate_raw(int32_t device, int64_t stream, size_t size) {
  check(hal_device_ensure(device));
  hal_stream_t *where = nullptr;
  check(hal_stream_from_id(device, stream, &where));
  hal_block_t *block = nullptr;
  check(hal_memory_allocate(device, where, size, &block));
  return reinterpret_cast<uintptr_t>(hal_memory_block_address(block));
}

void release_raw(uintptr_t address) {
  auto *const pointer = reinterpret_cast<void *>(address);
  hal_block_t *block = nullptr;
  check(hal_memory_find_block(pointer, &block));
  TORCH_CHECK_VALUE(hal_memory_block_address(block) == pointer, "invalid device pointer: ", pointer,
                    " is not the beginning of an allocation, which is at ", hal_memory_block_address(block));
  hal_memory_release(block);
}

void register_host(int32_t device, uintptr_t address, size_t size) {
  check(hal_host_register(device, reinterpret_cast<void *>(address), size));
}
void unregister_host(int32_t device, uintptr_t address) {
  check(hal_host_unregister(device, reinterpret_cast<void *>(address)));
}
void enable_peer(int32_t device, int32_t peer) { check(hal_device_enable_peer(device, peer)); }

// ---- allocators of programs ----
// Functions of a library with the parameters of those of torch.cuda.memory.CUDAPluggableAllocator. Never destroyed,
// because their memory may outlive every object.
struct PluggableAllocator {
  using Allocate = void *(ssize_t size, int device, void *stream);
  using Free = void(void *address, ssize_t size, int device, void *stream);

  PluggableAllocator(uintptr_t allocate, uintptr_t free)
      : allocate_fn(reinterpret_cast<Allocate *>(allocate)), free_fn(reinterpret_cast<Free *>(free)) {
    calls.struct_size = sizeof(calls);
    calls.user_data = this;
    calls.allocate = [](void *self, size_t size, int32_t device, void *stream) {
      return static_cast<PluggableAllocator *>(self)->allocate_fn(static_cast<ssize_t>(size), device, stream);
    };
    calls.release = [](void *self, void *address, size_t size, int32_t device, void *stream) {
      static_cast<PluggableAllocator *>(self)->free_fn(address, static_cast<ssize_t>(size), device, stream);
    };
  }

  Allocate *allocate_fn;
  Free *free_fn;
  hal_memory_allocator_t calls{};
};

void change_allocator(const PluggableAllocator &allocator) { check(hal_memory_set_allocator(&allocator.calls)); }

std::unique_ptr<MemoryPool> make_pool(c10::MempoolId_t id, bool use_on_oom, bool no_split,
                                      const PluggableAllocator *allocator) {
  return std::make_unique<MemoryPool>(std::move(id), use_on_oom, no_split, allocator ? &allocator->calls : nullptr);
}

// ---- pinned memory ----
py::dict to_dict(const c10::CachingAllocator::Stat &stat) {
  py::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

py::dict to_dict(const c10::CachingAllocator::DurationStat &stat) {
  py::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] = stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return result;
}

py::dict host_memory_stats() {
  const at::HostStats stats = host_allocator()->get_stats();
  py::dict result;
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  result["allocations"] = to_dict(stats.allocations);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["active_requests"] = to_dict(stats.active_requests);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  return result;
}

}  // namespace

void bind_memory(py::module_ &module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  py::class_<PluggableAllocator, std::unique_ptr<PluggableAllocator, py::nodelete>>(module, "PluggableAllocator")
      .def(py::init<uintptr_t, uintptr_t>(), py::arg("allocate"), py::arg("free"));
  module.def("change_allocator", wrap_pybind_function_no_gil(&change_allocator), py::arg("allocator"));
  py::class_<MemoryPool>(module, "MemoryPool")
      .def(py::init(&make_pool), py::arg("id"), py::arg("use_on_oom"), py::arg("no_split"), py::arg("allocator"))
      .def("begin", wrap_pybind_function_no_gil(&begin_pool), py::arg("device"))
      .def("end", wrap_pybind_function_no_gil(&end_pool), py::arg("stream"))
      .def("use_count", &MemoryPool::use_count);
  module.def("empty_cache", wrap_pybind_function_no_gil(&empty_cache), py::arg("device"));
  module.def("memory_capacity", wrap_pybind_function_no_gil(&memory_capacity), py::arg("device"));
  module.def("set_memory_limit", wrap_pybind_function(&set_memory_limit), py::arg("device"), py::arg("bytes"));
  module.def("allocate_raw", wrap_pybind_function_no_gil(&allocate_raw), py::arg("device"), py::arg("stream"),
             py::arg("size"));
  module.def("release_raw", wrap_pybind_function_no_gil(&release_raw), py::arg("address"));
  module.def("register_host", wrap_pybind_function_no_gil(&register_host), py::arg("device"), py::arg("address"),
             py::arg("size"));
  module.def("unregister_host", wrap_pybind_function_no_gil(&unregister_host), py::arg("device"), py::arg("address"));
  module.def("enable_peer", wrap_pybind_function_no_gil(&enable_peer), py::arg("device"), py::arg("peer"));
  bind_memory_history(module);
  module.def("host_memory_stats", wrap_pybind_function(&host_memory_stats));
  module.def("reset_peak_host_memory_stats", [] { host_allocator()->reset_peak_stats(); });
  module.def("reset_accumulated_host_memory_stats", [] { host_allocator()->reset_accumulated_stats(); });
}

}  // namespace torch_backend
