"""The checks of a custom operator's arguments and the shapes of its results, in a form that is written as C++ and as
Python. A library reports the same error messages wherever its operators run.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from custom_model import SCALAR_TYPES


@dataclass(frozen=True)
class Variable:
    """An argument of the operator."""

    name: str


@dataclass(frozen=True)
class Bound:
    """A name that an earlier step has bound: "dim_<name>" or "leading"."""

    name: str


@dataclass(frozen=True)
class Check:
    """A call of a method of the check (csrc/api/custom_op.h, the package's custom.py). Texts, numbers and tuples of
    dtypes are literal values.
    """

    method: str
    values: tuple


@dataclass(frozen=True)
class Bind:
    """Binds a name to the size of a dimension, or to all dimensions but the last `fixed` ("leading")."""

    name: str
    tensor: str
    dim: int | None  # None: the leading dimensions
    fixed: int = 0


@dataclass(frozen=True)
class Step:
    """A check or a binding; with `given` only if that argument is present."""

    what: object
    given: str | None = None


INFINITY = float("inf")


def steps(op):
    """Returns the checks of an operator in order: devices, each tensor's dtype and shape, ranges of numbers."""
    first = first_tensor(op)
    tensors = [(i, a) for i, a in enumerate(op.arguments) if a.kind in ("Tensor", "Tensor[]")]
    result = [Step(Check("device", (first, Variable(first), a.name, Variable(a.name)))) for _, a in tensors if a.name != first]
    bound, variables = {}, {}
    for position, a in sorted(tensors, key=lambda pair: pair[1].optional):
        given = a.name if a.optional else None
        result += [Step(what, given) for what in (*_dtype(op, position, a, variables), *_shape(a, bound))]
    for a in op.arguments:
        if a.least is not None or a.most is not None:
            least, most = (-INFINITY if a.least is None else float(a.least)), (INFINITY if a.most is None else float(a.most))
            result += [Step(Check("number", (Variable(a.name), a.name, least, most)), a.name if a.optional else None)]
    return result


def first_tensor(op):
    """Returns the argument that determines the device."""
    return next(a.name for a in op.arguments if a.is_tensor and not a.optional)


def _dtype(op, position, a, variables):
    if a.dtype is None:
        return []
    tensor = Variable(a.name)
    if a.dtype in variables:
        return [Check("same_dtype", (tensor, a.name, Variable(variables[a.dtype]), variables[a.dtype]))]
    if a.dtype in op.dtypes and not a.optional and a.is_tensor:
        variables[a.dtype] = a.name
    return [Check("dtype", (tensor, position + 1, a.name, tuple(op.dtype_names(a.dtype))))]


def _shape(a, bound):
    if a.shape is None:
        return []
    tensor, fixed = Variable(a.name), [token for token in a.shape if token != "..."]
    leading = len(fixed) != len(a.shape)
    result = [Check("rank", (tensor, a.name, len(fixed), not leading, f"[{', '.join(map(str, a.shape))}]"))]
    if leading and "..." in bound:
        result += [Check("leading", (tensor, a.name, len(fixed), Bound("leading"), bound["..."]))]
    elif leading:
        bound["..."] = a.name
        result += [Bind("leading", a.name, None, len(fixed))]
    for place, token in enumerate(fixed):
        dim = place - len(fixed) if leading else place
        if isinstance(token, int):
            result += [Check("size", (tensor, a.name, dim, token, str(token), None))]
        elif token in bound:
            result += [Check("size", (tensor, a.name, dim, Bound(f"dim_{token}"), token, bound[token]))]
        else:
            bound[token] = a.name
            result += [Bind(f"dim_{token}", a.name, dim)]
    return result


def dimensions(result, prefix):
    """Returns the sizes of a result after the leading ones, as expressions of the bound names."""
    return [re.sub(r"[A-Za-z_]\w*", lambda m: f"{prefix}dim_{m[0]}", str(token)) for token in result.shape if token != "..."]


def dtype_source(op, result):
    """Returns the argument whose dtype the result has; None: the dtype is always the same."""
    return next((a.name for a in op.arguments if a.is_tensor and not a.optional and a.dtype == result.dtype), None)


# ---- as C++ ----


def aten_dtype(name):
    """Returns the constant of a dtype in ATen."""
    return f"at::k{SCALAR_TYPES[name][0]}"


def hal_dtype(name):
    """Returns the constant of a dtype in the HAL."""
    return f"HAL_{name.upper()}"


def cpp(op, sizes, symbolic):
    """Returns (members of the struct of sizes, lines). `symbolic`: sizes may be symbols, as in ATen; otherwise they are
    numbers, as in LibTorch's stable ABI.
    """
    optional = {a.name for a in op.arguments if a.optional}
    dtype = aten_dtype if symbolic else hal_dtype
    size, shape = ("sym_size", "sym_sizes") if symbolic else ("size", "sizes")
    members, lines, open_block = [], [], None
    for step in sizes:
        if step.given != open_block and open_block:
            lines += ["}"]
        if step.given != open_block and step.given:
            tensor = next(a for a in op.arguments if a.name == step.given).is_tensor
            lines += [f"if ({step.given}.has_value()" + (f" && {step.given}->defined()) {{" if tensor else ") {")]
        open_block = step.given
        what = step.what
        name = lambda argument: f"*{argument}" if argument in optional and step.given == argument else argument  # noqa: E731, B023
        if isinstance(what, Bind) and what.dim is None:
            members += ["c10::SymIntArrayRef leading;" if symbolic else "IntArray leading;"]
            text = f"sizes.leading = {what.tensor}.{shape}().slice(0, {what.tensor}.{shape}().size() - {what.fixed});"
        elif isinstance(what, Bind):
            members += [f"{'c10::SymInt' if symbolic else 'int64_t'} {what.name};"]
            text = f"sizes.{what.name} = {what.tensor}.{size}({what.dim});"
        else:
            values = [_cpp_value(what.method, value, name, dtype) for value in what.values]
            text = f"if (!check.{what.method}({', '.join(values)})) return false;"
        lines += [f"  {text}" if step.given else text]
    return members, lines + (["}"] if open_block else [])


def _cpp_value(method, value, name, dtype):
    if isinstance(value, Bound):
        return f"sizes.{value.name}"
    if isinstance(value, Variable):
        return f"static_cast<double>({name(value.name)})" if method == "number" else name(value.name)
    if isinstance(value, tuple):
        return f"{{{', '.join(map(dtype, value))}}}"
    if isinstance(value, float):
        return ("-" if value < 0 else "") + "std::numeric_limits<double>::infinity()" if abs(value) == INFINITY else repr(value)
    if value is None:
        return "nullptr"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


# ---- as Python ----


def python(sizes):
    """Returns lines of Python that run the checks with `_check` and bind the sizes to variables with the prefix "_"."""
    lines = []
    for step in sizes:
        what = step.what
        if isinstance(what, Bind):
            place = f":{what.tensor}.dim() - {what.fixed}" if what.dim is None else what.dim
            text = f"_{what.name} = {what.tensor}.shape[{place}]"
        else:
            text = f"_check.{what.method}({', '.join(_python_value(value) for value in what.values)})"
        lines += [f"if {step.given} is not None:", f"    {text}"] if step.given else [text]
    return lines


def _python_value(value):
    if isinstance(value, Bound):
        return f"_{value.name}"
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, float) and abs(value) == INFINITY:
        return f'float("{value}")'
    return repr(value)
