"""Maps the operators of ops.yaml onto the schemas of the installed torch: what aten.py generates code from.

An operator that the installed torch lacks, or whose schema no longer fits its frozen argument list, is reported and left to
the fallback; it never stops the build.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import BaseTy, BaseType, NativeFunction, NativeFunctionsGroup, OptionalType, SchemaKind

# Dtypes that ATen itself computes in for each set of ops.yaml, when all operands have them. More than our kernels know: a
# plugin may answer for float16 and bfloat16 itself. A narrower set here only costs speed, a wider one would skip ATen's
# checks (sub refuses bool, div makes a float of integers).
_FLOATING = {"f32", "f64", "f16", "bf16"}
_NUMBERS = {"u8", "i8", "i16", "i32", "i64"}
_TORCH_NUMBERS = {"u8": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "f32": 6, "f64": 7, "c64": 9, "c128": 10, "bool": 11,
                  "bf16": 15}

# `iterator` operators whose optional numbers, when absent, make them another operator of the list.
WITHOUT = {"clamp": {"min": "clamp_max", "max": "clamp_min"}}

# `iterator` operators that are another operator of the list for some values of a number: torch defines pow so, also for
# infinities (pow(-inf, 0.5) is not a number), and the other operators are faster. The tensors are the other's operands.
FOR_VALUE = {
    "pow.Tensor_Scalar": {
        "exponent": (
            (2.0, "mul.Tensor", ("self", "self")),
            (0.5, "sqrt", ("self",)),
            (-0.5, "rsqrt", ("self",)),
            (-1.0, "reciprocal", ("self",)),
        )
    }
}

# Families of `structured` operators that structured_calls.h has a call for.
REDUCTIONS = ("reduce", "reduce_index", "norm", "aminmax")
STRUCTURED_FAMILIES = (*REDUCTIONS, "softmax", "softmax_backward", "gemm")


@dataclass(frozen=True)
class Skipped:
    """An operator that is not generated, and why."""

    op: str
    reason: str


@dataclass(frozen=True)
class AtenOp:
    """One ATen operator with all its forms, to be computed by one operator of ops.yaml."""

    name: str  # "add.Tensor", the functional form
    op: object  # oplist.Op
    group: NativeFunctionsGroup
    arguments: tuple  # of the functional schema that are in the frozen list, in its order

    @property
    def forms(self):
        """The native functions, functional first."""
        return [f for f in (self.group.functional, self.group.inplace, self.group.out) if f is not None]

    @property
    def identifier(self):
        return self.group.functional.func.name.unambiguous_name()


@dataclass
class Model:
    """What is to be generated."""

    ops: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    manual: list = field(default_factory=list)  # oplist.Op, written by hand in csrc/aten


def fast_dtypes(op):
    """Gives the mask of dtypes in which the fast path computes without asking ATen's meta function."""
    tokens = set(op.dtypes)
    if tokens & _FLOATING:
        tokens |= _FLOATING
    return sum(1 << _TORCH_NUMBERS[token] for token in tokens)


def native_functions():
    """Gives all grouped native functions of the installed torch by the name of each of their forms."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    by_name = {}
    for group in get_grouped_native_functions(parsed.native_functions):
        functions = group.functions() if isinstance(group, NativeFunctionsGroup) else [group]
        for function in functions:
            by_name[str(function.func.name)] = group
    return by_name


def build(ops, functions=None, shells=()):
    """Matches ops.yaml (a list of oplist.Op, and the shells of oplist.load_shells) with the installed torch."""
    functions = native_functions() if functions is None else functions
    model = Model()
    for op in ops:
        if op.route == "manual":
            model.manual.append(op)
            continue
        for name in (op.name, *op.also):
            try:
                model.ops.append(_match(name, op, functions))
            except ValueError as error:
                model.skipped.append(Skipped(name, str(error)))
    for name, op in shells:
        try:
            model.ops.append(_match_shell(name, op, functions))
        except ValueError as error:
            model.skipped.append(Skipped(name, str(error)))
    return model


def _structured_group(name, functions):
    """Gives the group of a structured operator by its functional name; ValueError says why there is none."""
    group = functions.get(name)
    if group is None:
        raise ValueError("the installed torch has no such operator")
    if isinstance(group, NativeFunction) or not group.structured:
        raise ValueError("it is not a structured operator in the installed torch")
    if str(group.functional.func.name) != name:
        raise ValueError(f"it is a form of {group.functional.func.name}")
    return group


def _match_shell(name, op, functions):
    """Gives the AtenOp of a structured operator whose body is written by hand and takes all arguments."""
    group = _structured_group(name, functions)
    return AtenOp(name, op, group, tuple(group.functional.func.arguments.flat_all))


def _match(name, op, functions):
    """Gives the AtenOp for a functional name; ValueError says why there is none."""
    group = _structured_group(name, functions)
    iterator = group.out.structured_inherits is not None
    if op.route == "iterator" and not iterator:
        raise ValueError("it has no TensorIterator in the installed torch")
    if op.route == "structured" and op.family not in STRUCTURED_FAMILIES:
        raise ValueError(f"no generated call for structured operators of family {op.family}")
    if op.route not in ("iterator", "structured"):
        raise ValueError(f"unknown route {op.route!r}; known: iterator, structured, manual")
    return AtenOp(name, op, group, _frozen_arguments(op, group))


def _frozen_arguments(op, group):
    """Gives the schema's arguments in the order of the frozen list."""
    schema = group.functional.func
    by_name = {argument.name: argument for argument in schema.arguments.flat_all}
    names = [name for name in op.args if name in by_name or not _may_be_absent(op, name)]
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ValueError(f"its schema {schema} lacks {', '.join(missing)} of the frozen argument list")
    arguments = tuple(by_name[name] for name in names)
    unused = [name for name in by_name if name not in op.args and not _is_known_elsewhere(op, by_name[name])]
    if unused:
        raise ValueError(f"its schema {schema} has arguments that the frozen list does not know: {', '.join(unused)}")
    if op.route == "iterator":
        for argument in arguments:
            if not (is_tensor(argument) or is_scalar(argument)):
                raise ValueError(f"argument {argument.name} is neither a tensor nor a number: {argument.type}")
    return arguments


# Arguments that shape the result or name its dtype: the meta function deals with them, or the generated call does.
_HANDLED = {
    "reduce": {"keepdim", "dtype"},
    "reduce_index": {"keepdim"},
    "norm": {"keepdim", "dtype"},
    "aminmax": {"keepdim"},
    "softmax": {"half_to_float"},
    "softmax_backward": {"input_dtype"},
}


def _may_be_absent(op, name):
    """A reduction without a list of dimensions is one over all of them."""
    return op.family in REDUCTIONS and name == "dim"


def _is_known_elsewhere(op, argument):
    return argument.name in _HANDLED.get(op.family, ())


def _base(argument):
    type_ = argument.type
    return type_.elem if isinstance(type_, OptionalType) else type_


def is_tensor(argument):
    """Tells whether an argument is a tensor that is always there."""
    return argument.type == BaseType(BaseTy.Tensor)


def is_scalar(argument):
    """Tells whether an argument is a number, or an optional number."""
    return _base(argument) == BaseType(BaseTy.Scalar)


def is_optional(argument):
    return isinstance(argument.type, OptionalType)


def form_name(function):
    """Names the form of a native function for people: functional, out or in-place."""
    return {SchemaKind.functional: "functional", SchemaKind.inplace: "in-place", SchemaKind.out: "out"}[function.func.kind()]
