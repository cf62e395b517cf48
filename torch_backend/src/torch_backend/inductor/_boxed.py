"""Calls of operators by the dispatcher, in generated C++: for operators for which torch has no C function.

torch's own code for such calls names devices by numbers that are known when the code is generated, and a package's calls
are made by a class that knows only cpu and cuda.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir

from torch_backend.backend import _utils

from . import _extern

_HEADERS = ("ATen/ScalarOps.h", "ATen/core/dispatch/Dispatcher.h", "ATen/core/ivalue.h", "torch/csrc/inductor/aoti_torch/utils.h")
_NUMBER = (bool, int, float, complex, sympy.Expr, torch.SymInt, torch.SymFloat)
_ENUMERATIONS = {torch.dtype: "c10::ScalarType", torch.layout: "c10::Layout", torch.memory_format: "c10::MemoryFormat"}
_NUMBERS = {"int": "int64_t", "SymInt": "int64_t", "float": "double", "SymFloat": "double", "bool": "bool", "SymBool": "bool"}
_ELEMENTS = {**_NUMBERS, "number": "c10::Scalar", "Tensor": "at::Tensor", "Optional[Tensor]": "std::optional<at::Tensor>", "str": "std::string"}


def names_device(raw_args: Sequence[Any]) -> bool:
    """Returns whether an argument of a call is the device."""
    return any(isinstance(arg, torch.device) and arg.type == _utils.name() for arg in raw_args)


def supports(operator, raw_args: Sequence[Any], outputs: Any) -> bool:
    """Returns whether `lines` can write a call."""
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    arguments = zip(raw_args, operator._schema.arguments)
    if not all(_supported(arg, argument.real_type) for arg, argument in arguments):
        return False
    returns = [str(result.type) for result in operator._schema.returns]
    return set(returns) <= {"Tensor", "Optional[Tensor]", "List[Tensor]"} and not any(isinstance(output, int) for output in outputs or ())


def _supported(arg: Any, kind) -> bool:
    if arg is None or isinstance(arg, (torch.device, *_ENUMERATIONS)):
        return True
    if isinstance(kind, torch.OptionalType):
        return _supported(arg, kind.getElementType())
    if isinstance(kind, torch.ListType):
        element = kind.getElementType()
        return str(element) in _ELEMENTS and all(_supported(part, element) for part in arg)
    if str(kind) == "Tensor":
        return hasattr(arg, "codegen_reference") or isinstance(arg, _NUMBER)
    return str(kind) in _ELEMENTS


def lines(wrapper, operator: torch._ops.OpOverload, raw_args: Sequence[Any], names: Sequence, outputs: Sequence) -> list[str]:
    """Returns the C++ lines of a call whose results get names."""
    for header in _HEADERS:
        wrapper.include_extra_header(header)
    schema, writer = operator._schema, _Arguments(wrapper)
    values = [writer.value(arg, argument.real_type) for arg, argument in zip(raw_args, schema.arguments)]
    results = _results(schema, names, outputs)
    return [
        *(f"RAIIAtenTensorHandle {name};" for name, _ in results),
        "{",
        *writer.lines,
        f'static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("{_extern.name_of(operator)}", "{schema.overload_name}");',
        f"std::vector<c10::IValue> stack{{{', '.join(values)}}};",
        "op.callBoxed(&stack);",
        *(f"{name} = torch::aot_inductor::new_tensor_handle(at::Tensor({value}));" for name, value in results),
        "}",
    ]


def _results(schema, names: Sequence, outputs: Sequence) -> list[tuple[str, str]]:
    """Returns the names of new tensors, and their values on the stack."""
    names = [None if isinstance(output, ir.MutationOutput) else name for name, output in zip(names, outputs)]
    if len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.ListType):
        names = [names]
    found = []
    for place, name in enumerate(names):
        if isinstance(name, list):
            found += [(part, f"stack[{place}].toTensorVector()[{number}]") for number, part in enumerate(name) if part is not None]
        elif name is not None:
            found.append((name, f"stack[{place}].toTensor()"))
    return found


class _Arguments:
    """Writes arguments as values of the dispatcher's stack. `lines` define variables that the values use."""

    def __init__(self, wrapper):
        self.wrapper = wrapper
        self.lines: list[str] = []

    def value(self, arg: Any, kind) -> str:
        return f"c10::IValue({self._element(arg, kind)})" if arg is not None else "c10::IValue()"

    def _element(self, arg: Any, kind) -> str:
        if isinstance(kind, torch.OptionalType):
            return "std::nullopt" if arg is None else self._element(arg, kind.getElementType())
        if isinstance(arg, torch.device):
            device, index = self.wrapper.codegen_device(arg).split(", ")
            return f"c10::Device(static_cast<c10::DeviceType>({device}), static_cast<c10::DeviceIndex>({index}))"
        if type(arg) in _ENUMERATIONS:
            return f"static_cast<{_ENUMERATIONS[type(arg)]}>({self.wrapper.val_to_arg_str_for_prim_type(arg, None)})"
        if isinstance(kind, torch.ListType):
            element = kind.getElementType()
            parts = ", ".join(self._element(part, element) for part in arg)
            return f"std::vector<{_ELEMENTS[str(element)]}>{{{parts}}}"
        if str(kind) == "Tensor" and isinstance(arg, _NUMBER):
            return f"at::native::wrapped_scalar_tensor({self._number(arg, 'number')})"
        if str(kind) == "Tensor":
            handle = self.wrapper.create_tmp_raii_handle_var_if_needed(arg.codegen_reference(), self.lines)
            return f"*torch::aot_inductor::tensor_handle_to_tensor_pointer({handle})"
        return self._number(arg, str(kind))

    def _number(self, arg: Any, kind: str) -> str:
        text = self.wrapper.val_to_arg_str_for_prim_type(arg, None)
        if kind == "number":
            return f"c10::Scalar({'true' if arg is True else 'false' if arg is False else text})"
        return f"static_cast<{_NUMBERS[kind]}>({text})" if kind in _NUMBERS else f"std::string({text})"
