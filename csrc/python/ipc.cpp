// ipc.cpp: see ipc.h. The HAL keeps a storage that was sent until its receiver has released it.
#include "ipc.h"

#include <c10/core/Storage.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "core/allocator/allocator.h"
#include "core/device.h"
#include "core/status.h"
#include "core/stream/stream.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

// Returns the block of a storage; nullptr for memory of another allocator.
hal_block_t *block_in(const c10::Storage &storage) {
  TORCH_CHECK_VALUE(storage.device().type() == kDevice, "expected a storage of '", c10::Device(kDevice),
                    "', got one of '", storage.device(), "'");
  return block_of(storage.data_ptr());
}

// Returns whether memory can be shared; false if it has to be copied. Throws if a copy would be wrong.
bool can_share(const c10::Storage &storage) {
  hal_block_t *block = block_in(storage);
  if (block == nullptr) return false;
  const hal_status_t status = hal_memory_check_share(block);
  if (status != HAL_UNIMPLEMENTED) check(status);
  return status == HAL_OK;
}

void release_storage(void *user_data) { delete static_cast<c10::Storage *>(user_data); }

// Returns the handle of a storage for one other process; None if the plugin does not share its memory.
py::object share_storage(const c10::Storage &storage) {
  hal_block_t *block = block_in(storage);
  if (block == nullptr) return py::none();
  std::array<char, HAL_MEMORY_SHARE_BYTES> handle{};
  size_t size = 0;
  hal_status_t status = HAL_OK;
  {
    py::gil_scoped_release no_gil;
    auto keep = std::make_unique<c10::Storage>(storage);
    hal_stream_t *stream = current_stream(storage.device().index());
    status = hal_memory_share(block, stream, &release_storage, keep.get(), handle.data(), handle.size(), &size);
    if (status == HAL_OK) keep.release();
    if (status != HAL_OK && status != HAL_UNIMPLEMENTED) throw_status(status);
  }
  if (status == HAL_UNIMPLEMENTED) return py::none();
  return py::bytes(handle.data(), size);
}

// Returns a storage over the memory of a handle; it cannot be resized.
c10::Storage open_storage(int32_t device, const std::string &handle, size_t size) {
  py::gil_scoped_release no_gil;
  check(hal_device_ensure(device));
  hal_block_t *block = nullptr;
  check(hal_memory_open(device, current_stream(static_cast<c10::DeviceIndex>(device)), handle.data(), handle.size(),
                        &block));
  c10::DataPtr data = own(block);
  TORCH_CHECK_VALUE(size <= hal_memory_block_size(block), "invalid handle of memory: it has ",
                    hal_memory_block_size(block), " bytes, expected ", size);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size, std::move(data), allocator(),
                                               /*resizable=*/false);
}

void decline_storage(const std::string &handle) { check(hal_memory_decline(handle.data(), handle.size())); }

uint32_t collect_shared() { return hal_memory_collect_shared(); }

}  // namespace

void bind_ipc(py::module_ &module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  module.attr("SHARE_KEY_BYTES") = HAL_MEMORY_SHARE_KEY_BYTES;
  module.def("can_share", wrap_pybind_function(&can_share), py::arg("storage"));
  module.def("share_storage", wrap_pybind_function(&share_storage), py::arg("storage"));
  module.def("open_storage", wrap_pybind_function(&open_storage), py::arg("device"), py::arg("handle"),
             py::arg("size"));
  module.def("decline_storage", wrap_pybind_function(&decline_storage), py::arg("handle"));
  module.def("collect_shared", wrap_pybind_function_no_gil(&collect_shared));
}

}  // namespace torch_backend
