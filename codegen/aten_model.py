"""Matches the operator entries with the schemas of the installed torch: the operators whose registrations are
generated.

A KernelOperator is computed by a portable kernel after a meta function; a FunctionOperator by a function of
csrc/aten or of ATen. An entry that does not match its operator's schema is a build error.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from aten_natives import Natives
from aten_types import is_number, is_operand, is_optional, is_scalar, is_text
from entry_file import nearest
from torchgen.model import NativeFunction, NativeFunctionsGroup

# The dtypes in which ATen computes for each set of dtypes, if all operands have them. These are more than the portable
# kernels support, because a plugin may compute float16 and bfloat16 itself. A narrower set only costs speed. A wider
# one would skip ATen's checks (sub refuses bool, div returns floats for integers).
_FLOATING = {"f32", "f64", "f16", "bf16"}
_TORCH_NUMBERS = {"u8": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "f32": 6, "f64": 7, "c64": 9, "c128": 10, "bool": 11,
                  "bf16": 15}  # fmt: skip

# Families whose calls pass dimensions differently from ATen (structured_calls.h); other families that are not
# element-wise receive ATen's arguments.
REDUCTIONS = ("reduce", "reduce_index", "norm", "aminmax")


@dataclass(frozen=True)
class Number:
    """A number of a kernel that is computed from ATen's arguments."""

    name: str
    function: str  # of csrc/aten/<subject>/conditions.h
    arguments: tuple  # names

    @property
    def expression(self):
        return call(self.function, self.arguments)


@dataclass(frozen=True)
class Case:
    """A value of an argument that selects another operator."""

    condition: str  # C++
    entry: object  # entries.Entry
    arguments: tuple  # of the other operator's frozen list
    by_scalar: bool = False  # the value is that of a Scalar


@dataclass(frozen=True)
class KernelOperator:
    """An ATen operator with all its overloads, computed by the portable kernel of an entry."""

    name: str  # "add.Tensor", the functional overload
    entry: object  # entries.Entry
    group: NativeFunctionsGroup
    arguments: tuple  # in the order of the frozen list: arguments of the functional schema, Numbers
    cases: tuple = ()  # compared in order; a call that matches none is the operator itself, unless `exhaustive`
    exhaustive: bool = False  # an argument that matches no case is an error, which the fallback reports
    reduces: bool = False  # a loss: ATen's argument `reduction` determines whether the elements are reduced
    absent: dict = field(default_factory=dict, hash=False)  # {argument: KernelOperator that computes calls without it}

    @property
    def natives(self):
        """The overloads, functional first."""
        return [native for native in (self.group.functional, self.group.inplace, self.group.out) if native is not None]

    @property
    def functional(self):
        return self.group.functional

    @property
    def identifier(self):
        return self.group.functional.func.name.unambiguous_name()


@dataclass(frozen=True)
class FunctionOperator:
    """An ATen operator, computed by a function: overloads that share it, or one overload."""

    entry: object  # entries.Entry
    natives: tuple  # the overloads that are registered
    # The overload whose arguments the function has; if there is only an overload with out=, that one
    functional: NativeFunction
    group: NativeFunctionsGroup | None
    function: str  # in C++: of the source file, or with namespace
    indices: tuple | None = None  # of ATen's arguments, in the order of the frozen list; None: no vendor's operator is called

    @property
    def name(self):
        return str(self.natives[0].func.name)

    @property
    def identifier(self):
        return self.natives[0].func.name.unambiguous_name()

    @property
    def is_structured(self):
        return self.group is not None and self.group.structured and self.entry.register in ("structured", "reuse")

    @property
    def shares_function(self):
        """Returns whether one function computes all overloads, into Outputs; otherwise the function has its overload's
        arguments.
        """
        return self.is_structured or self.entry.register == "out"

    @property
    def is_atens(self):
        """Whether the function is ATen's own, for the CPU."""
        return self.function.startswith("at::native::")

    def mutated(self, native):
        """The indices of the arguments that an overload writes."""
        names = enumerate(native.func.arguments.flat_all)
        return tuple(i for i, a in names if a.is_write or a.name in self.entry.mutates_args)


