"""Inductor's C++ code generation for the device: what CPU code needs beside it, which is to wait for the stream."""

from __future__ import annotations

import torch
import torch._inductor.config
from torch._dynamo.device_interface import register_interface_for_device
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.common import register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen  # noqa: F401  (torch wants all four classes or none)
from torch._inductor.virtualized import V

from torch_backend import backend
from torch_backend.backend import _utils

from ._interface import Interface

_HOST_VISIBLE = 1  # HAL_DEVICE_HOST_VISIBLE of hal/plugin.h


class Scheduling(CppScheduling):
    """Fuses operators into C++ kernels, as for the CPU."""

    def __init__(self, scheduler):
        super().__init__(scheduler)
        for index in range(backend.device_count()):
            if not backend.get_device_properties(index).flags & _HOST_VISIBLE:
                raise RuntimeError(
                    f"inductor's C++ kernels run on the host, and the memory of {_utils.name()}:{index} is not visible to it. "
                    "Use torch.compile(backend='aot_eager'), which runs the device's own operators."
                )

    def codegen_node(self, node):
        # Inductor asks the current device which language it generates; for devices that it does not know it assumes Triton.
        with V.graph.set_current_device(torch.device("cpu")):
            return super().codegen_node(node)


class PythonWrapperCodegen(wrapper.PythonWrapperCodegen):
    """Calls the kernels from Python; before each one the operators queued on the stream are done, since it runs at once."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return wrapper.PythonWrapperCodegen.create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures)
        return PythonWrapperCodegen()

    def write_header(self) -> None:
        super().write_header()
        self.imports.splice("from torch_backend.inductor._codegen import wait_for_stream")

    def make_allocation(self, name, device, dtype, shape, stride, *rest, **options):
        """Inductor leaves out the index of devices that it does not know."""
        line = super().make_allocation(name, device, dtype, shape, stride, *rest, **options)
        return line.replace(f"device='{_utils.name()}'", f"device='{device}'") if device.type == _utils.name() else line

    def _generate_kernel_call_helper(self, kernel_name, call_args, *, device=None, triton=True, **options):
        if device is not None and device.type == _utils.name() and not triton:
            self.writeline(f"wait_for_stream({device.index or 0})")
            device = torch.device("cpu")
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **options)


class CppWrapperCodegen(CppWrapperCpu):
    """Stands where torch wants a class; calling kernels from C++ needs more of the device than this integration has."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        raise NotImplementedError(
            f"cpp_wrapper and AOTInductor do not know '{_utils.name()}'; set torch._inductor.config.cpp_wrapper = False"
        )


class _Overrides(CpuDeviceOpOverrides):
    def set_device(self, device_idx: int) -> str:
        return f"torch.accelerator.set_device_index({device_idx})"

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.accelerator.device_index({device_idx})"


def wait_for_stream(index: int) -> None:
    """Waits for the current stream of a device; generated code calls it before a kernel that runs on the host."""
    torch.accelerator.current_stream(index).synchronize()


def register() -> None:
    """Makes the device known to TorchDynamo and inductor; called once."""
    name = _utils.name()
    for index in (None, *range(backend.device_count())):
        register_interface_for_device(name if index is None else f"{name}:{index}", Interface)
    register_device_op_overrides(name, _Overrides())
    # The scheduler exempts only "cpu" from a reordering that C++ code generation cannot express.
    torch._inductor.config.loop_reindexing_after_fusion = False
