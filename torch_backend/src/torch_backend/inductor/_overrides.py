"""The device in the Python and C++ code that inductor writes: torch's `DeviceOpOverrides`."""

from __future__ import annotations

from torch._inductor.codegen.common import DeviceOpOverrides

# Streams are passed as native handles. c10 has no function from a handle to a stream, so the handle must be that of
# the current stream, which is the stream of all generated calls.
_HEADER = """
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
namespace torch_backend_generated {
inline c10::Device device(c10::DeviceIndex index) { return c10::Device(c10::DeviceType::PrivateUse1, index); }
inline c10::Stream current_stream(c10::DeviceIndex index) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStream(device(index));
}
inline int32_t get_stream(int32_t index, void** handle) {
  const c10::Stream stream = current_stream(static_cast<c10::DeviceIndex>(index));
  *handle = c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStreamNativeHandle(stream);
  return 0;
}
inline c10::Stream get_stream_from_external(void* handle, c10::DeviceIndex index) {
  void* current = nullptr;
  get_stream(index, &current);
  TORCH_CHECK(handle == current, "the stream of a generated call must be the current stream of ", device(index));
  return current_stream(index);
}
struct DeviceGuard {
  explicit DeviceGuard(c10::DeviceIndex index) : guard(device(index)) {}
  c10::DeviceGuard guard;
};
struct StreamGuard {
  explicit StreamGuard(c10::Stream stream) : guard(stream) {}
  StreamGuard(void* handle, c10::DeviceIndex index) : guard(get_stream_from_external(handle, index)) {}
  c10::StreamGuard guard;
};
}  // namespace torch_backend_generated
"""
_GENERATED = "torch_backend_generated::"


class Overrides(DeviceOpOverrides):
    """Returns pieces of code. Names in C++ are those of `kernel_header`."""

    # ---- Python ----
    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(index):\n    return torch.accelerator.current_stream(index).stream_id\n"

    def set_device(self, device_idx) -> str:
        return f"torch.accelerator.set_device_index({device_idx})"

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx) -> str:
        return f"torch.accelerator.device_index({device_idx})"

    def current_device_idx_expr(self) -> str:
        return "torch.accelerator.current_device_index()"

    def current_stream(self) -> str:
        return "torch.accelerator.current_stream()"

    # ---- C++ ----
    def uses_gpu_cpp_wrapper(self) -> bool:
        """Returns False: the C++ wrapper is that of the CPU, with the device's operators and streams."""
        return False

    def kernel_header(self) -> str:
        return _HEADER

    def kernel_driver(self) -> str:
        return ""

    def cpp_device_guard(self) -> str:
        return f"{_GENERATED}DeviceGuard"

    cpp_aoti_device_guard = cpp_device_guard

    def cpp_stream_guard(self) -> str:
        return f"{_GENERATED}StreamGuard"

    cpp_aoti_stream_guard = cpp_stream_guard

    def cpp_getStreamFromExternal(self) -> str:
        return f"{_GENERATED}get_stream_from_external"

    def aoti_get_stream(self) -> str:
        return f"{_GENERATED}get_stream"

    def cpp_stream_type(self) -> str:
        return "void*"

    def cpp_kernel_type(self) -> str:
        return "void*"

    def cpp_device_ptr(self) -> str:
        return "void*"

    def aten_device_type(self) -> str:
        return "at::kPrivateUse1"

    def cpp_kernel_launch_supports_pdl(self) -> bool:
        return False

    def tma_descriptor_helpers(self) -> str:
        return ""

    def cpp_scratch(self, idx: int, workspace, prefix: str | None = None) -> None:
        """Returns None: kernels need no scratch memory."""
