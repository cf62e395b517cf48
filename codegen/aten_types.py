"""The C++ names of an operator of ATen: its class, the types of its kernels and arguments."""
from __future__ import annotations

from torchgen.api.types import DispatcherSignature
from torchgen.context import native_function_manager
from torchgen.model import BaseTy, BaseType, ListType, OptionalType, SchemaKind


def operator_name(native):
    """ATen's name of an overload, as C++ strings."""
    name = native.func.name
    return f'"aten::{name.name}", "{name.overload_name}"'


def operator_class(native):
    """ATen's class of an overload, which has its schema."""
    return f"at::_ops::{native.func.name.unambiguous_name()}"


def signature(native):
    """Returns the signature of an overload's kernel, with integers where the schema has symbols; inside
    native_function_manager.
    """
    return DispatcherSignature.from_schema(native.func, symint=False)


def arguments(native):
    """The arguments of a kernel of an overload, in C++."""
    with native_function_manager(native):
        return signature(native).arguments()


def kernel_type(native):
    """The type of an overload's kernels, Signature<Op> of csrc/aten/prepare/aten_op.h."""
    with native_function_manager(native):
        called = signature(native)
        types = ", ".join(argument.nctype.type.cpp_type() for argument in called.arguments())
        return f"{called.returns_type().cpp_type()}({types})"


# ---- arguments of a schema ----


def base(argument):
    """The type of an argument without Optional."""
    return argument.type.elem if isinstance(argument.type, OptionalType) else argument.type


def is_tensor(argument):
    """Returns whether an argument is a tensor that is always present."""
    return argument.type == BaseType(BaseTy.Tensor)


def is_operand(argument):
    """Whether an argument is a tensor, optional or not."""
    return base(argument) == BaseType(BaseTy.Tensor)


def has_tensors(argument):
    """Whether an argument is a tensor or a list of tensors, optional or not."""
    kind = base(argument)
    while isinstance(kind, (ListType, OptionalType)):
        kind = kind.elem
    return kind == BaseType(BaseTy.Tensor)


def is_scalar(argument):
    """Whether an argument is a Scalar, optional or not."""
    return base(argument) == BaseType(BaseTy.Scalar)


def is_number(argument):
    """Returns whether an argument is a number that is always present, or an optional Scalar."""
    return is_scalar(argument) or argument.type in (BaseType(BaseTy.int), BaseType(BaseTy.float))


def is_text(argument):
    return base(argument) == BaseType(BaseTy.str)


def is_optional(argument):
    return isinstance(argument.type, OptionalType)


# ---- overloads ----


def makes_results(native):
    """Returns whether an overload allocates its results, or writes arguments."""
    return native.func.kind() is not SchemaKind.out


def written(native):
    """The names of the arguments that an overload writes: self in place, out=."""
    kind = native.func.kind()
    if kind is SchemaKind.out:
        return [argument.name for argument in native.func.arguments.out]
    return ["self"] if kind is SchemaKind.inplace else []


def inputs(functional):
    """Returns the names of the arguments of a functional overload; if there is only an overload with out=, those
    without out=.
    """
    return [argument.name for argument in arguments(functional) if argument.name not in written(functional)
            or functional.func.kind() is SchemaKind.inplace]


def kind_name(native):
    """Returns the kind of an overload: functional, out or in-place."""
    return {SchemaKind.functional: "functional", SchemaKind.inplace: "in-place", SchemaKind.out: "out"}[native.func.kind()]
