"""AOTInductor: the C++ of a package, a model that is compiled ahead of time and runs without Python.

The package contains a file that names the versions it was compiled for. The runner in C++ (csrc/core/package) compares
them when the package is loaded.
"""

from __future__ import annotations

import torch
from torch._inductor import ir
from torch._inductor.codecache import write
from torch._inductor.virtualized import V

from torch_backend import _C, backend
from torch_backend.backend import _utils

from . import _boxed, _cpp_wrapper, _extern

# torch's headers for devices are replaced by this one.
HEADER = "torch_backend/aoti_model.h"
_MOST_ARGUMENTS = 63  # of a kernel, without the record of errors
_SHIMS = """
#include <torch/csrc/inductor/aoti_torch/utils.h>
using namespace torch::aot_inductor;
"""


def _layout(constant: tuple[str, torch.Tensor]) -> str:
    """Returns the line of a constant for the runner, which compares it with the tensors of `load_constants`."""
    name, tensor = constant
    if tensor.layout != torch.strided:
        return name
    return f"{name} {','.join(map(str, tensor.shape))} {','.join(map(str, tensor.stride()))}"


class PackageWrapperCodegen(_cpp_wrapper.CppWrapperCodegen):
    """The model class of a package. The device's index is known when the package is loaded: `this->device_idx_`."""

    support = _SHIMS
    called = "a package of AOTInductor"

    def __init__(self):
        self.device = _utils.name()  # of the constants that the model owns
        super().__init__()

    def write_header(self) -> None:
        if not V.graph.is_const_graph:
            self.header.splice(f"#include <{HEADER}>")
        super().write_header()

    def codegen_inputs(self) -> None:
        if V.graph.aot_mode and not V.graph.is_const_graph:
            for name, value in V.graph.graph_inputs.items():
                device = value.get_device() if isinstance(value, ir.TensorBox) else None
                if device is not None and device.type == _utils.name():
                    self.prefix.writeline(f'torch_backend::package::check_input({name}, "{name}", {self._index(device)});')
        super().codegen_inputs()

    def generate(self, is_inference):
        result = super().generate(is_inference)
        if not V.graph.is_const_graph:
            self.additional_files.append(self._versions())
        return result

    def codegen_device(self, device) -> str:
        if device.type != _utils.name():
            return super().codegen_device(device)
        return f"aoti_torch_device_type_privateuse1(), {self._index(device)}"

    def wait(self, device: torch.device) -> str:
        return f"torch_backend::package::wait({self._index(device)});"

    # ---- kernels from source ----
    def define_source_kernel(self, name: str, function: str, text: str, reports: bool, comment: str) -> None:
        """Writes a kernel of the portable dialect, which the device's compiler compiles when the package is loaded."""
        text = text.replace(")PK", ") PK")
        self.header.splice("\n".join(f"// {line.lstrip('# ')}" for line in comment.splitlines() if line.strip()))
        self.header.writeline(f'static torch_backend::package::Kernel {name}("{function}", R"PK({text})PK", {str(reports).lower()});')

    def launch(self, name: str, device: torch.device, units: str, arguments: list[tuple[str, str]]) -> str:
        """Returns the line that launches a kernel. Its arguments are described as in `_launch.compile_kernel`."""
        if len(arguments) > _MOST_ARGUMENTS:
            raise NotImplementedError(f"kernel '{name}' has {len(arguments)} arguments; a package's kernels take at most {_MOST_ARGUMENTS}")
        values = [self._value(letter, text) for letter, text in arguments]
        return f"{name}.launch({self._index(device)}, {units}, {{{', '.join(values)}}});"

    @staticmethod
    def _value(letter: str, text: str) -> str:
        if letter == "p":
            return f"torch_backend::package::address({text}.data_ptr())"
        if letter == "v":
            return f"torch_backend::package::element({text}.data_ptr(), {V.graph.get_dtype(text).itemsize})"
        return f"torch_backend::package::value({'float' if letter == 'f' else 'int64_t'}({text}))"

    def _index(self, device: torch.device) -> str:
        return self.codegen_device_idx(device, str(device.index or 0))

    @staticmethod
    def _versions() -> str:
        """Writes the file for the runner; returns its path."""
        from ._ways import way

        indices = [index for index in V.graph.device_idxs if index < backend.device_count()] or [0]
        lines = [_C.package_versions(indices[0]), way().place, *map(_layout, V.graph.constants.items())]
        return write("\n".join(lines) + "\n", "torch_backend", extra="package")[1]

    def generate_fallback_kernel_with_runtime_lookup_aot(self, op_overload, raw_args, *rest, **options) -> None:
        if self.call_boxed(op_overload, raw_args, *rest):
            # The last of these nodes describes the call. If it stays, the runner looks up the operator when the package
            # is loaded.
            if _extern.name_of(op_overload).startswith("aten::"):
                V.extern_kernel_nodes.pop()
            return
        if _boxed.names_device(raw_args):
            raise NotImplementedError(
                f"AOTInductor cannot compile {op_overload} for '{_utils.name()}': torch has no C function for it, and its schema has types that "
                "a call by the dispatcher does not support. Pass its result to the program as an input."
            )
        raw_args = self._named_args(op_overload, raw_args)
        super().generate_fallback_kernel_with_runtime_lookup_aot(op_overload, raw_args, *rest, **options)

    @staticmethod
    def _named_args(op_overload, raw_args) -> list:
        """Replaces arguments with None that torch has not written to the package because they are the defaults: the
        runner does not expect their values.
        """
        if not isinstance(op_overload, torch._ops.OpOverload):
            return raw_args
        written = {argument.name for argument in V.extern_kernel_nodes[-1].node.inputs}
        names = [argument.name for argument in op_overload._schema.arguments]
        return [arg if name in written else None for name, arg in zip(names, raw_args)]


class CppWrapperCodegen(_cpp_wrapper.CppWrapperCodegen):
    """The class that inductor is given: for packages, and for compiled functions."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        return PackageWrapperCodegen() if V.graph.aot_mode else _cpp_wrapper.CppWrapperCodegen()
