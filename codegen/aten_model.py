"""Maps the operators of ops.yaml onto the schemas of the installed torch: what aten.py generates code from.

An operator that the installed torch lacks, or whose schema no longer fits its frozen argument list, is reported and left to
the fallback; it never stops the build.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import aten_bodies
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

# Families of `structured` operators whose calls say dimensions otherwise than ATen (structured_calls.h); others are given its arguments.
REDUCTIONS = ("reduce", "reduce_index", "norm", "aminmax")


@dataclass(frozen=True)
class Skipped:
    """An operator that is not generated, and why."""

    op: str
    reason: str


@dataclass(frozen=True)
class Number:
    """A number of a kernel that is computed from ATen's arguments."""

    name: str
    function: str  # of csrc/aten/prepare/conditions.h
    arguments: tuple  # names

    @property
    def expression(self):
        return call(self.function, self.arguments)


@dataclass(frozen=True)
class Case:
    """Values of ATen's arguments that make an operator another one of ops.yaml, or that it must have."""

    condition: str  # C++
    op: object  # oplist.Op
    arguments: tuple  # of the other's frozen list


@dataclass(frozen=True)
class AtenOp:
    """One ATen operator with all its forms, to be computed by one operator of ops.yaml."""

    name: str  # "add.Tensor", the functional form
    op: object  # oplist.Op
    group: NativeFunctionsGroup
    arguments: tuple  # in the order of the frozen list: arguments of the functional schema, Numbers
    cases: tuple = ()  # asked in order; what fits none is the operator itself, unless `exhaustive`
    exhaustive: bool = False  # an argument that fits none is an error, in the fallback's words
    reduces: bool = False  # a loss: ATen's argument `reduction` says what becomes of the elements
    when: dict = field(default_factory=dict, hash=False)  # as that of the operator of ops.yaml, which may differ for one under `also`
    others: dict = field(default_factory=dict, hash=False)  # {name: AtenOp} of `absent`

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
    bodies: list = field(default_factory=list)  # aten_bodies.Body
    manual: list = field(default_factory=list)  # oplist.Op, called by hand in csrc/aten


def fast_dtypes(op):
    """Gives the mask of dtypes in which the fast path computes without asking ATen's meta function."""
    tokens = set(op.dtypes)
    if tokens & _FLOATING:
        tokens |= _FLOATING
    if op.fast:
        tokens &= set(op.fast)
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


def build(ops, functions=None, bodies=()):
    """Matches ops.yaml (lists of oplist.Op and oplist.Body) with the installed torch."""
    functions = native_functions() if functions is None else functions
    model = Model()
    listed = {op.name: op for op in ops}
    for op in ops:
        if op.route in ("manual", "part"):
            model.manual.append(op)
            continue
        for name, when in {op.name: op.when, **op.also}.items():
            try:
                model.ops.append(_match(name, op, when, functions, listed))
            except ValueError as error:
                model.skipped.append(Skipped(name, str(error)))
    rows = {other: op for op in ops for other in op.also} | listed
    for entry in bodies:
        try:
            model.bodies += aten_bodies.match(entry, functions, rows)
        except ValueError as error:
            model.skipped.append(Skipped(entry.op, str(error)))
    matched = {op.name: op for op in model.ops}
    for op in model.ops:
        op.others.update({name: matched[name] for name in op.op.absent.values() if name in matched})
    return model


def _group(name, functions, structured):
    """Gives the group of an operator by its functional name; ValueError says why there is none."""
    group = functions.get(name)
    if group is None:
        raise ValueError("the installed torch has no such operator")
    if isinstance(group, NativeFunction):
        raise ValueError("it has one form only in the installed torch")
    if group.structured != structured:
        raise ValueError(f"it is {'' if group.structured else 'not '}a structured operator in the installed torch")
    if str(group.functional.func.name) != name:
        raise ValueError(f"it is a form of {group.functional.func.name}")
    return group


def _match(name, op, when, functions, listed):
    """Gives the AtenOp for a functional name; ValueError says why there is none."""
    group = _group(name, functions, structured=op.route != "pointwise")
    iterator = group.structured and group.out.structured_inherits is not None
    if op.route == "iterator" and not iterator:
        raise ValueError("it has no TensorIterator in the installed torch")
    if op.route not in ("iterator", "structured", "pointwise"):
        raise ValueError(f"unknown route {op.route!r}; known: iterator, structured, pointwise, manual, part")
    by_name = {argument.name: argument for argument in group.functional.func.arguments.flat_all}
    reduces = op.route != "structured" and "reduction" in by_name and not _is_read(op, "reduction")
    cases = tuple(_cases(op, when, by_name, listed))
    exhaustive = any(_base(by_name[argument]) == BaseType(BaseTy.str) for argument in when)
    return AtenOp(name, op, group, _frozen_arguments(op, when, group, reduces), cases, exhaustive, reduces, when)


