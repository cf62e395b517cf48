"""Inductor's cpp_wrapper for the device: the calls of operators and kernels are compiled C++, too.

Such code calls operators by C functions that torch generates for its own devices with torchgen. This module
generates them with torchgen for the operators that a graph uses. They go through the dispatcher, which selects the
device's operator.
"""

from __future__ import annotations

import functools
import pathlib
import re

import torch
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

from torch_backend.backend import _utils

from . import _boxed, _triton

_WAIT = """
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
using namespace torch::aot_inductor;
// The kernels below run on the host at once, so what is queued on the device's stream must be done.
static inline void torch_backend_wait_for_stream(int8_t index) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index);
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}
"""


class CppWrapperCodegen(CppWrapperCpu):
    """The CPU's wrapper with the device's tensors, operators and streams."""

    support = _WAIT  # C++ that precedes generated code
    called = "cpp_wrapper"  # in error messages

    def __init__(self):
        super().__init__()
        self._shims: set[str] = set()
        self.header.splice(self.support)

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        return CppWrapperCodegen()

    def codegen_cuda_stream_enter(self, stream_idx):
        raise NotImplementedError(
            f"cpp_wrapper does not support streams that a function creates on '{_utils.name()}'. "
            "Set torch._inductor.config.cpp_wrapper = False."
        )

    def define_user_defined_triton_kernel(self, kernel, *rest, **options):
        _triton.refuse(kernel, self.called)

    def codegen_device(self, device) -> str:
        if device.type != _utils.name():
            return super().codegen_device(device)
        return f"aoti_torch_device_type_privateuse1(), {device.index or 0}"

    def wait(self, device: torch.device) -> str:
        """Returns the line that waits for the device's current stream."""
        return f"torch_backend_wait_for_stream({device.index or 0});"

    def add_device_include(self, device: str) -> None:
        super().add_device_include("cpu" if device == _utils.name() else device)

    def generate_c_shim_extern_kernel_call(self, kernel, args, device, **options) -> None:
        if device == _utils.name():
            self._define_shim(self.get_c_shim_func_name(kernel, device), kernel)
        super().generate_c_shim_extern_kernel_call(kernel, args, device, **options)

    def _generate_scatter_fallback(self, output, inputs, cpp_kernel_name, *rest) -> None:
        if rest[-1] == _utils.name():
            name = self.get_c_shim_func_name(cpp_kernel_name, rest[-1]).replace("__", "_") + "_out"
            self._define_shim(name, cpp_kernel_name)
        super()._generate_scatter_fallback(output, inputs, cpp_kernel_name, *rest)

    def _generate_kernel_call_helper(self, kernel_name, call_args, *, device=None, triton=True, **options):
        if device is not None and device.type == _utils.name() and not triton:
            self.writeline(self.wait(device))
            device = torch.device("cpu")
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **options)

    def _generate_fallback_kernel_jit(self, buf_name, python_kernel_name, get_args, op_overload, raw_args, output_args, outputs):
        if not _boxed.names_device(raw_args) or not self.call_boxed(op_overload, raw_args, output_args, outputs):
            super()._generate_fallback_kernel_jit(buf_name, python_kernel_name, get_args, op_overload, raw_args, output_args, outputs)

    def call_boxed(self, operator, raw_args, names, outputs) -> bool:
        """Writes a call by the dispatcher if possible; returns whether it was."""
        if not _boxed.supports(operator, raw_args, outputs):
            return False
        self.writelines(_boxed.lines(self, operator, raw_args, names, outputs))
        return True

    def _define_shim(self, name: str, kernel: str) -> None:
        """Writes the C function for an operator, once per program."""
        if name in self._shims:
            return
        self._shims.add(name)
        operator = name.removeprefix(f"aoti_torch_{_utils.name()}_")
        source = _shims().get(operator)
        if source is None:
            raise NotImplementedError(
                f"cpp_wrapper cannot call {kernel} on '{_utils.name()}': torch has no C function for it. "
                "Set torch._inductor.config.cpp_wrapper = False."
            )
        include, text = source
        self.header.splice(f"#include <ATen/ops/{include}.h>\nstatic inline{text.replace(f'aoti_torch_aten_{operator}(', f'{name}(')}")


@functools.lru_cache(maxsize=1)
def _shims() -> dict[str, tuple[str, str]]:
    """Returns header and source of the C function of each operator that inductor calls, by the function's name without
    its prefix.
    """
    import torchgen
    from torchgen import gen_aoti_c_shim
    from torchgen.aoti.fallback_ops import inductor_fallback_ops
    from torchgen.gen import get_grouped_native_functions, parse_native_yaml

    folder = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    groups = {}
    for group in get_grouped_native_functions(parsed.native_functions):
        for function in group.functions() if hasattr(group, "functions") else ():
            groups[function.func.name] = group
    found = {}
    for function in parsed.native_functions:
        versions = inductor_fallback_ops.get(gen_aoti_c_shim.get_fallback_op_name(function))
        if versions is None:
            continue
        text = gen_aoti_c_shim.gen_c_shim(function, versions, groups, None, parsed.backend_indices, False, False)
        if text:
            name = text.partition("aoti_torch_aten_")[2].partition("(")[0]
            found[name] = _callable(function, _with_scalars(text, function))
    return found


def _with_scalars(text: str, function) -> str:
    """Replaces the types of numbers. torch's functions take all of them as double, which makes results of integers
    floating-point.
    """
    for argument in function.func.arguments.flat_non_out:
        if str(argument.type) == "Scalar":
            text = text.replace(f"double {argument.name},", f"const c10::Scalar& {argument.name},")
    return text


def _callable(function, text: str) -> tuple[str, str]:
    """Returns header and source of a C function. torch's source calls operators as functions, also those that are only
    methods of tensors.
    """
    from torchgen.model import Variant

    if Variant.function in function.variants:
        return function.root_name, text
    call = rf"at::(symint::)?{function.func.name.name}(<c10::SymInt>)?\("
    return f"{function.root_name}_ops", re.sub(call, f"at::_ops::{function.func.name.unambiguous_name()}::call(", text)
