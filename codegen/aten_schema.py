"""What C++ calls an operator of ATen: its names, its class, the type of its kernels."""
from __future__ import annotations

from torchgen.api.types import DispatcherSignature
from torchgen.context import native_function_manager
from torchgen.model import SchemaKind


def operator_name(native):
    """Gives ATen's name of a form and of its overload, as C++ strings."""
    name = native.func.name
    return f'"aten::{name.name}", "{name.overload_name}"'


def operator_class(native):
    """Gives ATen's class of a form, which knows its schema."""
    return f"at::_ops::{native.func.name.unambiguous_name()}"


def signature(native):
    """Gives how a kernel of a form is called, with integers where the schema has symbols; inside native_function_manager."""
    return DispatcherSignature.from_schema(native.func, symint=False)


def kernel_type(native):
    """Gives the type of a form's kernels, as Signature<Op> of csrc/aten/prepare/aten_op.h."""
    result, arguments = _types(native)
    return f"{result}({', '.join(arguments)})"


def functional_type(native):
    """Gives the same of a functional form; of a form with out= that has none, what it would be."""
    if native.func.kind() is not SchemaKind.out:
        return kernel_type(native)
    count = len(native.func.arguments.out)
    result = "at::Tensor" if count == 1 else f"std::tuple<{', '.join(['at::Tensor'] * count)}>"
    return f"{result}({', '.join(_types(native)[1][:-count])})"


def _types(native):
    with native_function_manager(native):
        called = signature(native)
        return called.returns_type().cpp_type(), [argument.nctype.type.cpp_type() for argument in called.arguments()]
