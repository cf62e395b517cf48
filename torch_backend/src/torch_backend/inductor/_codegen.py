"""Inductor's C++ code generation for the device. In addition to the CPU's code it waits for the stream."""

from __future__ import annotations

import functools

import torch
from torch._inductor import config
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.cpp import CppScheduling, WorkSharing
from torch._inductor.stream_utils import get_stream_name
from torch._inductor.virtualized import V

from torch_backend import backend
from torch_backend.backend import _utils

from . import _functions, _threads, _triton

_ATOMICS_PAY = 8  # threads from which parallel additions to the same elements are faster than serial ones
_HOST_VISIBLE = 1  # HAL_DEVICE_HOST_VISIBLE of hal/plugin.h


class HostScheduling(CppScheduling):
    """Fuses operators into C++ kernels, as for the CPU."""

    kernel_proxy_cls = _functions.KernelProxy

    def codegen_node(self, node):
        # Inductor derives the language from the current device; for unknown devices it assumes Triton.
        threads = {"cpp.threads": _parts_of(node)} if _of_device_threads() else {}
        with V.graph.set_current_device(torch.device("cpu")), config.patch(threads):
            result = super().codegen_node(node)
        if threads:
            self.kernel_group.ws.close()  # code of the next node may be serial
        # Kernels are collected and written together, before the next operator of a device. Calls without a device, such
        # as recording an event, would run before them.
        if any(other.is_extern() and other.get_device() is None for other in self.scheduler.nodes):
            self.flush()
        return result

    def reset_kernel_group(self):
        super().reset_kernel_group()
        if _of_device_threads():
            self.kernel_group.ws = self.kernel_group.stack.enter_context(_SeparateLoops(self.kernel_group.loops_code))

    def define_kernel(self, src_code, nodes, kernel_args=None):
        src_code = _functions.define(src_code)
        own = _threads.use(src_code) if _of_device_threads() else None
        name = super().define_kernel(own or _threads.without(src_code), nodes, kernel_args)
        if own:
            V.graph.wrapper_code.queued_kernels.add(name)
        return name


def _of_device_threads() -> bool:
    """Returns whether the device's threads compute the kernels of the current graph: its calls are Python."""
    return not V.graph.cpp_wrapper and _threads.threads() > 0


def _parts_of(node) -> int:
    """Returns into how many parts the loops of a node are split. Parts that add to the same elements need atomic
    additions, which take several times as long as others.
    """
    adds = any(getattr(write, "mode", None) == "atomic_add" for one in node.get_nodes() for write in one.read_writes.writes)
    return 1 if adds and _threads.threads() < _ATOMICS_PAY else _threads.parts()


class _SeparateLoops(WorkSharing):
    """A parallel region for each loop, so that no part of a loop waits for another part within a region."""

    def parallel(self, threads):
        self.close()
        super().parallel(threads)

    def single(self):
        self.close()
        return False

    def close(self):
        ended = self.in_parallel
        super().close()
        if ended:
            self.code.writeline(_threads.END_LOOP)

    def __exit__(self, *error):
        self.close()


class _CallsOfDevice:
    """The lines of generated Python that are specific to the device, for the wrapper of a graph and for those of its
    subgraphs.

    A kernel that runs on the device's threads is queued on the stream. Other kernels run on the host immediately: before
    each one, the code waits for the operators queued on the stream.
    """

    _streams_named = False
    _compiles_in_process = False

    @functools.cached_property
    def queued_kernels(self) -> set[str]:
        return set()

    def codegen_cuda_stream_enter(self, stream_idx):
        """Inductor defines stream names where it enters a device, but only for its own devices."""
        if not self._streams_named:
            self._streams_named = True
            self.imports.splice("from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index")
            device = V.graph.scheduler.current_device
            index = device.index or 0 if device is not None and device.type == _utils.name() else ""
            self.writeline(f"{get_stream_name(0)} = torch.accelerator.current_stream({index})")
            for number, user_object in V.graph.scheduler.stream_idx_to_user_obj_idx.items():
                self.writeline(f"{get_stream_name(number)} = get_external_object_by_index({user_object})")
        return super().codegen_cuda_stream_enter(stream_idx)

    def write_triton_header_once(self) -> None:
        super().write_triton_header_once()
        self._compile_in_process()

    def _compile_in_process(self) -> None:
        """Imports a class in place of torch's, which is imported before."""
        if not self._compiles_in_process:
            self._compiles_in_process = True
            self.imports.splice("from torch_backend.inductor._triton import AsyncCompile")

    def define_user_defined_triton_kernel(self, kernel, *rest, **options):
        _triton.check(kernel)
        self._compile_in_process()
        return super().define_user_defined_triton_kernel(kernel, *rest, **options)

    def make_allocation(self, name, device, dtype, shape, stride, *rest, **options):
        """Inductor omits the index of unknown devices."""
        line = super().make_allocation(name, device, dtype, shape, stride, *rest, **options)
        return line.replace(f"device='{_utils.name()}'", f"device='{device}'") if device.type == _utils.name() else line

    def _generate_kernel_call_helper(self, kernel_name, call_args, *, device=None, triton=True, **options):
        if device is not None and device.type == _utils.name() and not triton:
            call = "queue_on_host" if kernel_name in self.queued_kernels else "run_on_host"
            self.writeline(f"{call}({', '.join([str(device.index or 0), kernel_name, repr(kernel_name), *call_args])})")
            return
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **options)


class PythonWrapperCodegen(_CallsOfDevice, wrapper.PythonWrapperCodegen):
    """Calls the kernels of a graph from Python."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return SubgraphWrapperCodegen(subgraph_name, parent_wrapper, partition_signatures)
        return PythonWrapperCodegen()

    def write_header(self) -> None:
        super().write_header()
        self.imports.splice("from torch_backend.inductor._host import queue_on_host, run_on_host")
        self.imports.splice("from torch_backend.inductor._launch import compile_kernel")


class SubgraphWrapperCodegen(_CallsOfDevice, wrapper.SubgraphPythonWrapperCodegen):
    """Calls the kernels of a branch, a loop or a nested region, in the code of the outer graph."""


_visible: set[int] = set()


def host_visible(index: int) -> bool:
    """Returns whether the host may access the memory of a device; starts the device."""
    if index not in _visible and backend.get_device_properties(index).flags & _HOST_VISIBLE:
        _visible.add(index)
    return index in _visible


def check_host_visible(index: int) -> None:
    """Raises RuntimeError if the host may not access the device's memory. Generated code may come from another
    process's cache, so its requirement is checked again.
    """
    if index not in _visible and not host_visible(index):
        raise RuntimeError(
            f"this code's C++ kernels run on the host, and the memory of {_utils.name()}:{index} is not visible to it. "
            "Compile again (TORCHINDUCTOR_FORCE_DISABLE_CACHES=1), or use torch.compile(backend='aot_eager')."
        )