@dataclass
class Model:
    """What is generated."""

    entries: list = field(default_factory=list)  # those with a number, in its order
    kernels: list = field(default_factory=list)  # KernelOperator
    functions: list = field(default_factory=list)  # FunctionOperator
    left_out: list = field(default_factory=list)  # entries for other versions of torch

    def overloads(self):
        """Yields (operator, native function) for everything that is registered."""
        for operator in (*self.kernels, *self.functions):
            for native in operator.natives:
                yield operator, native


def build(all_entries, natives=None):
    """Matches entries with the installed torch. Raises EntryError where one does not fit."""
    natives = Natives() if natives is None else natives
    model = Model(entries=[entry for entry in all_entries if entry.number is not None])
    listed = {entry.name: entry for entry in all_entries}
    for entry in all_entries:
        if not natives.has(entry):
            model.left_out.append(entry)
        elif entry.register == "structured" and not entry.functions:
            model.kernels += [_kernel_operator(name, entry, natives, listed) for name in (entry.name, *entry.overloads)]
        elif entry.register != "none":
            model.functions += _function_operators(entry, natives)
    by_name = {operator.name: operator for operator in model.kernels}
    for operator in model.kernels:
        for special in operator.entry.specializations:
            if _hands_over(operator.entry, special) and special.op in by_name:
                operator.absent[special.argument] = by_name[special.op]
    for entry in all_entries:
        _check_error_name(entry, natives)
    return model


def _check_error_name(entry, natives):
    """Raises EntryError where errors would name an operator that ATen does not have."""
    if entry.part_of and not natives.has_function(entry.part_of):
        raise entry.at("part_of").error(f"torch {natives.version} has no operator aten::{entry.part_of}")
    if entry.register == "none" and not (entry.part_of or entry.torch or entry.name in natives.groups):
        raise entry.at("op").error(f"torch {natives.version} has no operator aten::{entry.name}; the key 'part_of' is missing, ATen's operator "
                                   "that errors name")


# ---- operators with a portable kernel ----


def _kernel_operator(name, entry, natives, listed):
    native, group = natives.find(entry, name)
    expected = entry.meta is None
    key = "op" if name == entry.name else "overloads"
    if group is None or str(group.functional.func.name) != name:
        raise entry.at(key).error(f"aten::{name} is not the functional overload of an operator with out=; `register: structured` needs one")
    if group.structured != expected:
        hint = "name the class of its results with 'meta'" if expected else "'meta' is for operators that ATen has not structured"
        raise entry.at("register").error(f"aten::{name} is {'not ' if expected else ''}structured in torch {natives.version}; {hint}")
    if entry.is_elementwise and expected and group.out.structured_inherits is None:
        raise entry.at("kernel", "family").error(f"{entry.family!r} is a family of element-wise kernels, and aten::{name} has no TensorIterator")
    by_name = {argument.name: argument for argument in native.func.arguments.flat_all}
    reduces = entry.is_elementwise and "reduction" in by_name and not _reads(entry, "reduction")
    specials = [special for special in entry.specializations if _is_case(entry, special, by_name)]
    cases = tuple(_case(entry, special, by_name, listed) for special in specials)
    exhaustive = any(is_text(by_name[special.argument]) for special in specials)
    return KernelOperator(name, entry, group, _frozen_arguments(entry, native, by_name, reduces), cases, exhaustive, reduces)


def _hands_over(entry, special):
    """Returns whether a call without an operand or number goes to the other operator as a whole."""
    return special.value is None and special.argument in entry.args


def _is_case(entry, special, by_name):
    if special.argument not in by_name:
        raise entry.at("specialize", special.argument).error(f"is not an argument of aten::{entry.name}; {nearest(special.argument, by_name)}")
    return not is_operand(by_name[special.argument]) and not _hands_over(entry, special)