def _cases(op, when, by_name, listed):
    """Yields the Cases of an operator: what it is for some values of its arguments."""
    for argument, values in when.items():
        for value, (other, operands) in values.items():
            if other not in listed:
                raise ValueError(f"it is {other!r} when {argument} is {value!r}, which is not in the list")
            arguments = tuple(_argument(op, name, by_name) for name in operands or listed[other].args)
            yield Case(_condition(by_name[argument], value), listed[other], arguments)


def _condition(argument, value):
    """Gives the C++ condition that an argument has a value of ops.yaml."""
    if value is None or value == "None":
        return f"!{argument.name}.has_value()"
    if isinstance(value, bool):
        return argument.name if value else f"!{argument.name}"
    if is_scalar(argument) and not is_optional(argument):
        return f"(!{argument.name}.isComplex() && {argument.name}.equal({value!r}))"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    present = f"{argument.name}.has_value() && *" if is_optional(argument) else ""
    return f"{present}{argument.name} == {text}"


def _argument(op, name, by_name):
    """Gives what stands for a name of a frozen argument list."""
    return Number(name, op.numbers[name][0], op.numbers[name][1:]) if name in op.numbers else by_name[name]


def call(function, arguments=()):
    """Gives the C++ call of a function of conditions.h; ATen's bool stands for itself."""
    return f"{function}({', '.join(arguments)})" if arguments else function


def _is_read(op, name):
    """Tells whether a computed number, or the condition of `refuse`, reads one of ATen's arguments."""
    return name in op.refuse or any(name in arguments for _, *arguments in op.numbers.values())


def _frozen_arguments(op, when, group, reduces):
    """Gives the schema's arguments and the computed numbers in the order of the frozen list."""
    schema = group.functional.func
    by_name = {argument.name: argument for argument in schema.arguments.flat_all}
    names = [name for name in op.args if name in by_name or name in op.numbers or not _may_be_absent(op, name)]
    missing = [name for name in names if name not in by_name and name not in op.numbers]
    if missing:
        raise ValueError(f"its schema {schema} lacks {', '.join(missing)} of the frozen argument list")
    arguments = tuple(_argument(op, name, by_name) for name in names)
    known = {*op.args, *op.further, *when, *op.unused, *op.shapes, *(["reduction"] if reduces else [])}
    unused = [name for name in by_name if name not in known and not _is_read(op, name)]
    if unused:
        raise ValueError(f"its schema {schema} has arguments that the frozen list does not know: {', '.join(unused)}")
    if op.route != "structured":
        for argument in arguments:
            if not (is_operand(argument) or is_number(argument)):
                raise ValueError(f"argument {argument.name} is neither a tensor nor a number: {argument.type}")
    return arguments


def _may_be_absent(op, name):
    """A reduction without a list of dimensions is one over all of them."""
    return op.family in REDUCTIONS and name == "dim"


def _base(argument):
    type_ = argument.type
    return type_.elem if isinstance(type_, OptionalType) else type_


def is_tensor(argument):
    """Tells whether an argument is a tensor that is always there."""
    return argument.type == BaseType(BaseTy.Tensor)


def is_operand(argument):
    """Tells whether an argument is a tensor, optional or not."""
    return not isinstance(argument, Number) and _base(argument) == BaseType(BaseTy.Tensor)


def is_number(argument):
    """Tells whether an argument is a number of any kind that is always there, or an optional Scalar."""
    plain = (BaseType(BaseTy.int), BaseType(BaseTy.float))
    return isinstance(argument, Number) or is_scalar(argument) or argument.type in plain


def is_scalar(argument):
    """Tells whether an argument is a number, or an optional number."""
    return _base(argument) == BaseType(BaseTy.Scalar)


def is_optional(argument):
    return isinstance(argument.type, OptionalType)


def form_name(function):
    """Names the form of a native function for people: functional, out or in-place."""
    return {SchemaKind.functional: "functional", SchemaKind.inplace: "in-place", SchemaKind.out: "out"}[function.func.kind()]