def _case(entry, special, by_name, listed):
    other = listed[special.op]
    arguments = tuple(_argument(entry, name, by_name) for name in special.args or other.args)
    return Case(_condition(by_name[special.argument], special.value), other, arguments, is_scalar(by_name[special.argument]))


def _condition(argument, value):
    """The C++ condition that an argument has a value."""
    if value is None:
        return f"!{argument.name}.has_value()"
    if isinstance(value, bool):
        return argument.name if value else f"!{argument.name}"
    if is_scalar(argument) and not is_optional(argument):
        return f"(!{argument.name}.isComplex() && {argument.name}.equal({value!r}))"
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    present = f"{argument.name}.has_value() && *" if is_optional(argument) else ""
    return f"{present}{argument.name} == {text}"


def _argument(entry, name, by_name):
    """Returns the value of a name of a frozen argument list."""
    return Number(name, entry.precomputed[name][0], entry.precomputed[name][1:]) if name in entry.precomputed else by_name[name]


def call(function, names=()):
    """Returns the C++ call of a function of conditions.h; a bool of ATen is its own value."""
    return f"{function}({', '.join(names)})" if names else function


def _reads(entry, name):
    """Returns whether a computed number, or the condition of `fallback_if`, reads one of ATen's arguments."""
    return name in entry.fallback_if or any(name in names for _, *names in entry.precomputed.values())


def _frozen_arguments(entry, native, by_name, reduces):
    """Returns the schema's arguments and the computed numbers in the order of the frozen list."""
    names = [name for name in entry.args if name in by_name or name in entry.precomputed or not _may_be_absent(entry, name)]
    _check_arguments(entry, native, [name for name in names if name not in entry.precomputed], by_name)
    known = {*entry.args, *entry.vendor_args, *entry.omit, *(special.argument for special in entry.specializations)}
    _check_nothing_lost(entry, native, [name for name in by_name if name not in known and not _reads(entry, name)
                                        and not (reduces and name == "reduction")])  # fmt: skip
    result = tuple(_argument(entry, name, by_name) for name in names)
    if entry.family in REDUCTIONS and any(is_operand(argument) for argument in result[1:] if not isinstance(argument, Number)):
        raise entry.at("kernel", "family").error(f"{entry.family!r} reduces one tensor, and 'args' lists several of {native.func}")
    for argument in result if entry.is_elementwise else ():
        if not (isinstance(argument, Number) or is_operand(argument) or is_number(argument)):
            raise entry.at("args").error(f"{argument.name!r} is {argument.type} in {native.func}: expected a tensor or a number, or a number "
                                         "that `precomputed` makes of it")
    return result


def _may_be_absent(entry, name):
    """A reduction without a list of dimensions reduces all of them."""
    return entry.family in REDUCTIONS and name == "dim"


def _check_arguments(entry, native, names, by_name):
    """Raises EntryError if an entry names arguments that a schema does not have."""
    listed = [("args", name) for name in names]
    own = str(native.func.name) == entry.name  # other overloads may lack arguments
    listed += [(key, name) for key in ("vendor_args", "omit", "mutates_args") for name in getattr(entry, key) if own]
    listed += [("fallback_if", name) for name in entry.fallback_if[1:] or entry.fallback_if if own]
    listed += [("precomputed", name) for _, *given in entry.precomputed.values() for name in given if own]
    for key, name in listed:
        if name not in by_name:
            raise entry.at(key).error(f"{name!r} is not an argument of {native.func}; {nearest(name, by_name)}")


def _check_nothing_lost(entry, native, names):
    if names:
        raise entry.at("args").error(f"the argument {names[0]!r} of {native.func} is missing: list it in 'args' or 'vendor_args', or in 'omit' "
                                     "where the results show it")


def fast_dtypes(operator):
    """Returns the mask of dtypes in which the fast path of a KernelOperator computes without ATen's meta function.

    An operator that is specialized by the value of a Scalar has a fast path in floating dtypes only: a floating
    Scalar causes floating results for integers.
    """
    floating = any(case.by_scalar for case in operator.cases)
    return kernel_dtypes(operator.entry) & (_mask(_FLOATING) if floating else -1)


def kernel_dtypes(entry):
    """Returns the mask of those dtypes of an entry that ATen computes in."""
    tokens = set(entry.kernel.dtypes)
    return _mask(tokens | _FLOATING if tokens & _FLOATING else tokens)


def _mask(tokens):
    return sum(1 << _TORCH_NUMBERS[token] for token in tokens)


# ---- operators with a function ----


def _function_operators(entry, natives):
    """Yields the FunctionOperators of an entry."""
    if entry.register == "functional":
        for name, function in entry.functions.items():
            native, group = natives.find(entry, name or entry.name)
            yield _function_operator(entry, (native,), group, function, natives)
        return
    native, group = natives.find(entry, entry.name)
    if entry.register == "structured" and not (group and group.structured):
        raise entry.at("register").error(f"aten::{entry.name} is not structured in torch {natives.version}; use 'out' or 'functional'")
    if group and group.structured and str(group.functional.func.name) != entry.name:
        raise entry.at("op").error(f"aten::{entry.name} is an overload of aten::{group.functional.func.name}; name that one")
    found = [(each, group) for each in _derived(native, group, natives)] + [natives.find(entry, name) for name in entry.overloads]
    if not found:
        raise entry.at("register").error(f"ATen composes all overloads of aten::{entry.name} of other operators; name the one to register "
                                         "with 'overloads'")
    if entry.register == "reuse" and not (group and group.structured):
        for each, of in found:
            yield _function_operator(entry, (each,), of, entry.functions.get("") or _cpu_function(entry, each, natives), natives)
        return
    for together, of in _by_group(found):
        function = entry.functions.get("") or f"at::native::structured_{natives.cpu_function(group.out)}"
        yield _function_operator(entry, together, of, function, natives)


def _by_group(found):
    """Yields (overloads of one group, the group); an overload without a group is yielded separately."""
    groups = {id(group or native): group for native, group in found}
    for key, group in groups.items():
        yield tuple(native for native, its in found if id(its or native) == key), group


def _derived(native, group, natives):
    """Returns the overloads of an operator for which a backend needs a kernel: all overloads of a structured operator."""
    if group is None:
        return [native]
    if group.structured:
        return [each for each in (group.functional, group.inplace, group.out) if each is not None]
    return [each for each in group.functions() if natives.needs_kernel(each)]


def _cpu_function(entry, native, natives):
    function = natives.cpu_function(native)
    if function is None:
        function = str(native.func.name.name)  # ATen's function for all backends
    return f"at::native::{function}"


def _function_operator(entry, together, group, function, natives):
    functional = group.functional if group else together[0]
    indices = None
    if entry.calls_vendor:
        _check_arguments(entry, functional, (), {argument.name for argument in functional.func.arguments.flat_all})
    elif entry.number is not None:
        indices = _indices(entry, functional)
    return FunctionOperator(entry, together, functional, group, function, indices)


def _indices(entry, functional):
    """Returns the indices of ATen's arguments in the order of the frozen list. Arguments that are not in that list are
    results, masks of results, and generators, whose state is part of the call.
    """
    arguments = functional.func.arguments.flat_all
    index = {argument.name: i for i, argument in enumerate(arguments)}
    _check_arguments(entry, functional, (*entry.args, *entry.vendor_args), index)
    told = {argument.name for argument in arguments if argument.is_write or argument.type.is_generator_like()}
    known = {*entry.args, *entry.vendor_args, *entry.omit, *told, "output_mask"}
    _check_nothing_lost(entry, functional, [name for name in index if name not in known])
    return tuple(index[name] for name in (*entry.args, *entry.vendor_args))

